"""Threads in the background: never more than were asked for."""

from __future__ import annotations

import threading
import time
from typing import Any

import pytest

from sfd_stream.service import beside as module
from sfd_stream.service.beside import Beside


def test_jobs_that_two_threads_submit_at_once_run_one_at_a_time_on_one_thread(monkeypatch: pytest.MonkeyPatch) -> None:
    """Two deliveries at once would be two transactions of one producer."""
    real, running, most = threading.Thread, [0], [0]
    lock = threading.Lock()

    def slow_to_make(**given: Any) -> threading.Thread:
        time.sleep(0.1)
        return real(**given)

    monkeypatch.setattr(module.threading, "Thread", slow_to_make)
    beside = Beside(1, "one")

    def job() -> None:
        with lock:
            running[0] += 1
            most[0] = max(most[0], running[0])
        time.sleep(0.1)
        with lock:
            running[0] -= 1

    futures: list[Any] = []
    submitting = [real(target=lambda: futures.append(beside.submit(job))) for _ in range(4)]
    for thread in submitting:
        thread.start()
    for thread in submitting:
        thread.join()
    for future in futures:
        future.result(10)
    assert most == [1]
