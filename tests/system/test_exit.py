"""At exit no thread computes any more: one inside BLAS while the process ends may crash it with SIGSEGV."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any

import pytest
import structlog

from sfd_stream import merge
from sfd_stream.merge import MergePlan, Merger
from sfd_stream.observe.merge_status import MergeWatch
from sfd_stream.state.partition import PartitionState
from sfd_stream.threads import Computing, DaemonExecutor
from sfd_stream.worker import checkpoint_chain
from tests.support.kafka import Broker
from tests.support.slow import smoke_first
from tests.system.fakes import rows, worker_on
from tests.system.runs import Rows, wait_until

COMPUTES_S = 1.0


class Slow:
    """A computation that takes its time. `running` is set while it runs; `finished` counts those that ended."""

    def __init__(self, real: Any = lambda *_: None) -> None:
        self.running = threading.Event()
        self.finished = 0
        self._real = real

    def __call__(self, *args: Any, **named: Any) -> Any:
        self.running.set()
        time.sleep(COMPUTES_S)
        found = self._real(*args, **named)
        self.finished += 1
        self.running.clear()
        return found


def run_until(worker: Any, slow: Slow) -> None:
    """The worker is stopped as soon as the computation runs, and waits for no last checkpoint."""
    deadline = time.monotonic() + 20
    worker.run(lambda: worker.stop() if slow.running.is_set() or time.monotonic() > deadline else None)


def test_a_batch_that_is_being_sketched_is_finished_before_the_worker_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    slow = Slow()
    worker, _, _ = worker_on({0: rows(100)}, until_end=False, revoke_budget_s=0.05)
    monkeypatch.setattr(PartitionState, "apply", slow)
    run_until(worker, slow)
    assert slow.finished > 0
    assert not slow.running.is_set()


def test_a_sample_of_the_spectrum_is_finished_before_the_worker_ends() -> None:
    slow = Slow()
    worker, _, _ = worker_on({0: rows(100)}, until_end=False)
    worker.watch.sampler._compute = worker.runtime.compute
    worker.watch.sampler._compute(slow)
    run_until(worker, slow)
    assert slow.finished == 1


@pytest.mark.parametrize("step", ["encode", "restore"])
def test_a_checkpoint_that_computes_is_awaited_before_the_worker_ends(
    monkeypatch: pytest.MonkeyPatch, step: str
) -> None:
    slow = Slow(getattr(checkpoint_chain, step))
    monkeypatch.setattr(checkpoint_chain, step, slow)
    worker, _, _ = worker_on({0: rows(100)}, until_end=False, revoke_budget_s=0.05)
    run_until(worker, slow)
    assert slow.finished > 0
    assert not slow.running.is_set()


def test_a_store_request_that_hangs_is_abandoned() -> None:
    gate = threading.Event()
    worker, _, _ = worker_on(
        {0: rows(100)},
        until_end=False,
        revoke_budget_s=0.05,
        reach=lambda point: gate.wait(60) and None if point == "before-Put" else None,
    )

    def stop() -> None:
        if worker.progress.rows == 100:
            worker.stop()

    ending = threading.Thread(target=worker.run, args=(stop,), daemon=True)
    ending.start()
    ending.join(30)
    assert not ending.is_alive()
    gate.set()


class Parts:
    """The part of a SnapshotReader that a merger uses."""

    topic, max_total_bytes, ids = "sketches", 2**30, {}

    def refresh(self, _: Any) -> bool:
        return True

    def wait(self, _: float) -> bool:
        return False

    def held(self) -> list[str]:
        return ["a snapshot"]


def end_merger(parts: Any, when: threading.Event, monkeypatch: pytest.MonkeyPatch, computing: Computing) -> None:
    """Runs a merger of these parts, and stops it once `when` is set."""
    monkeypatch.setattr(merge, "SLICE_S", 0.01)
    watch = MergeWatch("g", "world", time.monotonic, time.time)
    plan = MergePlan("g", "world", every_s=0.01, republish_s=600.0)
    around: dict[str, Any] = {"clock": time.monotonic, "wall_clock": time.time, "log": structlog.get_logger()}
    nobody: Any = None
    ending = Merger(plan, [parts], parts, nobody, DaemonExecutor(1, "merge"), watch, computing=computing, **around)
    monkeypatch.setattr(watch, "alive", lambda: ending.stop() if when.is_set() else None)
    ending.run()


def test_a_merge_is_finished_before_the_merger_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    slow = Slow(lambda *_, **__: None)
    monkeypatch.setattr(merge, "merge", slow)
    end_merger(Parts(), slow.running, monkeypatch, Computing())
    assert slow.finished == 1


def test_snapshots_that_are_being_decoded_are_finished_before_the_merger_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    slow, parts = Slow(lambda *_, **__: []), Parts()
    monkeypatch.setattr(parts, "held", slow)
    end_merger(parts, slow.running, monkeypatch, Computing())
    assert slow.finished == 1


def test_a_merger_does_not_wait_for_a_store_that_hangs(monkeypatch: pytest.MonkeyPatch) -> None:
    asked, gate, parts, computing = threading.Event(), threading.Event(), Parts(), Computing()
    decoded: list[str] = []

    def held() -> list[str]:
        with computing.requesting():
            asked.set()
            gate.wait(60)
        decoded.append("after the end")
        return decoded

    monkeypatch.setattr(parts, "held", held)
    end_merger(parts, asked, monkeypatch, computing)
    gate.set()
    with pytest.raises(BaseException, match="ended"), computing():
        pytest.fail("it computes")
    assert decoded == []


SIGNALLED = """
import os, signal, sys
class Signals:
    def find_spec(self, name, *_):
        if name == {module!r}:
            os.kill(os.getpid(), signal.{signal})
