"""`run --workers N`: real processes on a real broker."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.support.slow import smoke_first
from tests.system.checkpoints.conftest import Site, messages

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from tests.support.kafka import Broker

DEADLINE_S = 90.0


class Program:
    """`sfd-stream run`, its log in a file; ended at the test's end, with its children."""

    def __init__(self, site: Site, *arguments: str) -> None:
        self.site = site
        self.log = site.folder / "log"
        self.out = site.folder / "out"
        command = [sys.executable, "-m", "sfd_stream.cli", "run", "--config", str(site.file), *arguments]
        with self.log.open("wb") as log, self.out.open("wb") as out:
            self.process = subprocess.Popen(command, stdout=out, stderr=log, env=os.environ | {"OMP_NUM_THREADS": "1"})

    def lines(self) -> list[dict[str, object]]:
        found = []
        for line in self.log.read_text().splitlines():
            with contextlib.suppress(ValueError):
                found.append(json.loads(line))
        return found

    def urls(self) -> list[str]:
        return [str(line["url"]) for line in self.lines() if "url" in line]

    def children(self) -> dict[int, int]:
        """Worker's number -> its newest pid."""
        started = [line for line in self.lines() if line.get("event") == "worker started"]
        return {int(str(line["worker"])): int(str(line["pid"])) for line in started}

    def await_(self, condition: Callable[[], bool], what: str) -> None:
        deadline = time.monotonic() + DEADLINE_S
        while not condition():
            assert time.monotonic() < deadline, f"{what} did not happen:\n{self.log.read_text()}"
            assert self.process.poll() is None, f"ended before {what}:\n{self.log.read_text()}"
            time.sleep(0.05)

    def ended(self) -> int:
        try:
            code = self.process.wait(DEADLINE_S)
        except subprocess.TimeoutExpired:
            pytest.fail(f"it does not end:\n{self.log.read_text()}", pytrace=False)
        for pid in self.children().values():
            await_gone(pid, self.site)
        return code


def await_gone(pid: int, site: Site) -> None:
    """Until no process of this site has the number: a zombie has no command line any more."""
    deadline = time.monotonic() + DEADLINE_S
    while is_ours(pid, site):
        assert time.monotonic() < deadline, f"process {pid} is still there"
        time.sleep(0.05)


@pytest.fixture
def program(live: Site) -> Iterator[Callable[..., Program]]:
    made: list[Program] = []

    def start(*arguments: str) -> Program:
        made.append(Program(live, *arguments))
        return made[-1]

    yield start
    for each in made:
        for pid in each.children().values():
            if is_ours(pid, live):
                os.kill(pid, signal.SIGKILL)
        each.process.kill()
        each.process.wait(10)


def is_ours(pid: int, site: Site) -> bool:
    """Numbers are given again: by now another process may have a dead child's."""
    with contextlib.suppress(OSError):
        return str(site.file).encode() in Path(f"/proc/{pid}/cmdline").read_bytes()
    return False


@pytest.fixture
def live(tmp_path: Path, kafka: Broker) -> Site:
    """A topic of four partitions, 50 rows in each."""
    site = Site(tmp_path, topic=kafka.create_topic(partitions=4), bootstrap=kafka.bootstrap)
    site.write(log={"format": "json"}, checkpoint={"every_s": 0.5})
    for partition in range(4):
        kafka.produce(site.topic, messages(0, 50), partition=partition)
    return site


def restored(program: Program) -> dict[int, int]:
    """Partition -> the worker that restored it last."""
    found = [line for line in program.lines() if line.get("event") == "checkpoint restored"]
    return {int(str(line["partition"])): int(str(line["worker"])) for line in found}


def total_rows(site: Site) -> int:
    newest = [site.newest_or_none(partition) for partition in range(4)]
    return sum(int(found.counters.get("rows", 0)) for found in newest if found is not None)


@pytest.mark.slow
def test_until_the_end_prints_one_summary_for_all(program: Callable[..., Program]) -> None:
    run = program("--until-end", "--workers", "2", "--json")
    assert run.ended() == 0, run.log.read_text()
    summary = json.loads(run.out.read_text())
    assert {p: part["rows"] for p, part in summary["partitions"].items()} == dict.fromkeys("0123", 50)
    assert summary["total"]["rows"] == 200
    assert summary["total"]["rows_per_s"] > 0
    assert set(run.children()) == {1, 2}


