"""One partition from assignment to release, and the table of them.

    WAITING ──► CLAIMING ──► READING ──► RELEASING ──► RELEASED        (RELEASED from everywhere)
                                └──► FINISHED, with --until-end

RELEASED is final: a partition that is assigned again is a new object, so a late answer cannot change it.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from enum import Enum
from typing import NamedTuple

from sfd_stream.observe.logs import Log
from sfd_stream.state.manifest import StateId
from sfd_stream.state.partition import PartitionState
from sfd_stream.wire.columns import Columns
from sfd_stream.wire.rows.decode import DecodedBatch
from sfd_stream.worker.checkpoint_chain import CheckpointChain
from sfd_stream.worker.runtime import Plan
from sfd_stream.worker.sketch_thread import Sketched


class Phase(Enum):
    WAITING = "waiting"
    """Not claimed yet: there is no memory for it."""
    CLAIMING = "claiming"
    READING = "reading"
    FINISHED = "finished"
    """Read to its end (--until-end): the state is dropped to make room."""
    RELEASING = "releasing"
    """Revoked: a last checkpoint is written, within `checkpoint.revoke_budget_s`."""
    RELEASED = "released"


AFTER: dict[Phase, frozenset[Phase]] = {
    Phase.WAITING: frozenset({Phase.CLAIMING, Phase.RELEASED}),
    Phase.CLAIMING: frozenset({Phase.READING, Phase.RELEASED}),
    Phase.READING: frozenset({Phase.FINISHED, Phase.RELEASING, Phase.RELEASED}),
    Phase.FINISHED: frozenset({Phase.RELEASED}),
    Phase.RELEASING: frozenset({Phase.RELEASED}),
    Phase.RELEASED: frozenset(),
}
"""All changes of phase that are allowed."""

IN_MEMORY = frozenset({Phase.CLAIMING, Phase.READING, Phase.RELEASING})


class Commit(NamedTuple):
    """The offset that the broker was last asked to commit."""

    offset: int
    metadata: str
    acknowledged: bool = False


@dataclass
class Backlog:
    """The rows taken that are not durable, or not published. Times are readings of the worker's clock."""

    columns: Columns  # after the last row decoded; the sketch thread may not have applied that row yet
    next_offset: int  # after the last record taken
    snapshot_at_s: float  # when the last snapshot was begun
    republished_at_s: float  # when the last snapshot was begun or published again
    rows: int = 0
    dirty_since_s: float | None = None  # when the oldest record arrived that no checkpoint holds
    storing_since_s: float | None = None  # the same for the checkpoint that is under way
    unpublished_rows: int = 0
    unpublished_since_s: float | None = None  # when the oldest record arrived that no snapshot holds
    publishing_since_s: float | None = None  # the same for snapshots that are not acknowledged

    def take(self, decoded: DecodedBatch, next_offset: int, now_s: float) -> None:
        """Notes a batch that goes to the sketch thread."""
        self.columns, self.next_offset = decoded.columns, next_offset
        self.rows += decoded.block.rows
        self.unpublished_rows += decoded.block.rows
        self.dirty_since_s = now_s if self.dirty_since_s is None else self.dirty_since_s
        self.unpublished_since_s = now_s if self.unpublished_since_s is None else self.unpublished_since_s

    def pass_over(self, next_offset: int, now_s: float) -> None:
        """Notes offsets that hold no record for us."""
        self.next_offset = next_offset
        self.dirty_since_s = now_s if self.dirty_since_s is None else self.dirty_since_s

    def begin_checkpoint(self) -> None:
        self.rows, self.dirty_since_s, self.storing_since_s = 0, None, self.dirty_since_s

    def end_checkpoint(self) -> None:
        self.storing_since_s = None

    def begin_snapshot(self, now_s: float) -> None:
        self.snapshot_at_s = self.republished_at_s = now_s
        if self.publishing_since_s is None:  # else: the last one is not acknowledged; this one has its rows too
            self.publishing_since_s = self.unpublished_since_s
        self.unpublished_rows, self.unpublished_since_s = 0, None

    def end_snapshot(self) -> None:
        self.publishing_since_s = None

    def begin_republication(self, now_s: float) -> None:
        self.republished_at_s = now_s


