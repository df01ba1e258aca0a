"""The progress of a run, for a log line at intervals. Pure: progress and times come in as arguments."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any


@dataclass
class Progress:
    """Counters of this run, for people."""

    records: int = 0
    rows: int = 0
    bad: int = 0
    checkpoints: int = 0
    fences: int = 0
    ends: dict[int, int] = field(default_factory=dict)


class ProgressLog:
    """A progress line is due every `every_s`. Its rows_per_s is the rate since the last line."""

    def __init__(self, every_s: float, now_s: float) -> None:
        self._every_s = every_s
        self._last_s, self._last_rows = now_s, 0

    def is_due(self, now_s: float) -> bool:
        return now_s - self._last_s >= self._every_s

    def line(self, progress: Progress, lag: int | None, now_s: float) -> dict[str, Any]:
        """The fields of the log line, without `lag` if it is unknown."""
        rows_per_s = (progress.rows - self._last_rows) / max(now_s - self._last_s, 1e-9)
        self._last_s, self._last_rows = now_s, progress.rows
        counts = {"rows": progress.rows, "rows_per_s": round(rows_per_s), "bad": progress.bad}
        known = {} if lag is None else {"lag": lag}
        return {**counts, **known, "checkpoints": progress.checkpoints}
