"""A worker's progress on standard error: a bar on a terminal while it works towards an end, else a line a minute."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from sfd_stream.service.news import News

if TYPE_CHECKING:
    from sfd_stream.service.worker import Worker

LINE_EVERY_S = 60.0
BAR_EVERY_S = 0.2

Watch = Callable[["Worker"], None]


@contextmanager
def watching(*, bar: bool) -> Iterator[Watch]:
    """To be called after each turn of the worker. Set up logging inside, so that lines go above the bar."""
    if not (bar and sys.stderr.isatty()):
        yield _lines(time.monotonic)
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
    with Progress(*columns, console=Console(stderr=True), transient=True) as shown:
        yield _bar(shown, shown.add_task("", total=None, rows=0, rows_per_s=0.0), time.monotonic)


def _lines(clock: Callable[[], float]) -> Watch:
    news = News(LINE_EVERY_S, clock())

    def watch(worker: Worker) -> None:
        now_s = clock()
        if news.is_due(now_s):
            worker.log.info("progress", **news.line(worker.progress, worker.source.known_lag(), now_s))

    return watch


def _bar(shown: Any, task: Any, clock: Callable[[], float]) -> Watch:
    began_s = next_s = clock()

    def watch(worker: Worker) -> None:
        nonlocal next_s
        now_s = clock()
        if now_s < next_s:
            return
        next_s = now_s + BAR_EVERY_S
        ends, rows = worker.progress.ends, worker.progress.rows
        done = sum(min(position, ends.get(p, position)) for p, position in worker.source.positions.items())
        shown.update(
            task, total=sum(ends.values()), completed=done, rows=rows, rows_per_s=rows / max(now_s - began_s, 1e-9)
        )

    return watch
