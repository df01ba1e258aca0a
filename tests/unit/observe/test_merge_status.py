"""The merge service's port: declared is exported, alive is a loop that turns, ready is all parts read."""

from __future__ import annotations

import http.client
import subprocess
from concurrent.futures import Executor, Future
from typing import Any

import pytest
import structlog
from prometheus_client.parser import text_string_to_metric_families

from sfd_stream.merge import MergePlan, Merger
from sfd_stream.observe.merge_status import MergeWatch
from sfd_stream.observe.metrics import OF_ANY_PROCESS, WORKER_LABELS, declared
from sfd_stream.observe.routes import service_routes
from sfd_stream.observe.server import Port, listening
from sfd_stream.reader.merged import MergedSketch, merge
from tests.support.tools import need
from tests.support.watched import Clock
from tests.unit.reader.made import rows_of, sketch_of, snapshot


class Stage:
    """A watch that is told what a merger would tell it; time is the test's."""

    def __init__(self) -> None:
        self.clock, self.wall = Clock(), Clock(2_000.0)
        self.watch = MergeWatch("g", "world", self.clock, self.wall)

    def publish(self) -> MergedSketch:
        """Two of three partitions, the older one from 1,000 s on the wall clock."""
        parts = [snapshot(sketch_of(rows_of(p)), p, partitions=3, made_at_s=1_000.0 + p) for p in (0, 2)]
        merged = merge(parts, self.wall())
        self.watch.merged(0.2)
        self.watch.acknowledged()
        self.watch.published(merged, 4_321)
        return merged

    def samples(self) -> dict[tuple[str, tuple[tuple[str, str], ...]], float]:
        return {
            (
                sample.name,
                tuple(sorted((k, v) for k, v in sample.labels.items() if k not in WORKER_LABELS)),
            ): sample.value
            for family in text_string_to_metric_families(self.watch.exposition().decode())
            for sample in family.samples
        }

    def ask(self, path: str) -> tuple[int, str]:
        port = Port(listening("127.0.0.1", 0), service_routes(self.watch, stuck_after_s=60.0))
        port.start()
        connection = http.client.HTTPConnection(port.host, port.number, timeout=10)
        try:
            connection.request("GET", path)
            answer = connection.getresponse()
            return answer.status, answer.read().decode()
        finally:
            connection.close()
            port.close()


def test_every_declared_metric_is_exported_with_its_labels_and_nothing_else_is() -> None:
    stage = Stage()
    stage.publish()
    found = {(name, tuple(k for k, _ in labels if k != "le")) for name, labels in stage.samples()}
    exported = (*declared("merge"), *OF_ANY_PROCESS)
    assert found == {(name, tuple(sorted(metric.labels))) for metric in exported for name in metric.series}


def test_series_are_told_from_a_workers_by_their_labels() -> None:
    families = text_string_to_metric_families(Stage().watch.exposition().decode())
    who = {tuple(sample.labels[label] for label in WORKER_LABELS) for family in families for sample in family.samples}
    assert who == {("merge", "g", "world")}


def test_values_are_those_of_the_newest_merge() -> None:
    stage = Stage()
    merged = stage.publish()
    stage.watch.failed("fetch")
    stage.clock.now += 7.0
    found = stage.samples()
    assert found["sfd_merge_parts", (("state", "held"),)] == 2
    assert found["sfd_merge_parts", (("state", "missing"),)] == 1
    assert found["sfd_merge_rows", ()] == merged.rows == 80
    assert found["sfd_merge_oldest_part_seconds", ()] == 1_000.0
    assert found["sfd_merge_failure_probability_ratio", ()] == merged.failure_probability
    assert found["sfd_merge_age_seconds", ()] == 7.0
    assert found["sfd_merge_bytes", ()] == 4_321
    assert found["sfd_merge_failures_total", (("kind", "fetch"),)] == 1
    assert found["sfd_merge_failures_total", (("kind", "publish"),)] == 0


def test_a_loop_that_does_not_turn_is_not_alive() -> None:
    stage = Stage()
    assert stage.ask("/healthz") == (200, "ok\n")
    stage.clock.now += 61.0
    assert stage.ask("/healthz") == (503, "the loop has not turned for 61 s\n")
    stage.watch.alive()
    assert stage.ask("/healthz")[0] == 200


def test_it_is_ready_once_all_that_was_there_is_read() -> None:
    stage = Stage()
    assert stage.ask("/readyz") == (503, "reading the existing snapshots\n")
    stage.watch.started()
    assert stage.ask("/readyz") == (200, "waiting for a first snapshot\n")
    stage.publish()
    assert stage.ask("/readyz") == (200, "merging 2 of 3 partitions\n")


class Slow(Executor):
    """Done only once the merger has been alive three times while it waited."""

    def __init__(self, watch: MergeWatch) -> None:
        self.alive = 0
        self.future: Future[Any] = Future()
        watch.alive = self.count  # type: ignore[method-assign]

    def submit(self, *_: Any, **__: Any) -> Future[Any]:
        return self.future

    def count(self) -> None:
        self.alive += 1
        if self.alive == 3:
            self.future.set_exception(TimeoutError("by the work itself"))


def test_a_merge_that_takes_long_is_no_stand_still(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sfd_stream.merge.SLICE_S", 0.001)
    stage = Stage()
    slow = Slow(stage.watch)
    plan = MergePlan("g", "world", every_s=1.0, republish_s=600.0)
    nobody: Any = None
    around = {"clock": stage.clock, "wall_clock": stage.wall, "log": structlog.get_logger()}
    merger = Merger(plan, [], nobody, nobody, slow, stage.watch, **around)
    with pytest.raises(TimeoutError, match="by the work itself"):
        merger._merged()
    assert slow.alive == 3


def test_promtool_finds_nothing_to_say() -> None:
    stage = Stage()
    stage.publish()
    done = subprocess.run(
        [need("promtool"), "check", "metrics"], input=stage.watch.exposition().decode(), check=False,
        capture_output=True, text=True,
    )  # fmt: skip
    assert (done.returncode, done.stdout + done.stderr) == (0, "")
