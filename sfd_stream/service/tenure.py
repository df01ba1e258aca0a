"""What a worker is asked to do, and what it holds while a partition is its own."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Future
from dataclasses import dataclass, field
from typing import Any, Literal, Protocol, Self

from sfd_stream.service.keeper import Keeper
from sfd_stream.service.seen import Facts
from sfd_stream.state.manifest import StateId
from sfd_stream.state.partition import PartitionState, Shape
from sfd_stream.state.policy import CheckpointPolicy
from sfd_stream.wire.columns import Columns
from sfd_stream.wire.rows import DecodedBatch, RowLimits

JobKind = Literal["claim", "checkpoint", "publication", "retention"]


class Log(Protocol):
    """The part of a structlog logger that is used."""

    def bind(self, **context: Any) -> Self: ...
    def info(self, event: str, **context: Any) -> Any: ...
    def warning(self, event: str, **context: Any) -> Any: ...
    def debug(self, event: str, **context: Any) -> Any: ...


@dataclass(frozen=True)
class Plan:
    """What the settings ask of a worker."""

    group: str
    topic: str
    shape: Callable[[int], Shape]
    """A partition's number -> its shape."""
    start: Literal["earliest", "latest"]
    limits: RowLimits
    checkpoint: CheckpointPolicy
    revoke_budget_s: float
    give_up_s: float
    batch_records: int
    memory_max_bytes: int
    until_end: bool = False


@dataclass(eq=False)
class Tenure:
    """A partition while it is ours: from assignment to revoke, lost or fence.

    waiting (no room yet) ──► claiming (`job`) ──► reading (`state`) ──► finished (--until-end, to make room)
    """

    partition: int
    keeper: Keeper
    worker_log: Log
    job: Future[Any] | None = None
    """One at a time."""
    job_kind: JobKind = "claim"
    """Of the job, or the last one."""
    assigned_s: float = 0.0
    step: str = "start"
    """What the job does or waits for, since `step_s`."""
    step_s: float = 0.0
    step_failure: str = ""
    """Why the step was repeated last."""
    stuck_told_s: float = float("-inf")
    """When it was last logged that the claim does not progress."""
    state: PartitionState | None = None
    columns: Columns | None = None
    """As of the last record decoded, which the state may not have reached yet."""
    next_offset: int = 0
    """After the last record taken, which the state may not have reached yet either."""
    rows_since: int = 0
    dirty_since: float | None = None
    """When the oldest record came that no checkpoint holds."""
    rows_unseen: int = 0
    """Rows that no snapshot has shown."""
    unseen_since: float | None = None
    """When the oldest record came that no snapshot has shown."""
    snapshot_at: float = 0.0
    """When the last snapshot was begun."""
    republished_at: float = 0.0
    """When the last snapshot was begun or published again."""
    held_back: bool = False
    schemas_awaited: frozenset[int] = frozenset()
    """Ids that a schema registry must answer before the partition is read on."""
    finished: bool = False
    told_to_wait: bool = False
    settled: bool = False
    """Transactional: whether it is known what has been delivered."""
    delivered: StateId | None = None
    """Transactional: the state whose offset is committed, and with it every snapshot that was due by then."""
    facts: Facts | None = None
    """Of the state, as of the last batch: what may be read of it on another thread than its own."""
    broken: BaseException | None = None
    """Why the state takes no more rows: set by the sketching thread, which then gives no state of it either."""
    commit_offset: int | None = None
    """What the broker was last told; told again until it says that it heard."""

    def take(self, decoded: DecodedBatch, next_offset: int, now_s: float) -> None:
        """A batch that is on its way to the state."""
        self.columns, self.next_offset = decoded.columns, next_offset
        self.rows_since += decoded.block.rows
        self.rows_unseen += decoded.block.rows
        self.dirty_since = now_s if self.dirty_since is None else self.dirty_since
        self.unseen_since = now_s if self.unseen_since is None else self.unseen_since

    def begin_step(self, name: str, now_s: float) -> None:
        """A job goes on. May be called by any thread."""
        self.step, self.step_s, self.step_failure = name, now_s, ""

    @property
    def log(self) -> Log:
        """Every line about the partition says so, and whose it is: epoch and number of the newest manifest."""
        newest = self.keeper.manifest
        owner = {} if newest is None else {"epoch": newest.epoch, "number": newest.number}
        return self.worker_log.bind(partition=self.partition, **owner)

    @property
    def dirty(self) -> bool:
        return self.dirty_since is not None

    @property
    def durable(self) -> bool:
        """Whether the newest manifest holds all that was taken."""
        newest = self.keeper.manifest
        return newest is not None and newest.next_offset >= self.next_offset

    @property
    def unseen(self) -> bool:
        """Whether anything changed since the last snapshot."""
        return self.unseen_since is not None

    @property
    def in_memory(self) -> bool:
        return self.state is not None or (self.job is not None and not self.finished)


@dataclass
class Progress:
    """What this run has done so far, for people."""

    records: int = 0
    rows: int = 0
    bad: int = 0
    checkpoints: int = 0
    fences: int = 0
    ends: dict[int, int] = field(default_factory=dict)

    def take(self, records: int, decoded: DecodedBatch) -> None:
        self.records += records
        self.rows += decoded.block.rows
        self.bad += len(decoded.bad)
