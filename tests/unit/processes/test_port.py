"""One port for several workers: each labelled, and one that is away is told, not waited for."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import pytest
from prometheus_client.parser import text_string_to_metric_families

from sfd_stream.observe.routes import SHARED_S, routes_of
from sfd_stream.observe.server import Port, listening, listening_unix
from sfd_stream.observe.spectra import TOO_LARGE
from sfd_stream.processes.port import Gathering, merged
from sfd_stream.processes.spectrum import routes_within
from sfd_stream.sketch.sketch import Sketch
from tests.support.watched import WORDS, Clock, Stage
from tests.system.runs import wait_until
from tests.unit.observe.test_server import ask


@contextmanager
def crew(folder: Path, stages: dict[str, Stage], clock: Clock, missing: tuple[str, ...] = ()) -> Iterator[Port]:
    with ExitStack() as stack:
        sockets = {name: folder / name for name in [*stages, *missing]}
        for name, stage in stages.items():
            routes = {**routes_of(stage.watch, 60.0), **routes_within(stage.watch)}
            own = Port(listening_unix(sockets[name]), routes)
            own.start()
            stack.callback(own.close)
        gathering = Gathering(sockets, {"group": 'g"1', "topic": "rows"}, 60.0, clock)
        port = Port(listening("127.0.0.1", 0), gathering.routes())
        port.start()
        stack.callback(port.close)
        yield port


@pytest.fixture
def stages() -> dict[str, Stage]:
    found = {name: Stage(partitions=1, worker=name) for name in ("1", "2")}
    for number, stage in enumerate(found.values(), start=1):
        stage.feed(0, 10 * number)
        stage.tick()
    return found


def test_one_scrape_has_the_series_of_all_workers_each_family_once(tmp_path: Path, stages: dict[str, Stage]) -> None:
    with crew(tmp_path, stages, Clock()) as port:
        text = ask(port, "/metrics")[2].decode()
    families = list(text_string_to_metric_families(text))
    assert len({family.name for family in families}) == len(families)
    [rows] = [family for family in families if family.name == "sfd_rows"]
    assert {sample.labels["worker"]: sample.value for sample in rows.samples} == {"1": 10, "2": 20}
    assert text.count("# TYPE sfd_rows_total") == 1


def test_the_status_has_all_workers(tmp_path: Path, stages: dict[str, Stage]) -> None:
    with crew(tmp_path, stages, Clock()) as port:
        workers = json.loads(ask(port, "/status.json")[2])["workers"]
        assert ask(port, "/")[2].startswith(b"<!doctype html>")
    assert {worker["worker"]: worker["rows"] for worker in workers} == {"1": 10, "2": 20}


def until_told(port: Port, clock: Clock, key: str) -> Any:
    """What the status says once it does; its answers are shared for a while."""
    found: dict[str, Any] = {}

    def told() -> bool:
        clock.now += 60
        found.update(json.loads(ask(port, "/status.json")[2]))
        return key in found

    wait_until(told, key)
    return found[key]


def test_the_status_has_one_spectrum_of_what_all_workers_hold(tmp_path: Path) -> None:
    clock, firsts = Clock(), {"1": 0, "2": 10}
    stages = {name: Stage(partitions=2, worker=name, first=first) for name, first in firsts.items()}
    for stage in stages.values():
        for partition in stage.states:
            stage.feed(partition, 100 + partition)
    with crew(tmp_path, stages, clock) as port:
        for stage in stages.values():
            stage.tick(5.0)
        assert until_told(port, clock, "unmerged") == "worker 1: not every partition was looked at yet"
        for stage in stages.values():
            for _ in range(4):
                stage.tick(5.0)
        merged = until_told(port, clock, "merged")
        whole = Sketch.merge_all(state.sketch() for stage in stages.values() for state in stage.states.values())
        assert merged["rows"] == 422
        assert merged["singular_values"] == pytest.approx(
            whole.singular_values()[: len(merged["singular_values"])], rel=1e-5
        )
        strongest = merged["directions"][0][0]
        assert strongest["name"] == dict(enumerate(WORDS)).get(strongest["column"])


def test_a_partition_that_two_workers_show_is_not_counted_twice(tmp_path: Path, stages: dict[str, Stage]) -> None:
    clock = Clock()
    with crew(tmp_path, stages, clock) as port:
        assert until_told(port, clock, "unmerged") == "partitions are moving from one worker to another"


def test_sketches_too_large_to_be_merged_for_a_page_are_not_asked_for(
    tmp_path: Path, stages: dict[str, Stage], monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = Clock()
    monkeypatch.setattr("sfd_stream.processes.spectrum.MERGE_BYTES_MAX", 1_000)
    with crew(tmp_path, stages, clock) as port:
        assert until_told(port, clock, "unmerged") == TOO_LARGE


def test_health_and_readiness_are_those_of_all(tmp_path: Path, stages: dict[str, Stage]) -> None:
    with crew(tmp_path, stages, Clock()) as port:
        assert (ask(port, "/healthz")[0], ask(port, "/readyz")[0]) == (200, 200)
    stages["2"].clock.now += 100
    stages["1"].put(0, "claiming")
    stages["1"].tick()
    with crew(tmp_path, stages, Clock()) as port:
        assert ask(port, "/healthz")[::2] == (503, b"worker 2: the loop has not turned for 100 s\n")
        assert ask(port, "/readyz")[::2] == (503, b"worker 1: restoring partition 0\n")


def test_a_worker_that_is_away_is_down_not_ready_and_after_a_while_not_healthy(
    tmp_path: Path, stages: dict[str, Stage]
) -> None:
    clock = Clock()
    with crew(tmp_path, stages, clock, missing=("3",)) as port:
        text = ask(port, "/metrics")[2].decode()
        assert ask(port, "/readyz")[::2] == (503, b"worker 3 is not up\n")
        assert ask(port, "/healthz")[0] == 200, "its supervisor starts it again"
        status = json.loads(ask(port, "/status.json")[2])
        assert (len(status["workers"]), status["down"]) == (2, ["3"])
    [up] = [family for family in text_string_to_metric_families(text) if family.name == "sfd_worker_up"]
    assert {sample.labels["worker"]: sample.value for sample in up.samples} == {"1": 1, "2": 1, "3": 0}
    clock = Clock()
    with crew(tmp_path, stages, clock, missing=("3",)) as port:
        clock.now += 3600
        assert ask(port, "/healthz")[0] == 200, "nobody has asked before: who knows since when"
        clock.now += 61
        time.sleep(SHARED_S)  # an answer is good for so long
        assert ask(port, "/healthz")[::2] == (503, b"worker 3 does not answer\n")


def test_a_socket_left_by_one_that_was_killed_is_taken_over(tmp_path: Path) -> None:
    listening_unix(tmp_path / "1").close()
    listening_unix(tmp_path / "1").close()


def test_merging_one_exposition_changes_nothing() -> None:
    text = "# HELP a b\n# TYPE a gauge\na 1\n# HELP c d\n# TYPE c counter\nc 2\n"
    assert merged([text]) == text.encode()
