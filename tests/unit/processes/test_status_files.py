"""One port for the workers of `run --workers N`: each writes files; the supervisor serves them and sees who is down."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from prometheus_client.parser import text_string_to_metric_families

from sfd_stream.observe.logs import get_logger
from sfd_stream.observe.routes import SHARED_S
from sfd_stream.observe.server import Port, listening
from sfd_stream.processes import status_files
from sfd_stream.processes.status_files import FRESH_S, WorkerFiles, WorkerStatuses, merged, remove, write, written
from tests.support.watched import Clock, Stage
from tests.system.runs import wait_until
from tests.unit.observe.test_server import ask


@contextmanager
def served(folder: Path, stages: dict[str, Stage], clock: Clock, missing: tuple[str, ...] = ()) -> Iterator[Port]:
    """The port of a supervisor whose workers have written their files now."""
    folders = {name: folder / name for name in [*stages, *missing]}
    for name, stage in stages.items():
        write(folders[name], stage.watch, clock.now)
    workers = WorkerStatuses(folders, {"group": 'g"1', "topic": "rows"}, 60.0, clock)
    port = Port(listening("127.0.0.1", 0), workers.routes())
    port.start()
    try:
        yield port
    finally:
        port.close()


@pytest.fixture
def stages() -> dict[str, Stage]:
    found = {name: Stage(partitions=1, worker=name) for name in ("1", "2")}
    for number, stage in enumerate(found.values(), start=1):
        stage.feed(0, 10 * number)
        stage.tick()
    return found


def test_one_scrape_has_the_series_of_all_workers_each_family_once(tmp_path: Path, stages: dict[str, Stage]) -> None:
    with served(tmp_path, stages, Clock()) as port:
        text = ask(port, "/metrics")[2].decode()
    families = list(text_string_to_metric_families(text))
    assert len({family.name for family in families}) == len(families)
    [rows] = [family for family in families if family.name == "sfd_rows"]
    assert {sample.labels["worker"]: sample.value for sample in rows.samples} == {"1": 10, "2": 20}
    assert text.count("# TYPE sfd_rows_total") == 1


def test_the_status_has_all_workers(tmp_path: Path, stages: dict[str, Stage]) -> None:
    with served(tmp_path, stages, Clock()) as port:
        workers = json.loads(ask(port, "/status.json")[2])["workers"]
        assert ask(port, "/")[2].startswith(b"<!doctype html>")
    assert {worker["worker"]: worker["rows"] for worker in workers} == {"1": 10, "2": 20}


def test_two_workers_with_partitions_are_not_merged_and_the_status_says_where_to_look(
    tmp_path: Path, stages: dict[str, Stage]
) -> None:
    with served(tmp_path, stages, Clock()) as port:
        status = json.loads(ask(port, "/status.json")[2])
    assert "sfd-stream watch" in status["unmerged"]
    assert "merged" not in status
    with served(tmp_path, {"1": stages["1"]}, Clock()) as port:
        assert "unmerged" not in json.loads(ask(port, "/status.json")[2]), "one worker has everything"


def test_health_and_readiness_are_those_of_all(tmp_path: Path, stages: dict[str, Stage]) -> None:
    with served(tmp_path, stages, Clock()) as port:
        assert (ask(port, "/healthz")[0], ask(port, "/readyz")[0]) == (200, 200)
    stages["2"].clock.now += 100
    stages["1"].put(0, "claiming")
    stages["1"].tick()
    with served(tmp_path, stages, Clock()) as port:
        assert ask(port, "/healthz")[::2] == (503, b"worker 2: the loop has not turned for 100 s\n")
        assert ask(port, "/readyz")[::2] == (503, b"worker 1: restoring partition 0\n")


def test_a_worker_that_has_not_written_is_down_not_ready_and_after_a_while_not_healthy(
    tmp_path: Path, stages: dict[str, Stage]
) -> None:
    clock = Clock()
    with served(tmp_path, stages, clock, missing=("3",)) as port:
        text = ask(port, "/metrics")[2].decode()
        assert ask(port, "/readyz")[::2] == (503, b"worker 3 is down\n")
        assert ask(port, "/healthz")[0] == 200, "the supervisor starts it"
        status = json.loads(ask(port, "/status.json")[2])
        assert (len(status["workers"]), status["down"]) == (2, ["3"])
        clock.now += 61
        time.sleep(SHARED_S)  # an answer is shared for this long
        assert b"worker 3 does not start" in ask(port, "/healthz")[2]
    [up] = [family for family in text_string_to_metric_families(text) if family.name == "sfd_worker_up"]
    assert {sample.labels["worker"]: sample.value for sample in up.samples} == {"1": 1, "2": 1, "3": 0}
    assert {sample.labels["group"] for sample in up.samples if sample.labels["worker"] == "3"} == {'g"1'}


def test_a_worker_whose_files_are_old_is_down_and_its_loop_counts_as_idle_since_then(
    tmp_path: Path, stages: dict[str, Stage]
) -> None:
    """A process that is stopped writes no more; the last thing that it wrote is that it was well."""
    clock = Clock()
    with served(tmp_path, stages, clock) as port:
        clock.now += 61
        write(tmp_path / "2", stages["2"].watch, clock.now)
        assert ask(port, "/readyz")[::2] == (503, b"worker 1 is down\n")
        assert ask(port, "/healthz")[::2] == (503, b"worker 1: the loop has not turned for 61 s\n")
        assert json.loads(ask(port, "/status.json")[2])["down"] == ["1"]


def test_files_are_old_after_a_few_missed_turns_not_after_one(tmp_path: Path, stages: dict[str, Stage]) -> None:
    write(tmp_path / "1", stages["1"].watch, 100.0)
    found = WorkerFiles.read(tmp_path / "1", 100.0 + 2 * status_files.WRITE_EVERY_S)
    assert found is not None
    assert found.age_s < FRESH_S
    assert found.status["loop_idle_s"] == pytest.approx(stages["1"].watch.idle_s + found.age_s)


def test_a_restarted_worker_does_not_inherit_the_files_of_the_one_before(
    tmp_path: Path, stages: dict[str, Stage]
) -> None:
    write(tmp_path / "1", stages["1"].watch, 0.0)
    remove(tmp_path / "1")
    assert WorkerFiles.read(tmp_path / "1", 0.0) is None
    remove(tmp_path / "never started")


def test_files_are_written_again_and_again_also_after_a_failure(
    tmp_path: Path, stages: dict[str, Stage], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(status_files, "WRITE_EVERY_S", 0.01)
    folder, clock = tmp_path / "not yet" / "1", Clock()
    with written(folder, stages["1"].watch, clock, get_logger()):
        time.sleep(0.05)  # the folder can't be created: its parent does not exist
        folder.parent.mkdir()
        wait_until(lambda: WorkerFiles.read(folder, clock.now) is not None, "a first status")
        clock.now += 50
        wait_until(lambda: WorkerFiles.read(folder, clock.now).age_s == 0.0, "a newer one")  # type: ignore[union-attr]
    clock.now += 50
    time.sleep(0.05)
    assert WorkerFiles.read(folder, clock.now).age_s == 50, "it ended with the block"  # type: ignore[union-attr]


def test_merging_one_exposition_changes_nothing() -> None:
    text = "# HELP a b\n# TYPE a gauge\na 1\n# HELP c d\n# TYPE c counter\nc 2\n"
    assert merged([text]) == text.encode()
