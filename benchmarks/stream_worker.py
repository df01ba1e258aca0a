"""One worker to the end of a topic, watched from inside: `python -m benchmarks.stream_worker SETTINGS [LATENCY_MS]`.

Prints one JSON object: rows, seconds from the first record to the last commit, where a row's microseconds went, how
long the loop's turns took, and how large the process was after a tenth of the rows and at the end.
"""

from __future__ import annotations

import json
import sys
import time
from collections import defaultdict
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from threadpoolctl import threadpool_limits

from benchmarks.timing import largest_kib
from sfd_stream.cli.build import worker_of
from sfd_stream.config import load
from sfd_stream.kafka.source import Source
from sfd_stream.loop import intake, jobs
from sfd_stream.loop.runtime import Runtime
from sfd_stream.state.partition import PartitionState
from sfd_stream.storage.disk import DiskStore
from sfd_stream.worker.worker import Worker


class Timers:
    """Seconds by name, over all calls and threads."""

    def __init__(self) -> None:
        self.seconds: defaultdict[str, float] = defaultdict(float)

    def wrap(self, owner: Any, name: str, label: str) -> None:
        inner: Callable[..., Any] = getattr(owner, name)

        def timed(*args: Any, **kwargs: Any) -> Any:
            began = time.perf_counter()
            try:
                return inner(*args, **kwargs)
            finally:
                self.seconds[label] += time.perf_counter() - began

        setattr(owner, name, timed)


class Observer:
    """When the last offset was committed, how large the process was, how long each turn took.

    On the loop's own thread: one more thread that looks would ask for the interpreter all the time.
    """

    def __init__(self, worker: Worker, source: Source) -> None:
        self.first_at = self.done_at = 0.0
        self.turns_s: list[float] = []
        self.early_kib = 0
        self._worker, self._source = worker, source
        self._turned_at = time.perf_counter()

    def turned(self) -> None:
        now = time.perf_counter()
        if self._worker.progress.rows:
            self.first_at = self.first_at or self._turned_at
            self.turns_s.append(now - self._turned_at)
        self._turned_at = now

    def committed(self) -> None:
        committed, ends = self._source.last_committed, self._worker.progress.ends or {}
        if not self.early_kib and any(committed.get(p, -1) > end / 10 for p, end in ends.items()):
            self.early_kib = largest_kib()
        if ends and all(committed.get(p, -1) >= end for p, end in ends.items() if end):
            self.done_at = self.done_at or time.perf_counter()

    def report(self, timers: Timers) -> dict[str, Any]:
        rows = self._worker.progress.rows
        return {
            "rows": rows,
            "seconds": self.done_at - self.first_at,
            "us_per_row": {name: spent / rows * 1e6 for name, spent in timers.seconds.items()},
            "turn_ms": {"p99": _ms(np.percentile(self.turns_s, 99)), "longest": _ms(max(self.turns_s))},
            "largest_kib": {"after a tenth": self.early_kib, "at the end": largest_kib()},
        }


def _ms(seconds: Any) -> float:
    return float(seconds) * 1e3


def tell_commits(listeners: list[Callable[[], None]]) -> None:
    """Before a source is made: it gives its own method to the client."""
    inner = Source._on_commit  # noqa: SLF001

    def heard(source: Source, *answer: Any) -> None:
        inner(source, *answer)
        for listener in listeners:
            listener()

    Source._on_commit = heard  # type: ignore[method-assign,assignment]  # noqa: SLF001


def slow_store(latency_s: float) -> None:
    """Every call to the store takes so much longer, as one far away would."""

    def slowed(name: str) -> None:
        inner: Callable[..., Any] = getattr(DiskStore, name)

        def late(*args: Any, **kwargs: Any) -> Any:
            time.sleep(latency_s)
            return inner(*args, **kwargs)

        setattr(DiskStore, name, late)

    for name in ("create_if_absent", "put", "get", "list", "delete"):
        slowed(name)


def main(settings_path: str, latency_ms: str = "0") -> None:
    timers = Timers()
    timers.wrap(Source, "poll", "poll (the broker's wait in it)")
    timers.wrap(intake, "decode", "decode")
    timers.wrap(Runtime, "wait", "wait for the sketch or an answer")
    timers.wrap(PartitionState, "apply", "sketch (its own thread)")
    timers.wrap(jobs, "_requests", "checkpoint (io threads)")
    if float(latency_ms):
        slow_store(float(latency_ms) / 1e3)
    listeners: list[Callable[[], None]] = []
    tell_commits(listeners)
    settings = load(Path(settings_path), environ={}).settings
    with threadpool_limits(settings.worker.blas_threads):
        worker, source = worker_of(settings, until_end=True)
        observer = Observer(worker, source)
        listeners.append(observer.committed)
        worker.run(observer.turned)
    print(json.dumps(observer.report(timers)))


if __name__ == "__main__":
    main(*sys.argv[1:])