@dataclass(eq=False)
class OwnedPartition:
    """One file writes each field. A comment names the file if it is not this one."""

    number: int
    chain: CheckpointChain
    worker_log: Log
    assigned_s: float
    phase: Phase = Phase.WAITING
    backlog: Backlog | None = None
    sketched: Sketched | None = None  # by sketch_thread.py
    store_behind: bool = False  # by worker.py: reading pauses until the store has caught up
    schemas_awaited: frozenset[int] = frozenset()
    """By worker.py: reading pauses until a schema registry has answered these ids."""
    commit: Commit | None = None  # by delivery.py
    settled: bool = False  # by transactional.py: whether `delivered` is known
    delivered: StateId | None = None
    """By transactional.py: the state whose offset is committed. Every snapshot due by then is visible too."""

    @property
    def log(self) -> Log:
        """A log that adds to each line the partition's number, and the epoch and number of its newest manifest."""
        newest = self.chain.manifest
        owner = {} if newest is None else {"epoch": newest.epoch, "number": newest.number}
        return self.worker_log.bind(partition=self.number, **owner)

    @property
    def taken(self) -> Backlog:
        assert self.backlog is not None, "only a partition that is read has one"
        return self.backlog

    @property
    def live(self) -> Sketched:
        assert self.sketched is not None, "only a partition that is read has one"
        return self.sketched

    @property
    def is_paused(self) -> bool:
        return self.store_behind or bool(self.schemas_awaited) or self.phase is Phase.FINISHED

    @property
    def is_dirty(self) -> bool:
        """Whether records were taken that no checkpoint holds."""
        return self.backlog is not None and self.backlog.dirty_since_s is not None

    @property
    def is_durable(self) -> bool:
        """Whether the newest manifest holds all records taken."""
        return self.backlog is not None and self.chain.newest.next_offset >= self.backlog.next_offset

    def begin_reading(self, state: PartitionState, now_s: float) -> None:
        unpublished_since_s = now_s if self.chain.has_newer_state else None
        self.backlog = Backlog(state.columns, state.next_offset, now_s, now_s, unpublished_since_s=unpublished_since_s)

    def move(self, phase: Phase) -> None:
        assert phase in AFTER[self.phase], f"{self.phase} to {phase}"
        self.phase = phase


@dataclass
class Partitions:
    """The table of the worker's partitions. Only the loop's thread uses it."""

    plan: Plan
    joined: bool = False  # whether the group has answered, even if it assigned no partition
    closed: bool = False  # whether claims have ended
    _table: dict[int, OwnedPartition] = field(default_factory=dict)

    def __iter__(self) -> Iterator[OwnedPartition]:
        return iter(list(self._table.values()))

    def get(self, number: int) -> OwnedPartition | None:
        return self._table.get(number)

    def among(self, *phases: Phase) -> list[OwnedPartition]:
        return [owned for owned in self if owned.phase in phases]

    def add(self, owned: OwnedPartition) -> None:
        assert owned.number not in self._table
        self._table[owned.number] = owned

    def remove(self, owned: OwnedPartition) -> None:
        owned.move(Phase.RELEASED)
        del self._table[owned.number]

    def reserved_bytes(self) -> int:
        return sum(self.plan.shape(owned.number).memory_bytes() for owned in self.among(*IN_MEMORY))

    def admit(self) -> list[OwnedPartition]:
        """The partitions that may be claimed now: one always, others only if memory has room for them."""
        admitted: list[OwnedPartition] = []
        if self.closed:
            return admitted
        reserved, any_in_memory = self.reserved_bytes(), bool(self.among(*IN_MEMORY))
        for owned in self.among(Phase.WAITING):
            needed = self.plan.shape(owned.number).memory_bytes()
            if any_in_memory and reserved + needed > self.plan.worker.memory_max_bytes:
                continue
            reserved, any_in_memory = reserved + needed, True
            owned.move(Phase.CLAIMING)
            admitted.append(owned)
        return admitted
