"""Transactional delivery in a running worker: each state is seen once, in order, together with its offset."""

from __future__ import annotations

import itertools

import pytest

from sfd_stream.kafka.admin import GroupOffsets
from sfd_stream.kafka.errors import Hooks
from sfd_stream.state.offset_metadata import state_id_in
from tests.support.kafka import Broker
from tests.system.conftest import MakeRun
from tests.system.runs import Rows, Run, assert_counts
from tests.system.shown import all_shown, latest, output_topic, parts_of, set_config, shown_rows

TRANSACTIONAL = {"delivery": "transactional", "every_s": 0.1}


def assert_each_once(broker: Broker, shows: str, partitions: int) -> None:
    for partition in range(partitions):
        orders = [shown.order for shown in all_shown(broker, shows, partition)]
        assert orders
        assert all(before < after for before, after in itertools.pairwise(orders)), orders


def assert_committed(run: Run, partition: int) -> None:
    """The offset and the id of the newest state."""
    properties = {"bootstrap.servers": run.broker.bootstrap, "group.id": run.group, "log_level": 0}
    group, newest = GroupOffsets(properties, run.topic, Hooks()), run.newest(partition)
    found = group.committed([partition], 20)[partition]
    assert found is not None
    assert newest is not None
    assert (found.offset, state_id_in(found.metadata)) == (newest.next_offset, newest.state_id)


def test_partitions_share_transactions_and_all_is_seen_once(kafka: Broker, make_run: MakeRun) -> None:
    rows, topic, shows = Rows.random(4_000, partitions=4), kafka.create_topic(partitions=4), output_topic()
    rows.produce(kafka, topic)
    run = make_run(kafka, topic, changes={"snapshot": {"topic": shows, **TRANSACTIONAL}})
    worker = run.inside()
    assert_each_once(kafka, shows, 4)
    counted = worker.watch.meter.registry.get_sample_value
    for partition in range(4):
        labels = {"partition": str(partition)}
        assert counted("sfd_snapshots_total", labels) == len(all_shown(kafka, shows, partition))
        assert (counted("sfd_checkpoints_total", labels) or 0) >= 1
    for partition, matrix in enumerate(rows.matrices):
        assert_counts(run.state(partition), matrix)
        assert_committed(run, partition)
    assert {s.id.partition: s.sketch for s in latest(run, shows)} == {p: run.state(p).sketch() for p in range(4)}
    before = len(all_shown(kafka, shows))
    run.inside()
    assert len(all_shown(kafka, shows)) == before, "claimed again, nothing new: nothing is shown again"


@pytest.mark.parametrize("protocol", ["cooperative", "kip-848"])
def test_while_workers_come_and_go_each_state_is_seen_once(kafka: Broker, make_run: MakeRun, protocol: str) -> None:
    rows, topic, shows = Rows.random(4_000, partitions=2), kafka.create_topic(partitions=2), output_topic()
    feed = [parts_of(rows.messages(partition), 10) for partition in range(2)]
    run = make_run(kafka, topic, protocol=protocol, changes={"snapshot": {"topic": shows, **TRANSACTIONAL}})
    workers = [run.begin()]
    for step in range(10):
        if step == 3:
            workers.append(run.begin())
            workers[1].until(lambda: list(workers[1].worker.partitions), "its share")
        if step == 7:
            workers.pop(0).stop()
        for partition in range(2):
            kafka.produce(topic, feed[partition][step], partition=partition)
        ends = [sum(map(len, parts[: step + 1])) for parts in feed]
        workers[-1].until(lambda ends=ends: [run.durable_offset(p) for p in range(2)] == ends, "a checkpoint")
    workers[0].until(lambda: shown_rows(run, shows) == {0: 2000, 1: 2000}, "all of it")
    workers[0].stop()
    assert_each_once(kafka, shows, 2)
    for partition, matrix in enumerate(rows.matrices):
        assert_counts(run.state(partition), matrix)
        assert_committed(run, partition)


def test_a_snapshot_too_large_stays_due_and_holds_up_no_other(kafka: Broker, make_run: MakeRun) -> None:
    rows, topic = Rows.random(1_000), kafka.create_topic(partitions=2)
    shows = kafka.create_topic(config={"max.message.bytes": "3000"})
    rows.produce(kafka, topic)
    run = make_run(kafka, topic, changes={"snapshot": {"topic": shows, **TRANSACTIONAL}})
    worker = run.begin()
    worker.until(lambda: run.durable_offset(0) == 50 and 1 in shown_rows(run, shows), "the stream, and the other")
    assert shown_rows(run, shows).get(0, 0) == 0
    set_config(kafka, shows, {"max.message.bytes": "2000000"})
    worker.until(lambda: shown_rows(run, shows) == {0: 1000, 1: 0}, "what was due")
    worker.stop()
    assert_each_once(kafka, shows, 2)
    assert_committed(run, 0)


def test_the_delivery_may_be_changed_from_run_to_run(kafka: Broker, make_run: MakeRun) -> None:
    rows, topic, shows = Rows.random(800), kafka.create_topic(), output_topic()
    run = make_run(kafka, topic)
    for part, delivery in zip(parts_of(rows.messages(0), 4), ["idempotent", "transactional"] * 2, strict=True):
        kafka.produce(topic, part)
        run.inside(snapshot={"topic": shows, "delivery": delivery})
        assert shown_rows(run, shows) == {0: 20 * run.durable_offset(0)}
    for before, after in itertools.pairwise(all_shown(kafka, shows)):  # at a change the last one is shown once more
        assert before.order < after.order or (before.order, before.value) == (after.order, after.value)
    assert_counts(run.state(0), rows.matrices[0])
