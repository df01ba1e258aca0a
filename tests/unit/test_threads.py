"""Threads never keep the process alive, and its exit waits for computations but not for requests."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from concurrent.futures import CancelledError
from typing import Any

import pytest

from sfd_stream import threads as module
from sfd_stream.threads import Computing, DaemonExecutor, on_thread


@pytest.fixture
def pool() -> Iterator[DaemonExecutor]:
    threads = DaemonExecutor(4, "test")
    yield threads
    threads.shutdown(wait=True)


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


def test_after_the_end_nothing_begins_to_compute() -> None:
    computing = Computing()
    computing.close()
    with pytest.raises(BaseException, match="ended"), computing():
        pytest.fail("it computes")


def test_a_call_of_its_own_thread_gives_its_result_or_its_error() -> None:
    assert on_thread("one", lambda *parts: [threading.current_thread().name, *parts], 1, 2).result(10) == ["one", 1, 2]
    with pytest.raises(KeyError, match="missing"):
        on_thread("two", {}.__getitem__, "missing").result(10)


def test_the_end_waits_for_what_computes() -> None:
    computing, began, gate = Computing(), threading.Event(), threading.Event()

    def compute() -> str:
        began.set()
        gate.wait(10)
        return "computed"

    found = on_thread("compute", computing.run, compute)
    assert began.wait(10)
    closing = on_thread("close", computing.close)
    with pytest.raises(TimeoutError):
        closing.result(0.05)
    gate.set()
    closing.result(10)
    assert found.result(10) == "computed"


def test_the_end_does_not_wait_for_a_request_and_nothing_computes_after_it() -> None:
    computing, reached = Computing(), list[str]()

    def compute() -> None:
        with computing.requesting():
            on_thread("close", computing.close).result(10)
            reached.append("the answer")
        reached.append("a computation with it")

    with pytest.raises(CancelledError, match="ended"):
        computing.run(compute)
    assert reached == ["the answer"]
