"""A worker's progress on standard error: a bar on a terminal, else lines; the last one has all rows."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

from sfd_stream.cli import progress as progress_module
from sfd_stream.observe.progress import Progress


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
