"""How a run is getting on, in a line once in a while. Pure: progress and times come in."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any


@dataclass
class Progress:
    """What this run has done so far, for people."""

    records: int = 0
    rows: int = 0
    bad: int = 0
    checkpoints: int = 0
    fences: int = 0
    ends: dict[int, int] = field(default_factory=dict)


@dataclass(frozen=True)
class _Mark:
    at_s: float
    rows: int


class News:
    """Due every `every_s`; rows_per_s is of the time since the last line."""

    def __init__(self, every_s: float, now_s: float) -> None:
        self._every_s = every_s
        self._last = _Mark(now_s, 0)

    def is_due(self, now_s: float) -> bool:
        return now_s - self._last.at_s >= self._every_s

    def line(self, progress: Progress, lag: int | None, now_s: float) -> dict[str, Any]:
        """The fields of the log line; `lag` is left out where it is not known."""
        rows_per_s = (progress.rows - self._last.rows) / max(now_s - self._last.at_s, 1e-9)
        self._last = _Mark(now_s, progress.rows)
        told = {"rows": progress.rows, "rows_per_s": round(rows_per_s), "bad": progress.bad}
        known = {} if lag is None else {"lag": lag}
        return {**told, **known, "checkpoints": progress.checkpoints}
