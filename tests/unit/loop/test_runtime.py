"""The runtime: threads that never keep the process alive, and a loop that is woken by answers."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from typing import Any

import pytest

from sfd_stream import threads as module
from sfd_stream.loop.runtime import Runtime
from sfd_stream.threads import DaemonExecutor


@pytest.fixture
def pool() -> Iterator[DaemonExecutor]:
    threads = DaemonExecutor(4, "test")
    yield threads
    threads.shutdown(wait=True)


def test_an_answer_that_came_before_the_wait_ends_it_at_once() -> None:
    """Else the loop would sleep over it."""
    runtime = Runtime(None)  # type: ignore[arg-type]
    runtime.wake()
    began = time.monotonic()
    runtime.wait(30.0)
    assert time.monotonic() - began < 10
    assert not runtime._woken.is_set(), "the next wait is a wait again"


def test_no_more_jobs_run_at_a_time_than_there_are_threads() -> None:
    pool, gate, running, most = DaemonExecutor(2, "test"), threading.Event(), [0], [0]
    lock = threading.Lock()

    def job() -> None:
        with lock:
            running[0] += 1
            most[0] = max(most[0], running[0])
        gate.wait(5)
        with lock:
            running[0] -= 1

    jobs = [pool.submit(job) for _ in range(6)]
    time.sleep(0.05)
    gate.set()
    for found in jobs:
        found.result(5)
    assert most[0] == 2
    pool.shutdown(wait=True)


def test_a_job_s_error_is_its_future_s_and_the_thread_goes_on(pool: DaemonExecutor) -> None:
    with pytest.raises(SystemExit):
        pool.submit(exit, 3).result(5)
    assert list(pool.map(lambda x: x + 1, range(10))) == list(range(1, 11))


def test_jobs_not_begun_can_be_cancelled_and_a_hanging_one_keeps_nothing_alive() -> None:
    pool, gate = DaemonExecutor(1, "test"), threading.Event()
    hanging, waiting = pool.submit(gate.wait, 5), pool.submit(lambda: 1)
    pool.shutdown(wait=False, cancel_futures=True)
    assert waiting.cancelled()
    assert all(thread.daemon for thread in pool._threads)
    gate.set()
    assert hanging.result(5)


def test_jobs_that_two_threads_submit_at_once_run_one_at_a_time_on_one_thread(monkeypatch: pytest.MonkeyPatch) -> None:
    """Two deliveries at once would be two transactions of one producer."""
    real, running, most = threading.Thread, [0], [0]
    lock = threading.Lock()

    def slow_to_make(**given: Any) -> threading.Thread:
        time.sleep(0.1)
        return real(**given)

    monkeypatch.setattr(module.threading, "Thread", slow_to_make)
    pool = DaemonExecutor(1, "one")

    def job() -> None:
        with lock:
            running[0] += 1
            most[0] = max(most[0], running[0])
        time.sleep(0.1)
        with lock:
            running[0] -= 1

    futures: list[Any] = []
    submitting = [real(target=lambda: futures.append(pool.submit(job))) for _ in range(4)]
    for thread in submitting:
        thread.start()
    for thread in submitting:
        thread.join()
    for future in futures:
        future.result(10)
    assert most == [1]
