"""What was taken and is not stored or published yet, and when a checkpoint or a snapshot of it is due.

The arguments alone decide; no clock is read here.
"""

from __future__ import annotations

from dataclasses import dataclass

from sfd_stream.state.partition import PartitionState
from sfd_stream.wire.columns import Columns
from sfd_stream.wire.rows.decode import DecodedBatch

PENDING_AFTER_S = 10.0
"""After this time a checkpoint brings the snapshot that is missing or failed, or a failed transaction is repeated."""

PAUSED_AFTER = 4
"""Reading pauses when the rows of this many checkpoints are not stored because the store does not keep up."""


@dataclass
class Pending:
    """Rows taken that are not stored, or not published. Times are readings of the owner's clock."""

    begun_at_s: float
    """When the last checkpoint or snapshot was begun, or else when reading began."""
    rows: int = 0
    since_s: float | None = None
    """When the oldest record of them arrived. None without records; bad ones bring no row, but count too."""
    begun_since_s: float | None = None
    """The same time for rows in a checkpoint, or a snapshot, that was begun and is not acknowledged."""

    def add(self, rows: int, now_s: float) -> None:
        self.rows += rows
        self.since_s = now_s if self.since_s is None else self.since_s

    def begin(self, now_s: float) -> None:
        """A checkpoint or snapshot of all of them begins. It has the rows of an earlier one that failed, too."""
        self.begun_at_s = now_s
        if self.begun_since_s is None:
            self.begun_since_s = self.since_s
        self.rows, self.since_s = 0, None

    def end(self) -> None:
        """What was begun is acknowledged."""
        self.begun_since_s = None


@dataclass
class Backlog:
    """What was taken of a partition that is read."""

    columns: Columns  # after the last row decoded; the sketch thread may not have applied that row yet
    next_offset: int  # after the last record taken
    unstored: Pending
    unpublished: Pending
    republished_at_s: float = 0.0  # by worker.py: when the newest snapshot was last published again

    @classmethod
    def of(cls, state: PartitionState, now_s: float, *, published: bool) -> Backlog:
        """The backlog of a restored state. `published`: there is a snapshot of it."""
        found = cls(state.columns, state.next_offset, Pending(now_s), Pending(now_s))
        if not published:
            found.unpublished.add(0, now_s)
        return found

    def take(self, decoded: DecodedBatch, next_offset: int, now_s: float) -> None:
        """Notes a batch that goes to the sketch thread."""
        self.columns, self.next_offset = decoded.columns, next_offset
        self.unstored.add(decoded.block.rows, now_s)
        self.unpublished.add(decoded.block.rows, now_s)

    def pass_over(self, next_offset: int, now_s: float) -> None:
        """Notes offsets that hold no record for us."""
        self.next_offset = next_offset
        self.unstored.add(0, now_s)


@dataclass(frozen=True)
class CheckpointPolicy:
    """Due after `every_rows` rows or `every_s` seconds, whichever comes first; never without progress."""

    every_rows: int
    every_s: float

    def is_due(self, pending: Pending, now_s: float) -> bool:
        """`pending`: since the last checkpoint."""
        if pending.since_s is None:
            return False
        return pending.rows >= self.every_rows or now_s - pending.since_s >= self.every_s

    def is_behind(self, pending: Pending) -> bool:
        """Whether the store does not keep up, so that reading must pause."""
        return pending.rows >= PAUSED_AFTER * self.every_rows


@dataclass(frozen=True)
class SnapshotPolicy:
    """Due after `every_rows` rows or `every_s` seconds, as set; without progress only if one is pending.
    `republish_s` seconds after the last publication was begun, the newest one is published again (idempotent).
    """

    every_rows: int | None
    every_s: float | None
    republish_s: float = float("inf")

    def is_due(self, pending: Pending, now_s: float, *, has_pending: bool) -> bool:
        """`pending`: since the last snapshot. `has_pending`: the last snapshot is not published, or there is none."""
        elapsed_s = now_s - pending.begun_at_s
        if has_pending and elapsed_s >= min(self.every_s or PENDING_AFTER_S, PENDING_AFTER_S):
            return True
        in_time = self.every_s is not None and elapsed_s >= self.every_s
        in_rows = self.every_rows is not None and pending.rows >= self.every_rows
        return pending.since_s is not None and (in_time or in_rows)