sys.meta_path.insert(0, Signals())
from sfd_stream.cli import main
sys.argv[1:] = {arguments!r}
sys.exit(main())
"""


@pytest.mark.parametrize("number", smoke_first(["SIGTERM", "SIGINT"]))
@pytest.mark.parametrize("module", ["sfd_stream.cli.app", "confluent_kafka", "sfd_stream.worker.worker"])
def test_a_signal_while_run_is_being_imported_ends_it_with_0(tmp_path: Path, module: str, number: str) -> None:
    """`module` is imported in the first second; the signal arrives just then."""
    arguments = ["run", "--set", "kafka.bootstrap.servers=127.0.0.1:1", "--set", "kafka.group.id=g"]
    for setting in ("input.topic=rows", "sketch.d=100", f"checkpoint.url={tmp_path.as_uri()}", "http.port=0"):
        arguments += ["--set", setting]
    program = SIGNALLED.format(module=module, signal=number, arguments=arguments)
    ended = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60, check=False)
    assert ended.returncode == 0, ended.stderr


def end_while_computing(kafka: Broker, folder: Path, times: int, d: int, ell: int = 20) -> None:
    """Workers that are sent SIGTERM while they shrink all exit with 0. d is large, so that BLAS takes long."""
    topic = kafka.create_topic()
    Rows.random(4_000, d=d, nnz=100, rows_per_message=50).produce(kafka, topic)
    command = [sys.executable, "-m", "sfd_stream.cli", "run", "--set", f"kafka.bootstrap.servers={kafka.bootstrap}"]
    for setting in (
        f"input.topic={topic}", f"sketch.d={d}", f"sketch.ell={ell}", "sketch.buffer_max_bytes=200000", "http.port=0",
        f"checkpoint.url={folder.as_uri()}", "checkpoint.every_s=3600", "checkpoint.every_rows=1000000",
        "checkpoint.revoke_budget_s=0.05", "worker.batch_records=2", "log.format=json", "kafka.log_level=3",
    ):  # fmt: skip
        command += ["--set", setting]
    chance = random.Random(0)
    for number in range(times):
        log = folder / f"{number}.log"
        with log.open("wb") as out:
            process = subprocess.Popen(
                [*command, "--set", f"kafka.group.id=g{number}"], stderr=out, env={**os.environ, "OMP_NUM_THREADS": "1"}
            )
        try:
            wait_until(lambda at=log: b'"checkpoint restored"' in at.read_bytes(), "a claim")
            time.sleep(0.3 + chance.random())  # somewhere within the shrinks
            process.send_signal(signal.SIGTERM)
            assert process.wait(600) == 0, f"after {number} that exited with 0: {log.read_text()}"
        finally:
            process.kill()
            process.wait()


@pytest.mark.slow
def test_a_signal_during_computation_ends_a_worker_with_0(kafka: Broker, tmp_path: Path) -> None:
    end_while_computing(kafka, tmp_path, 2, d=2**20)


@pytest.mark.slow
@pytest.mark.timeout(3600)
def test_signals_during_computation_all_end_with_0(kafka: Broker, tmp_path: Path) -> None:
    """docs/reliability.md has the record of long runs, by this command:

    SFD_TEST_SIGNALS=200 SFD_TEST_SIGNALS_SHAPE=1048576,100 .venv/bin/pytest -m slow tests/system/test_exit.py
    """
    d, ell = map(int, os.environ.get("SFD_TEST_SIGNALS_SHAPE", "262144,20").split(","))
    end_while_computing(kafka, tmp_path, int(os.environ.get("SFD_TEST_SIGNALS", "10")), d, ell)
