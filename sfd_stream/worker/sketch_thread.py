"""The sketch thread: it owns the states, and applies batches in order. The loop stays a few batches ahead, no more.

One thread, so that one set of BLAS threads works and a replay gives the same bits. A checkpoint or a sample that needs
a state as of now is served between two batches.
"""

from __future__ import annotations

from collections import deque
from concurrent.futures import Future
from dataclasses import dataclass
from typing import TYPE_CHECKING

from sfd_stream.errors import RefusedStateError
from sfd_stream.kafka.records import PartitionBatch
from sfd_stream.observe.facts import Facts
from sfd_stream.observe.spectra import Shot
from sfd_stream.observe.worker_status import Watch
from sfd_stream.state.partition import Frozen, PartitionState
from sfd_stream.wire.rows.decode import DecodedBatch
from sfd_stream.worker.runtime import Runtime

if TYPE_CHECKING:
    from sfd_stream.worker.partitions import OwnedPartition

AHEAD_MAX = 4
"""Batches that may wait for the sketch thread before the loop waits for it."""

PATIENCE_S = 0.5
"""Maximum time the loop waits for the sketch thread before it pauses all partitions. Polling continues."""


@dataclass(eq=False)
class Sketched:
    """The state of a partition that is read. The sketch thread writes it."""

    state: PartitionState | None
    """None once the partition is finished."""
    where: str
    facts: Facts
    """Of the state after the last batch: what other threads may read."""
    broken: BaseException | None = None
    """Why the state takes no more rows, and is not frozen either."""

    @classmethod
    def of(cls, state: PartitionState, where: str) -> Sketched:
        return cls(state, where, Facts.of(state))


class SketchThread:
    """The loop's thread calls it; only what it submits runs on the sketch thread."""

    def __init__(self, runtime: Runtime, watch: Watch) -> None:
        self._runtime = runtime
        self._watch = watch
        self._applying: deque[Future[None]] = deque()
        self._behind_since_s: float | None = None

    # What runs there

    def begin(self, owned: OwnedPartition, state: PartitionState) -> None:
        owned.sketched = Sketched.of(state, owned.chain.where)

    def drop(self, owned: OwnedPartition) -> None:
        """Frees the memory; the facts stay for the status."""
        assert owned.sketched is not None
        owned.sketched.state = None

    def apply(self, owned: OwnedPartition, batch: PartitionBatch, decoded: DecodedBatch, tombstones: int) -> None:
        """After the batches before it."""
        rest = (batch.next_offset, batch.leader_epoch, tombstones)
        applying = self._runtime.sketch.submit(self._apply, owned.number, owned.live, decoded, *rest)
        applying.add_done_callback(self._runtime.wake)
        self._applying.append(applying)

    def _apply(
        self, partition: int, sketched: Sketched, decoded: DecodedBatch, next_offset: int, epoch: int | None, nulls: int
    ) -> None:
        """On the sketch thread."""
        if sketched.broken is not None:
            raise sketched.broken
        state, before, began_s = sketched.state, sketched.facts, self._runtime.clock()
        assert state is not None
        try:
            state.apply(decoded, next_offset, epoch, nulls)
        except OverflowError as error:
            sketched.broken = _too_large(sketched.where, error)
            raise sketched.broken from error
        except BaseException as error:
            sketched.broken = error
            raise
        sketched.facts = Facts.of(state)
        self._watch.applied(partition, before, sketched.facts, self._runtime.clock() - began_s)

    def freeze(self, owned: OwnedPartition) -> Future[Frozen]:
        """The state after all rows taken so far. After a batch that failed, that batch's error."""
        return self._runtime.sketch.submit(_freeze, owned.live)

    def shoot(self, owned: OwnedPartition) -> Future[Shot]:
        """A sample of the state, for the status."""
        return self._runtime.sketch.submit(_shoot, owned.live)

    def pass_over(self, owned: OwnedPartition, next_offset: int) -> None:
        """Offsets that hold no record for us; the thread is idle."""
        sketched = owned.sketched
        assert sketched is not None
        assert sketched.state is not None
        assert self.idle
        sketched.state.advance(next_offset)
        sketched.facts = Facts.of(sketched.state)

    # How far it is

    def collect(self) -> None:
        """Removes what is done. Raises the error of a batch that failed."""
        while self._applying and self._applying[0].done():
            self._applying.popleft().result()
        if len(self._applying) <= AHEAD_MAX:
            self._behind_since_s = None
        elif self._behind_since_s is None:
            self._behind_since_s = self._runtime.clock()

    @property
    def idle(self) -> bool:
        """Whether all rows taken so far are applied."""
        return not self._applying

    @property
    def spare_s(self) -> float | None:
        """How long the loop may still wait for it before it pauses reading; None if it keeps up."""
        if self._behind_since_s is None:
            return None
        return max(self._behind_since_s + PATIENCE_S - self._runtime.clock(), 0.0)


def _freeze(sketched: Sketched) -> Frozen:
    """On the sketch thread."""
    if sketched.broken is not None:
        raise sketched.broken
    assert sketched.state is not None
    return sketched.state.freeze()


def _shoot(sketched: Sketched) -> Shot:
    """On the sketch thread."""
    assert sketched.state is not None
    return Shot.of(sketched.state)


def _too_large(where: str, error: OverflowError) -> RefusedStateError:
    return RefusedStateError(
        f"the rows of {where} are too large to be added up: {error}; its checkpoint stays as it was. To start again "
        f'after them run "sfd-stream checkpoint reset {where} --to latest"'
    )
