"""When a checkpoint or a snapshot is due. Decided by what is passed in; no clock is read here."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class CheckpointPolicy:
    """Due after `every_rows` rows or `every_s` seconds, whichever comes first; never without progress."""

    every_rows: int
    every_s: float

    def is_due(self, *, rows: int, elapsed_s: float, changed: bool) -> bool:
        """`rows` and `elapsed_s` since the last one; `changed`: the offset moved (bad rows move it too)."""
        return changed and (rows >= self.every_rows or elapsed_s >= self.every_s)


@dataclass(frozen=True)
class SnapshotPolicy:
    """Due every `every_s` seconds, with a checkpoint; published again every `republish_s` if nothing came.

    The second heals readers of a compacted topic on which a zombie put an older snapshot last.
    """

    every_s: float
    republish_s: float

    def is_due(self, *, elapsed_s: float, owed: bool) -> bool:
        """`owed`: `Manifest.owes_snapshot(...)`, a snapshot that failed or that a repair asks for."""
        return owed or elapsed_s >= self.every_s

    def is_republish_due(self, *, since_publish_s: float) -> bool:
        return since_publish_s >= self.republish_s
