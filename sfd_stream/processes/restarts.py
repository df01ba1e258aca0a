"""Which of N workers run, which wait to be started again, and when it is over. Pure: times and exit codes come in.

starting ──► running ──► done            it ended with 0, and was to work until the end
              │  ▲  └──► final           it ended with 2, 3, 4 or 5: no restart helps, so all stop
              ▼  │
             waiting                     anything else: started again, later after each failure
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from sfd_stream.retry import Backoff

FINAL_CODES = frozenset({2, 3, 4, 5})
"""Exit codes of permanent errors: settings, state, bad messages, refused by the broker. A restart would not help."""

UNEXPECTED = 1
CALM_CODES = frozenset({0, -15})
"""After a stop: 0, or ended by SIGTERM itself because it came before the worker had begun."""


RESTARTS = Backoff(first_s=0.5, longest_s=30.0)
CALM_S = 60.0
"""After a run of this length, earlier failures of a worker are forgotten."""


@dataclass
class _Seat:
    """One worker's place, whichever process has it."""

    start_at_s: float | None = None
    """When to start it; None while it runs, and once it is done."""
    started_s: float | None = None
    failures: int = 0

    @property
    def running(self) -> bool:
        return self.started_s is not None


class Crew:
    """Workers are numbered from 1. `due` lists those to start now; `over` is true when all have ended."""

    def __init__(self, workers: int, *, until_end: bool, backoff: Backoff, jitter: Callable[[], float]) -> None:
        assert workers >= 1
        self.stopping = False
        self.exit_code = 0
        self._seats = {number: _Seat(start_at_s=0.0) for number in range(1, workers + 1)}
        self._until_end = until_end
        self._backoff = backoff
        self._jitter = jitter

    @property
    def running(self) -> list[int]:
        return [number for number, seat in self._seats.items() if seat.running]

    @property
    def over(self) -> bool:
        """Nothing runs, and nothing will."""
        return all(seat.started_s is None and seat.start_at_s is None for seat in self._seats.values())

    def due(self, now_s: float) -> list[int]:
        """Who is to be started now."""
        return [n for n, seat in self._seats.items() if seat.start_at_s is not None and seat.start_at_s <= now_s]

    def started(self, number: int, now_s: float) -> None:
        seat = self._seats[number]
        assert not seat.running
        seat.started_s, seat.start_at_s = now_s, None

    def ended(self, number: int, code: int, now_s: float) -> float | None:
        """In how many seconds it is started again; None if it is not."""
        seat = self._seats[number]
        assert seat.started_s is not None
        lived_s, seat.started_s = now_s - seat.started_s, None
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
        seat.failures = 1 if lived_s >= CALM_S else seat.failures + 1
        wait_s = self._backoff.delay_s(seat.failures, self._jitter())
        seat.start_at_s = now_s + wait_s
        return wait_s

    def stop(self) -> None:
        """From now on nobody is started; who runs is awaited."""
        self.stopping = True
        for seat in self._seats.values():
            seat.start_at_s = None
