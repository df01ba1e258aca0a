"""A worker's progress on standard error: a bar on a terminal, else lines; the last one has all rows."""

from __future__ import annotations

import io
from types import SimpleNamespace
from typing import Any

import pytest

from sfd_stream.cli import progress as progress_module
from sfd_stream.observe.progress import Progress
from tests.support.watched import Clock
from tests.system.fakes import Diary


def test_a_bar_ends_with_all_rows_however_soon_after_the_turn_before() -> None:
    shown: dict[str, float] = {}
    bar = progress_module._Bar(SimpleNamespace(update=lambda _, **fields: shown.update(fields)), 0, lambda: 7.0)
    progress = Progress(rows=50, ends={0: 100})
    worker: Any = SimpleNamespace(progress=progress, source=SimpleNamespace(positions={0: 50}))
    bar(worker)
    assert (shown["rows"], shown["completed"], shown["total"]) == (50, 50, 100)
    progress.rows = 100
    bar(worker)
    assert shown["rows"] == 50, "no time has passed since the last"
    bar.end(worker)
    assert shown["rows"] == 100


def test_without_a_terminal_a_line_is_logged_once_a_minute_and_at_the_end(monkeypatch: pytest.MonkeyPatch) -> None:
    clock, log = Clock(0.0), Diary()
    monkeypatch.setattr(progress_module, "time", SimpleNamespace(monotonic=clock))
    monkeypatch.setattr("sys.stderr", io.StringIO())
    worker: Any = SimpleNamespace(progress=Progress(), source=SimpleNamespace(known_lag=lambda: 3), log=log)
    with progress_module.watching(bar=True) as view:
        for worker.progress.rows in (100, 200, 300):
            clock.now += 30.0
            view(worker)
        view.end(worker)
    assert [(line["rows"], line["lag"]) for line in log.of("progress")] == [(200, 3), (300, 3)]
