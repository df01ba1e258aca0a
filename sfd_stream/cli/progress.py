"""A worker's progress on standard error: a bar on a terminal with --until-end, else one line per minute.

A last line is logged at the end, so that a short run is reported, too.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Protocol

from sfd_stream.observe.progress import ProgressLog

if TYPE_CHECKING:
    from sfd_stream.worker.worker import Worker

LINE_EVERY_S = 60.0
BAR_EVERY_S = 0.2


class ProgressView(Protocol):
    """Called after each turn of the worker; `end` is called when the worker has ended."""

    def __call__(self, worker: Worker) -> None: ...
    def end(self, worker: Worker) -> None: ...


@contextmanager
def watching(*, bar: bool) -> Iterator[ProgressView]:
    """Set up logging inside this block, so that log lines are printed above the bar."""
    if not (bar and sys.stderr.isatty()):
        yield _Lines(time.monotonic)
        return
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn

    columns = (
        BarColumn(),
        "{task.percentage:>3.0f}%",
        TextColumn("{task.fields[rows]:,} rows, {task.fields[rows_per_s]:,.0f}/s"),
        TimeElapsedColumn(),
        TimeRemainingColumn(),
    )
    with Progress(*columns, console=Console(stderr=True), transient=True) as bar_view:
        yield _Bar(bar_view, bar_view.add_task("", total=None, rows=0, rows_per_s=0.0), time.monotonic)


class _Lines:
    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._log = ProgressLog(LINE_EVERY_S, clock())

    def __call__(self, worker: Worker) -> None:
        if self._log.is_due(self._clock()):
            self.end(worker)

    def end(self, worker: Worker) -> None:
        line = self._log.line(worker.progress, worker.source.known_lag(), self._clock())
        worker.log.info("progress", **line)


class _Bar:
    def __init__(self, bar_view: Any, task: Any, clock: Callable[[], float]) -> None:
        self._bar = bar_view
        self._task = task
        self._clock = clock
        self._began_s = self._next_s = clock()

    def __call__(self, worker: Worker) -> None:
        now_s = self._clock()
        if now_s < self._next_s:
            return
        self._next_s = now_s + BAR_EVERY_S
        ends = worker.progress.ends
        done = sum(min(position, ends.get(p, position)) for p, position in worker.source.positions.items())
        self._update(worker, total=sum(ends.values()), completed=done)

    def _update(self, worker: Worker, **done: int) -> None:
        rows = worker.progress.rows
        rows_per_s = rows / max(self._clock() - self._began_s, 1e-9)
        self._bar.update(self._task, rows=rows, rows_per_s=rows_per_s, **done)

    def end(self, worker: Worker) -> None:
        """Updates the bar a last time, because the last turns may have been skipped."""
        self._update(worker)
