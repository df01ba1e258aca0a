"""The desk and the threads beside the loop: answers reach whoever asked; nothing happens once it was given up."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator

import pytest

from sfd_stream.service.beside import Beside
from sfd_stream.service.desk import Desk, DeskClosedError


@pytest.fixture
def beside() -> Iterator[Beside]:
    threads = Beside(4, "test")
    yield threads
    threads.shutdown(wait=True)


def serve_until(desk: Desk, condition: threading.Event) -> None:
    while not condition.wait(0.001):
        desk.serve()


def test_questions_are_answered_by_the_one_who_serves(beside: Beside) -> None:
    desk, done = Desk(), threading.Event()
    asked = [beside.submit(desk.ask, threading.current_thread, threading.Event()) for _ in range(4)]
    asked[-1].add_done_callback(lambda _: done.set())
    serve_until(desk, done)
    assert {found.result(5) for found in asked} == {threading.current_thread()}


def test_what_a_question_raises_is_the_askers_even_a_timeout(beside: Beside) -> None:
    desk, done = Desk(), threading.Event()

    def question() -> None:
        raise TimeoutError("the broker's")

    asked = beside.submit(desk.ask, question, threading.Event())
    asked.add_done_callback(lambda _: done.set())
    serve_until(desk, done)
    with pytest.raises(TimeoutError, match="the broker's"):
        asked.result(5)


def test_what_was_given_up_is_never_done(beside: Beside) -> None:
    desk, abandoned, done = Desk(), threading.Event(), []
    asked = beside.submit(desk.ask, lambda: done.append(1), abandoned)
    abandoned.set()
    with pytest.raises(DeskClosedError):
        asked.result(5)
    desk.serve()
    assert not done


def test_nobody_waits_at_a_closed_desk(beside: Beside) -> None:
    desk = Desk()
    desk.close()
    with pytest.raises(DeskClosedError):
        beside.submit(desk.ask, lambda: 1, threading.Event()).result(5)


def test_no_more_jobs_run_at_a_time_than_there_are_threads() -> None:
    beside, gate, running, most = Beside(2, "test"), threading.Event(), [0], [0]
    lock = threading.Lock()

    def job() -> None:
        with lock:
            running[0] += 1
            most[0] = max(most[0], running[0])
        gate.wait(5)
        with lock:
            running[0] -= 1

    jobs = [beside.submit(job) for _ in range(6)]
    time.sleep(0.05)
    gate.set()
    for found in jobs:
        found.result(5)
    assert most[0] == 2
    beside.shutdown(wait=True)


def test_a_job_s_error_is_its_future_s_and_the_thread_goes_on(beside: Beside) -> None:
    with pytest.raises(SystemExit):
        beside.submit(exit, 3).result(5)
    assert list(beside.map(lambda x: x + 1, range(10))) == list(range(1, 11))


def test_jobs_not_begun_can_be_cancelled_and_a_hanging_one_keeps_nothing_alive() -> None:
    beside, gate = Beside(1, "test"), threading.Event()
    hanging, waiting = beside.submit(gate.wait, 5), beside.submit(lambda: 1)
    beside.shutdown(wait=False, cancel_futures=True)
    assert waiting.cancelled()
    assert all(thread.daemon for thread in beside._threads)
    gate.set()
    assert hanging.result(5)
