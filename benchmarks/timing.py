"""Times that can be compared on a machine that others use too: contenders take turns, and the best run counts.

A ratio of two bests of interleaved turns hardly moves with the load; a ratio of two separate runs does.
"""

from __future__ import annotations

import gc
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

TURN_S = 0.3
"""A turn lasts at least this long: a run of 10 ms beside one of 2 s would else hardly ever meet a quiet moment."""


@dataclass(frozen=True, slots=True)
class Timed:
    """The best of some runs, in seconds, and what the first of them gave."""

    cpu_s: float
    wall_s: float
    runs: int
    outcome: Any


def interleaved(jobs: Mapping[str, Callable[[], Any]], *, rounds: int, budget_s: float) -> dict[str, Timed]:
    """A B C A B C ...: best CPU and wall time of each. Who has used up its budget sits the other rounds out."""
    done: dict[str, Timed] = {}
    spent = dict.fromkeys(jobs, 0.0)
    for _ in range(rounds):
        for name, job in jobs.items():
            end = min(spent[name] + TURN_S, budget_s)
            with _without_collector():
                while spent[name] < end:
                    timed = once(job)
                    spent[name] += timed.wall_s
                    done[name] = _better(done[name], timed) if name in done else timed
    return done


@contextmanager
def _without_collector() -> Iterator[None]:
    """As `timeit` does. It collects once a turn, not before each run: that goes through all objects there are, and what
    is timed after it begins with empty caches.
    """
    gc.collect()
    gc.disable()
    try:
        yield
    finally:
        gc.enable()


def once(job: Callable[[], Any]) -> Timed:
    wall, cpu = time.perf_counter(), time.process_time()
    outcome = job()
    return Timed(time.process_time() - cpu, time.perf_counter() - wall, 1, outcome)


def _better(a: Timed, b: Timed) -> Timed:
    return Timed(min(a.cpu_s, b.cpu_s), min(a.wall_s, b.wall_s), a.runs + b.runs, a.outcome)


class Stopwatch:
    """Adds up the CPU time of calls of one function, which it stands in for."""

    def __init__(self, function: Callable[..., Any]) -> None:
        self.function = function
        self.cpu_s = 0.0

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        start = time.process_time()
        try:
            return self.function(*args, **kwargs)
        finally:
            self.cpu_s += time.process_time() - start


def largest_kib() -> int:
    """The largest this process has been. Not `ru_maxrss`, which begins with that of the process that started it."""
    status = Path("/proc/self/status").read_text(encoding="utf-8")
    return next(int(line.split()[1]) for line in status.splitlines() if line.startswith("VmHWM:"))
