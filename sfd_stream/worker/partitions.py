"""One partition from assignment to release, and the table of them.

    WAITING ──► CLAIMING ──► READING ──► RELEASING ──► RELEASED        (RELEASED from everywhere)
                                └──► FINISHED, with --until-end

RELEASED is final: a partition that comes back is a new object, so that a late answer reaches nobody.
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
    """For memory."""
    CLAIMING = "claiming"
    READING = "reading"
    FINISHED = "finished"
    """Read to its end (--until-end): the state is dropped to make room."""
    RELEASING = "releasing"
    """Revoked: a last checkpoint, within the budget."""
    RELEASED = "released"


AFTER: dict[Phase, frozenset[Phase]] = {
    Phase.WAITING: frozenset({Phase.CLAIMING, Phase.RELEASED}),
    Phase.CLAIMING: frozenset({Phase.READING, Phase.RELEASED}),
    Phase.READING: frozenset({Phase.FINISHED, Phase.RELEASING, Phase.RELEASED}),
    Phase.FINISHED: frozenset({Phase.RELEASED}),
    Phase.RELEASING: frozenset({Phase.RELEASED}),
    Phase.RELEASED: frozenset(),
}
"""Every change of phase that there is."""

IN_MEMORY = frozenset({Phase.CLAIMING, Phase.READING, Phase.RELEASING})


class Commit(NamedTuple):
    """The offset that the broker was last asked to commit."""

    offset: int
    metadata: str
    acknowledged: bool = False


@dataclass
class Backlog:
    """The rows taken that are not durable, or not published. Times are the worker's clock's."""

    columns: Columns  # as of the last row decoded, which the state may not have reached yet
    next_offset: int  # after the last record taken
    snapshot_at_s: float  # when the last snapshot was begun
    republished_at_s: float  # when the last snapshot was begun or published again
    rows: int = 0
    dirty_since_s: float | None = None  # when the oldest record came that no checkpoint holds
    storing_since_s: float | None = None  # the same for the checkpoint that is under way
    unpublished_rows: int = 0
    unpublished_since_s: float | None = None  # when the oldest record came that no snapshot holds
    publishing_since_s: float | None = None  # the same for snapshots that are not acknowledged

    def take(self, decoded: DecodedBatch, next_offset: int, now_s: float) -> None:
        """A batch that is on its way to the state."""
        self.columns, self.next_offset = decoded.columns, next_offset
        self.rows += decoded.block.rows
        self.unpublished_rows += decoded.block.rows
        self.dirty_since_s = now_s if self.dirty_since_s is None else self.dirty_since_s
        self.unpublished_since_s = now_s if self.unpublished_since_s is None else self.unpublished_since_s

    def pass_over(self, next_offset: int, now_s: float) -> None:
        """Offsets without a record for us."""
        self.next_offset = next_offset
        self.dirty_since_s = now_s if self.dirty_since_s is None else self.dirty_since_s

    def begin_checkpoint(self) -> None:
        self.rows, self.dirty_since_s, self.storing_since_s = 0, None, self.dirty_since_s

    def end_checkpoint(self) -> None:
        self.storing_since_s = None

    def begin_snapshot(self, now_s: float) -> None:
        self.snapshot_at_s = self.republished_at_s = now_s
        if self.publishing_since_s is None:  # else the last one was not acknowledged, and this one has its rows too
            self.publishing_since_s = self.unpublished_since_s
        self.unpublished_rows, self.unpublished_since_s = 0, None

    def end_snapshot(self) -> None:
        self.publishing_since_s = None

    def begin_republication(self, now_s: float) -> None:
        self.republished_at_s = now_s


@dataclass(eq=False)
class OwnedPartition:
    """Each field is written by one file, named here where it is not this one."""

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
    settled: bool = False  # by transactional.py: whether it is known what has been delivered
    delivered: StateId | None = None
    """By transactional.py: the state whose offset is committed, and with it every snapshot that was due by then."""

    @property
    def log(self) -> Log:
        """Each line about the partition has its number, and the epoch and number of its newest manifest."""
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
        """Whether a checkpoint would make anything more durable."""
        return self.backlog is not None and self.backlog.dirty_since_s is not None

    @property
    def is_durable(self) -> bool:
        """Whether the newest manifest holds all that was taken."""
        return self.backlog is not None and self.chain.newest.next_offset >= self.backlog.next_offset

    def begin_reading(self, state: PartitionState, now_s: float) -> None:
        unpublished_since_s = now_s if self.chain.has_newer_state else None
        self.backlog = Backlog(state.columns, state.next_offset, now_s, now_s, unpublished_since_s=unpublished_since_s)

    def move(self, phase: Phase) -> None:
        assert phase in AFTER[self.phase], f"{self.phase} to {phase}"
        self.phase = phase


@dataclass
class Partitions:
    """The table of what is ours. The loop's thread alone uses it."""

    plan: Plan
    joined: bool = False  # whether the group has answered at all, be it with no partition
    closed: bool = False  # from now on nothing more is claimed
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
        """Those that may be claimed now: one always, another only where there is room, else it waits, unread."""
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
