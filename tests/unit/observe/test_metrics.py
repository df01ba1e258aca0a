"""Metrics are declared once, and the table in docs/ is made of the declarations."""

from __future__ import annotations

import json
import re
import subprocess
from pathlib import Path

import pytest
from prometheus_client.parser import text_string_to_metric_families

from sfd_stream.cli import main
from sfd_stream.cli.commands.metrics import markdown
from sfd_stream.errors import StoreRefusedError, StoreUnavailableError
from sfd_stream.observe.facts import ReleasedError
from sfd_stream.observe.metrics import WORKER_LABELS, declared
from sfd_stream.observe.registry import READ_OFF, exposition
from sfd_stream.wire.reasons import Reason
from tests.support.tools import need
from tests.support.watched import Stage

REPOSITORY = Path(__file__).parents[3]
STATISTICS = (
    '{"type": "consumer", "brokers": {"a": {"nodeid": 1, "rtt": {"avg": 2000}, "txerrs": 3}, "b": {"nodeid": -1}},'
    ' "topics": {"rows": {"partitions": {"0": {"fetchq_cnt": 7}}}}}'
)


def busy() -> Stage:
    """A stage on which everything has happened once."""
    stage = Stage(partitions=2)
    stage.watch.statistics(STATISTICS)
    for _ in range(3):
        stage.tick()
        for partition in (0, 1):
            stage.feed(partition, 400)
        stage.tick(40.0)
    stage.watch.dead_letter(0, 7, "malformed", "not msgpack", b"\xff")
    stage.watch.job_failed("checkpoint", StoreUnavailableError("away"))
    stage.checkpoint(0)
    for partition in (0, 1):
        stage.publish(partition, 12_345)
    stage.watch.rebalanced("revoke", [5])
    stage.watch.fenced("retention")
    stage.tick()
    return stage


def scraped(stage: Stage) -> str:
    return exposition(stage.watch.meter, stage.watch.status, stage.watch.idle_s).decode()


def samples(stage: Stage) -> dict[tuple[str, tuple[tuple[str, str], ...]], float]:
    own = set(WORKER_LABELS)
    return {
        (sample.name, tuple(sorted((k, v) for k, v in sample.labels.items() if k not in own))): sample.value
        for family in text_string_to_metric_families(scraped(stage))
        for sample in family.samples
    }


def test_names_follow_the_conventions() -> None:
    for metric in declared():
        assert re.fullmatch(r"sfd_[a-z_]+", metric.name), metric.name
        assert (metric.kind == "counter") == metric.name.endswith("_total"), metric.name
        assert (metric.kind == "histogram") == bool(metric.buckets), metric.name
        assert metric.help.endswith("."), metric.name
        if metric.unit in ("seconds", "bytes", "ratio", "messages"):
            bare = metric.name.removesuffix("_total")
            assert bare.endswith(metric.unit) or metric.kind == "counter", metric.name
        if metric.kind == "gauge":
            assert metric in READ_OFF, metric.name


def test_every_reason_of_the_decoder_is_a_series_from_the_start() -> None:
    found = {dict(labels)["reason"] for name, labels in samples(Stage()) if name == "sfd_dead_letters_total"}
    assert found == {str(reason) for reason in Reason}


@pytest.mark.parametrize(
    ("job", "name"),
    [("claim", "restore"), ("checkpoint", "checkpoint"), ("publication", "snapshot"), ("retention", "retention")],
)
def test_a_failure_counts_as_its_job_s_and_by_its_kind_and_nowhere_else(job: str, name: str) -> None:
    stage = Stage()
    stage.watch.job_failed(job, StoreUnavailableError("away"))
    stage.watch.job_failed(job, StoreRefusedError("no right"))
    stage.watch.fenced(job)
    stage.watch.job_failed(job, ReleasedError())
    counted = {where: value for where, value in samples(stage).items() if "_failures_" in where[0] and value}
    kinds = ("unavailable", "refused", "fenced", "abandoned")
    assert counted == {(f"sfd_{name}_failures_total", (("kind", kind),)): 1 for kind in kinds}


def test_the_table_in_the_docs_is_made_of_the_declarations() -> None:
    written = (REPOSITORY / "docs" / "reference" / "metrics.md").read_text()
    assert written == markdown(), (
        'docs/reference/metrics.md is stale: run "sfd-stream metrics > docs/reference/metrics.md"'
    )


def test_json_tells_the_same_declarations(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["metrics", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)["metrics"]
    assert [metric["name"] for metric in found] == [
        metric.name for metric in (*declared(), *declared("merge"), *declared("score"))
    ]
    assert {"name", "kind", "unit", "labels", "help", "by"} <= set(found[0])


def test_promtool_finds_nothing_to_say() -> None:
    done = subprocess.run(
        [need("promtool"), "check", "metrics"], input=scraped(busy()), check=False, capture_output=True, text=True
    )
    assert (done.returncode, done.stdout + done.stderr) == (0, "")
