"""The thread that sketches: it owns the states, and applies batches in order. The loop stays a few ahead, no more.

One thread, so that one set of BLAS threads works and a replay gives the same bits. Whatever wants a state as of now (a
checkpoint, a look) asks here, and has it between two batches. Who is ahead of the sketch or of the store waits by
pausing partitions, never by not polling.
"""

from __future__ import annotations

from collections import deque
from concurrent.futures import Future
from concurrent.futures import TimeoutError as NotYetError
from typing import Any, Protocol

from sfd_stream.errors import RefusedStateError
from sfd_stream.kafka.source import Source
from sfd_stream.service.beside import Beside
from sfd_stream.service.keeper import Surroundings
from sfd_stream.service.looks import Shot
from sfd_stream.service.rebalance import Tenures
from sfd_stream.service.seen import Facts
from sfd_stream.service.tenure import Tenure
from sfd_stream.service.watch import Watch
from sfd_stream.state.partition import Frozen
from sfd_stream.wire.rows import DecodedBatch

AHEAD_MAX = 4
"""Batches that may wait for the sketching thread before the loop waits for it."""

PATIENCE_S = 0.5
"""So long the loop waits for the sketching thread before it pauses reading and goes on polling."""


class Host(Protocol):
    """What is needed of the worker."""

    around: Surroundings
    source: Source
    tenures: Tenures
    watch: Watch


class Sketching:
    """All but what it runs is called on the loop's thread."""

    def __init__(self, host: Host) -> None:
        self._host = host
        self._thread = Beside(1, "sketch")
        self._applying: deque[Future[None]] = deque()
        self._stalled = False

    @property
    def idle(self) -> bool:
        """Whether all that was taken is applied."""
        return not self._applying

    def apply(self, tenure: Tenure, decoded: DecodedBatch, next_offset: int, *more: Any) -> None:
        """In its turn."""
        self._applying.append(self._thread.submit(self._apply, tenure, decoded, next_offset, *more))

    def _apply(self, tenure: Tenure, decoded: DecodedBatch, next_offset: int, *more: Any) -> None:
        """On the sketching thread."""
        if tenure.broken is not None:
            raise tenure.broken
        state, before, clock = tenure.state, tenure.facts, self._host.around.clock
        assert state is not None
        assert before is not None
        began_s = clock()
        try:
            state.apply(decoded, next_offset, *more)
        except OverflowError as error:
            tenure.broken = _too_large(tenure.keeper.where, error)
            raise tenure.broken from error
        except BaseException as error:
            tenure.broken = error
            raise
        tenure.facts = Facts.of(state)
        self._host.watch.applied(tenure.partition, before, tenure.facts, clock() - began_s)

    def freeze(self, tenure: Tenure) -> Future[Frozen]:
        """The state after all that was taken so far."""
        return self._thread.submit(_freeze, tenure)

    def shoot(self, tenure: Tenure) -> Future[Shot]:
        return self._thread.submit(Shot.of, tenure.state)

    def advance(self, tenure: Tenure, next_offset: int) -> None:
        """Over offsets that hold no record for us; the thread is idle."""
        assert tenure.state is not None
        assert self.idle
        tenure.state.advance(next_offset)
        tenure.facts, tenure.next_offset = Facts.of(tenure.state), next_offset
        tenure.dirty_since = self._host.around.clock() if tenure.dirty_since is None else tenure.dirty_since

    # Pausing

    def keep_pace(self) -> None:
        """A long shrink pauses reading, never polling."""
        while self._applying and (self._applying[0].done() or len(self._applying) > AHEAD_MAX):
            try:
                self._applying[0].result(PATIENCE_S)
            except NotYetError:
                if not self._stalled:
                    self._stalled = True
                    self._host.source.pause(self._host.source.assigned)
                return
            self._applying.popleft()
        if self._stalled:
            self._stalled = False
            ready = [
                t.partition for t in self._host.tenures.all() if not (t.held_back or t.schemas_awaited or t.finished)
            ]
            self._host.source.resume(ready)

    def welcome(self, partition: int) -> None:
        """One that begins to be read waits with the others."""
        if self._stalled:
            self._host.source.pause([partition])

    def hold_back(self, tenure: Tenure, *, too_far: bool) -> None:
        """A store that is away must not leave an ever longer way to replay: stop reading until it is back."""
        if too_far == tenure.held_back:
            return
        tenure.held_back = too_far
        if too_far:
            tenure.log.warning("paused: the checkpoint store does not keep up")
            self._host.source.pause([tenure.partition])
        else:
            tenure.log.info("resumed: the checkpoint store has caught up")
            if not self._stalled and not tenure.schemas_awaited:
                self._host.source.resume([tenure.partition])

    def await_schemas(self, tenure: Tenure, schema_ids: frozenset[int]) -> None:
        """The partition, which is paused, is read on when these are known: call it again with none of them."""
        tenure.schemas_awaited = schema_ids
        if not schema_ids and not self._stalled and not tenure.held_back:
            self._host.source.resume([tenure.partition])

    def close(self) -> None:
        """Returns when the running batch is applied; what waits is dropped."""
        self._thread.shutdown(wait=True, cancel_futures=True)


def _freeze(tenure: Tenure) -> Frozen:
    """On the sketching thread."""
    if tenure.broken is not None:
        raise tenure.broken
    assert tenure.state is not None
    return tenure.state.freeze()


def _too_large(where: str, error: OverflowError) -> RefusedStateError:
    return RefusedStateError(
        f"the rows of {where} are too large to be added up: {error}; its checkpoint stays as it was. To begin anew "
        f'after them run "sfd-stream checkpoint reset {where} --to latest"'
    )