def test_a_killed_worker_is_replaced_and_nothing_is_lost(
    program: Callable[..., Program], live: Site, kafka: Broker
) -> None:
    run = program("--workers", "2")
    run.await_(lambda: len(restored(run)) == 4, "all partitions restored")
    killed = restored(run)[0]
    before = run.children()[killed]
    os.kill(before, signal.SIGKILL)
    run.await_(lambda: run.children()[killed] != before, "a restart")
    for partition in range(4):
        kafka.produce(live.topic, messages(50, 60), partition=partition)
    run.await_(lambda: total_rows(live) == 240, "all rows in checkpoints")
    run.process.send_signal(signal.SIGTERM)
    assert run.ended() == 0, run.log.read_text()
    assert total_rows(live) == 240


@pytest.mark.slow
@pytest.mark.parametrize("number", smoke_first([signal.SIGTERM, signal.SIGINT]))
def test_a_signal_ends_all_in_good_order(
    program: Callable[..., Program], live: Site, kafka: Broker, number: signal.Signals
) -> None:
    run = program("--workers", "2")
    run.await_(lambda: total_rows(live) == 200, "all rows in checkpoints")
    for partition in range(4):
        kafka.produce(live.topic, messages(50, 60), partition=partition)
    run.process.send_signal(number)  # some of these are read by now, or none: both are fine
    assert run.ended() == 0, run.log.read_text()
    assert sum(line.get("event") == "worker ended" for line in run.lines()) == 2
    again = program("--until-end", "--workers", "2")
    assert again.ended() == 0, again.log.read_text()
    assert total_rows(live) == 240


@pytest.mark.slow
def test_a_second_signal_ends_all_at_once(program: Callable[..., Program]) -> None:
    run = program("--workers", "2")
    run.await_(lambda: len(restored(run)) == 4, "all partitions restored")
    for pid in run.children().values():
        os.kill(pid, signal.SIGSTOP)  # so that they can't hear the first
    run.process.send_signal(signal.SIGTERM)
    run.await_(lambda: any("stopping" in str(line.get("event")) for line in run.lines()), "the first signal")
    run.process.send_signal(signal.SIGTERM)
    assert run.ended() == 128 + signal.SIGTERM


@pytest.mark.slow
def test_a_worker_that_refuses_ends_all_with_its_code(program: Callable[..., Program], live: Site) -> None:
    assert live.run("checkpoint", "reset", "2", "--to", "9999", "--yes") == 0
    run = program("--workers", "2")
    assert run.ended() == 3, run.log.read_text()
    assert f"checkpoint rollback {live.topic}/2" in run.log.read_text()


def test_wrong_settings_end_it_before_any_worker_is_started(program: Callable[..., Program]) -> None:
    run = program("--workers", "2", "--set", "sketch.ell=0")
    assert run.ended() == 2
    assert run.children() == {}


@pytest.mark.slow
def test_workers_stop_in_good_order_when_the_supervisor_is_killed(program: Callable[..., Program], live: Site) -> None:
    run = program("--workers", "2")
    run.await_(lambda: total_rows(live) == 200, "all rows in checkpoints")
    run.process.kill()
    run.ended()
    assert "stopping" in run.log.read_text()


@pytest.mark.slow
def test_every_line_of_a_worker_bears_its_number(program: Callable[..., Program]) -> None:
    run = program("--until-end", "--workers", "2", "--set", "log.level=debug")
    assert run.ended() == 0
    of_workers = [line for line in run.lines() if line.get("event") in {"checkpoint restored", "checkpoint"}]
    assert of_workers
    assert {line["worker"] for line in of_workers} <= {1, 2}


@pytest.mark.slow
def test_a_reset_reaches_a_running_worker(program: Callable[..., Program], live: Site, kafka: Broker) -> None:
    """It is fenced at its next checkpoint, and goes on from the reset without a restart."""
    run = program()
    run.await_(lambda: total_rows(live) == 200, "all rows in checkpoints")
    assert live.run("checkpoint", "reset", "1", "--to", "20", "--yes") == 0
    assert total_rows(live) == 150
    kafka.produce(live.topic, messages(50, 60), partition=1)
    run.await_(lambda: total_rows(live) == 190, "offsets 20 to 59 counted again")
    run.process.send_signal(signal.SIGTERM)
    assert run.ended() == 0, run.log.read_text()


@pytest.mark.slow
@pytest.mark.parametrize("workers", smoke_first(["2", "1"]))
def test_every_line_of_json_names_worker_group_and_topic(
    program: Callable[..., Program], live: Site, workers: str
) -> None:
    run = program("--until-end", "--workers", workers)
    assert run.ended() == 0, run.log.read_text()
    lines = run.lines()
    assert len(lines) > 4
    assert {(line.get("group"), line.get("topic")) for line in lines} == {(live.group, live.topic)}
    named = [line for line in lines if workers == "1" or "url" not in line]  # that is the supervisor's
    assert {line.get("worker") for line in named} == set(range(1, int(workers) + 1))
