"""The scrape of one worker: its counters and gauges, each with the worker's labels; no global state."""

from __future__ import annotations

from prometheus_client.parser import text_string_to_metric_families

from sfd_stream.observe.metrics import WORKER_LABELS, declared
from tests.support.watched import Stage
from tests.unit.observe.test_metrics import busy, samples, scraped


def test_every_declared_metric_is_exported_with_its_labels_and_nothing_else_is() -> None:
    found = {(name, tuple(k for k, _ in labels if k != "le")) for name, labels in samples(busy())}
    wanted = {(name, tuple(sorted(metric.labels))) for metric in declared() for name in metric.series}
    assert found == wanted


def test_every_series_says_which_worker_group_and_topic() -> None:
    for family in text_string_to_metric_families(scraped(busy())):
        for sample in family.samples:
            assert {k: sample.labels[k] for k in WORKER_LABELS} == {"worker": "0", "group": "group", "topic": "rows"}


def test_values_are_those_that_were_told() -> None:
    stage = busy()
    found = samples(stage)
    assert found["sfd_rows_total", (("partition", "0"),)] == 1200
    assert found["sfd_applied_offset", (("partition", "1"),)] == 1200
    assert found["sfd_dead_letters_total", (("reason", "malformed"),)] == 1
    assert found["sfd_dead_letters_total", (("reason", "not_finite"),)] == 0
    assert found["sfd_checkpoint_failures_total", (("kind", "unavailable"),)] == 1
    assert found["sfd_checkpoint_bytes_total", (("partition", "0"),)] == 1000, (
        "what was there before is not written again"
    )
    assert found["sfd_fences_total", ()] == 1
    assert found["sfd_kafka_rtt_seconds", (("broker", "1"),)] == 0.002
    assert found["sfd_kafka_fetch_queue_messages", ()] == 7
    assert found["sfd_shrink_seconds_count", ()] == sum(state.builder.shrinks for state in stage.states.values()) > 0
    assert found["sfd_delta_promised_ratio", ()] == 0.341667


def test_two_workers_in_one_process_do_not_collide() -> None:
    one, other = Stage(worker="1"), Stage(worker="2")
    one.feed(0, 10)
    one.watch.fenced("checkpoint")
    assert samples(one)["sfd_rows_total", (("partition", "0"),)] == 10
    assert ("sfd_rows_total", (("partition", "0"),)) not in samples(other)
    assert samples(other)["sfd_fences_total", ()] == 0
