"""The sketch thread owns the states and applies batches in order. The loop stays at most some megabytes ahead.

There is one such thread, so one set of BLAS threads works and a replay gives the same bits. Between two batches it
freezes a state for a checkpoint, or takes a sample of it.
"""

from __future__ import annotations

from collections import deque
from concurrent.futures import Future
from dataclasses import dataclass
from typing import TYPE_CHECKING

from sfd_stream.errors import RefusedStateError
from sfd_stream.kafka.records import PartitionBatch
from sfd_stream.loop.runtime import Runtime
from sfd_stream.observe.facts import Facts
from sfd_stream.observe.spectra import StateSample
from sfd_stream.observe.worker_status import Watch
from sfd_stream.state.partition import Frozen, PartitionState
from sfd_stream.wire.rows.decode import DecodedBatch

if TYPE_CHECKING:
    from sfd_stream.worker.partitions import OwnedPartition

AHEAD_ENTRIES = 1 << 19
"""Rows and non-zeros that may wait for the sketch thread before the loop waits for it: some 6 MB, as many as the
smallest buffer holds. So the loop takes the next buffer's rows while one is shrunk."""

PATIENCE_S = 0.5
"""Maximum time the loop waits for the sketch thread before it pauses all partitions. Polling continues."""


@dataclass(eq=False)
class Sketched:
    """The state of a partition that is read. Calls that the loop submits run on the sketch thread."""

    state: PartitionState | None  # None once the partition is finished
    where: str
    facts: Facts  # of the state after the last batch; other threads may read them
    restored: Facts
    restored_s: float  # when the state was restored; `restored` has its facts at that time
    broken: BaseException | None = None  # the error after which the state takes no rows and is not frozen

    @property
    def whole(self) -> PartitionState:
        """The state. Raises the error of a batch that failed half-way."""
        if self.broken is not None:
            raise self.broken
        assert self.state is not None
        return self.state

    def apply(self, decoded: DecodedBatch, next_offset: int, leader_epoch: int | None, tombstones: int) -> None:
        state = self.whole
        try:
            state.apply(decoded, next_offset, leader_epoch, tombstones)
        except OverflowError as error:
            self.broken = RefusedStateError(
                f"the rows of {self.where} are too large to be added up: {error}; its checkpoint stays as it was. To"
                f' start again after them run "sfd-stream checkpoint reset {self.where} --to latest"'
            )
            raise self.broken from error
        except BaseException as error:
            self.broken = error
            raise
        self.facts = Facts.of(state)


class SketchThread:
    """The loop's thread calls it. Only the calls that it submits run on the sketch thread."""

    def __init__(self, runtime: Runtime, watch: Watch) -> None:
        self._runtime = runtime
        self._watch = watch
        self._applying: deque[tuple[Future[None], int]] = deque()  # batches, and the entries of each
        self._ahead = 0  # the entries of all of them
        self._behind_since_s: float | None = None

    def begin(self, owned: OwnedPartition, state: PartitionState) -> None:
        facts = Facts.of(state)
        owned.sketched = Sketched(state, owned.chain.where, facts, facts, self._runtime.clock())

    def drop(self, owned: OwnedPartition) -> None:
        """Frees the memory of the state. Its facts stay for the status."""
        owned.live.state = None

    def apply(self, owned: OwnedPartition, batch: PartitionBatch, decoded: DecodedBatch, tombstones: int) -> None:
        """Submits a batch. It is applied after the batches before it."""
        sketched, number, clock = owned.live, owned.number, self._runtime.clock
        next_offset, leader_epoch = batch.next_offset, batch.leader_epoch

        def apply() -> None:
            before, began_s = sketched.facts, clock()
            sketched.apply(decoded, next_offset, leader_epoch, tombstones)
            self._watch.applied(number, before, sketched.facts, clock() - began_s)

        applying = self._runtime.sketch.submit(apply)
        applying.add_done_callback(self._runtime.wake)
        entries = decoded.block.rows + decoded.block.nnz
        self._applying.append((applying, entries))
        self._ahead += entries

    def freeze(self, owned: OwnedPartition) -> Future[Frozen]:
        """The state after all rows taken so far. If a batch has failed, the future has its error."""
        return self._runtime.sketch.submit(lambda: owned.live.whole.freeze())  # noqa: PLW0108 - asked there, not here

    def copy_state(self, owned: OwnedPartition) -> Future[StateSample]:
        """A sample of the state, for the status."""
        return self._runtime.sketch.submit(lambda: StateSample.of(owned.live.whole))

    def pass_over(self, owned: OwnedPartition, next_offset: int) -> None:
        """Moves the state over offsets that hold no record for us. The thread must be idle."""
        assert self.idle
        owned.live.whole.advance(next_offset)
        owned.live.facts = Facts.of(owned.live.whole)

    # Progress

    def collect(self) -> None:
        """Removes batches that are applied. Raises the error of a batch that failed."""
        while self._applying and self._applying[0][0].done():
            applied, entries = self._applying.popleft()
            self._ahead -= entries
            applied.result()
        if self._ahead <= AHEAD_ENTRIES:
            self._behind_since_s = None
        elif self._behind_since_s is None:
            self._behind_since_s = self._runtime.clock()

    @property
    def idle(self) -> bool:
        """Whether all rows taken so far are applied."""
        return not self._applying

    @property
    def spare_s(self) -> float | None:
        """How long the loop may still wait for the thread before it pauses reading; None if the thread keeps up."""
        if self._behind_since_s is None:
            return None
        return max(self._behind_since_s + PATIENCE_S - self._runtime.clock(), 0.0)
