"""Decides which of N workers run, when a worker is restarted, and when all are done. Pure: times and codes come in.

starting ──► running ──► done            exit code 0 with --until-end
              │  ▲  └──► final           exit code 2, 3, 4 or 5: a restart would not help, so all stop
              ▼  │
             waiting                     any other: restarted, after a delay that grows with each failure
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from sfd_stream.retry import Backoff

FINAL_CODES = frozenset({2, 3, 4, 5})
"""Exit codes of permanent errors: settings, state, bad messages, refused by the broker. A restart would not help."""

UNEXPECTED = 1
CALM_CODES = frozenset({0, -15})
"""Normal exit codes after a stop: 0, or ended by SIGTERM before the worker had installed its handler."""


RESTARTS = Backoff(first_s=0.5, longest_s=30.0)
CALM_S = 60.0
"""After a run of this length, earlier failures of a worker are forgotten."""


@dataclass
class _Worker:
    """One worker, over all processes that run it in turn."""

    start_at_s: float | None = None
    """When to start it; None while it runs and after it is done."""
    started_s: float | None = None
    failures: int = 0

    @property
    def running(self) -> bool:
        return self.started_s is not None


class RestartPolicy:
    """Worker numbers start at 1. `due` lists the workers to start now; `over` is true when all have ended."""

    def __init__(self, workers: int, *, until_end: bool, backoff: Backoff, jitter: Callable[[], float]) -> None:
        assert workers >= 1
        self.stopping = False
        self.exit_code = 0
        self._workers = {number: _Worker(start_at_s=0.0) for number in range(1, workers + 1)}
        self._until_end = until_end
        self._backoff = backoff
        self._jitter = jitter

    @property
    def running(self) -> list[int]:
        return [number for number, worker in self._workers.items() if worker.running]

    @property
    def over(self) -> bool:
        """No worker runs, and none will be started."""
        return all(worker.started_s is None and worker.start_at_s is None for worker in self._workers.values())

    def due(self, now_s: float) -> list[int]:
        """The numbers of the workers to start now."""
        return [
            n for n, worker in self._workers.items() if worker.start_at_s is not None and worker.start_at_s <= now_s
        ]

    def started(self, number: int, now_s: float) -> None:
        worker = self._workers[number]
        assert not worker.running
        worker.started_s, worker.start_at_s = now_s, None

    def ended(self, number: int, code: int, now_s: float) -> float | None:
        """Seconds until the worker is restarted; None if it is not restarted."""
        worker = self._workers[number]
        assert worker.started_s is not None
        lived_s, worker.started_s = now_s - worker.started_s, None
        if code in FINAL_CODES:
            self.exit_code = code if self.exit_code in {0, UNEXPECTED} else self.exit_code
            self.stop()
            return None
        if self.stopping:
            if code not in CALM_CODES:
                self.exit_code = self.exit_code or UNEXPECTED
            return None
        if code == 0 and self._until_end:
            return None
        worker.failures = 1 if lived_s >= CALM_S else worker.failures + 1
        wait_s = self._backoff.delay_s(worker.failures, self._jitter())
        worker.start_at_s = now_s + wait_s
        return wait_s

    def stop(self) -> None:
        """Starts no more workers. Running workers may finish."""
        self.stopping = True
        for worker in self._workers.values():
            worker.start_at_s = None
