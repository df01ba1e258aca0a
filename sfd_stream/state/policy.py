"""When a checkpoint is due. The arguments alone decide; no clock is read here."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class CheckpointPolicy:
    """Due after `every_rows` rows or `every_s` seconds, whichever comes first; never without progress."""

    every_rows: int
    every_s: float

    def is_due(self, *, rows: int, elapsed_s: float, changed: bool) -> bool:
        """`rows` and `elapsed_s`: since the last checkpoint. `changed`: the offset moved (bad rows move it too)."""
        return changed and (rows >= self.every_rows or elapsed_s >= self.every_s)
