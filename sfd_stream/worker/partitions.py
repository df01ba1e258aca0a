"""One partition from assignment to release, and the table of them.

    WAITING ──► CLAIMING ──► READING ──► RELEASING ──► RELEASED        (RELEASED from everywhere)
                                └──► FINISHED, with --until-end

RELEASED is final: a partition that is assigned again is a new object, so a late answer cannot change it.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from enum import Enum

from sfd_stream.loop.runtime import Plan
from sfd_stream.observe.logs import Log
from sfd_stream.state.manifest import StateId
from sfd_stream.state.partition import PartitionState
from sfd_stream.state.policy import Backlog
from sfd_stream.worker.checkpoint_chain import CheckpointChain
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
"""All allowed changes of phase."""

IN_MEMORY = frozenset({Phase.CLAIMING, Phase.READING, Phase.RELEASING})


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
        return self.backlog is not None and self.backlog.unstored.since_s is not None

    @property
    def is_durable(self) -> bool:
        """Whether the newest manifest holds all records taken."""
        return self.backlog is not None and self.chain.newest.next_offset >= self.backlog.next_offset

    def begin_reading(self, state: PartitionState, now_s: float) -> None:
        self.move(Phase.READING)
        self.backlog = Backlog.of(state, now_s, published=not self.chain.newest.has_newer_state)

    def move(self, phase: Phase) -> None:
        assert phase in AFTER[self.phase], f"{self.phase} to {phase}"
        self.phase = phase


@dataclass
class Partitions:
    """The table of the worker's partitions. Only the loop's thread uses it."""

    plan: Plan
    joined: bool = False  # whether the group has answered, even if it assigned no partition
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
        reserved = self.reserved_bytes()
        for owned in self.among(Phase.WAITING):
            needed = self.plan.shape(owned.number).memory_bytes()
            if not reserved or reserved + needed <= self.plan.worker.memory_max_bytes:
                reserved += needed
                owned.move(Phase.CLAIMING)
                admitted.append(owned)
        return admitted
