"""Would-be owners of one partition, as programs: assign, replay, checkpoint, publish, commit, prune.

What the worker will do, without its threads. Each yields requests to a `World` and may be stopped, for ever
or for a while, at every yield. `Owner` is right; the subclasses in test_mutations.py undo one thing each.
"""

from __future__ import annotations

import itertools
from collections.abc import Generator, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from sfd_stream.state import claim as assign_module
from sfd_stream.state import protocol, repair, retention
from sfd_stream.state.protocol import Created, NewState
from sfd_stream.state.steps import Answer, Fenced, Put, Refused
from tests.unit.state.world import (
    BINDING,
    PARAMETERS,
    PREFIX,
    Choose,
    Commit,
    Poll,
    Produce,
    Violation,
    World,
    decode_offsets,
    encode_offsets,
    encode_snapshot,
    law,
)

if TYPE_CHECKING:
    from sfd_stream.state.manifest import Binding, BlobRef, Manifest, SnapshotRef, StateId

Program = Generator[Any, Any, Any]


@dataclass
class Rows:
    """The model of a partition's state: which offsets are in the sketch, which in the buffer's segments."""

    sketch: tuple[int, ...]
    sketch_ref: BlobRef | None
    segments: list[tuple[tuple[int, ...], BlobRef]]
    pending: tuple[int, ...] = ()

    @property
    def offsets(self) -> tuple[int, ...]:
        return (*self.sketch, *(x for rows, _ in self.segments for x in rows), *self.pending)


def restore(manifest: Manifest, sketch: bytes | None, buffer: tuple[bytes, ...]) -> Rows:
    segments = [(decode_offsets(d), ref) for d, ref in zip(buffer, manifest.buffer, strict=True)]
    rows = Rows(() if sketch is None else decode_offsets(sketch), manifest.sketch, segments)
    law(rows.offsets == tuple(range(manifest.next_offset)), "a restored state does not count every row once")
    return rows


class Owner:
    binding: Binding = BINDING

    def __init__(self, world: World, process: int, life: int) -> None:
        self.world = world
        self.process = process
        self.life = life
        self.nonces: Iterator[str] = (f"{process}x{life}x{i}" for i in itertools.count())
        self.own: Manifest = None  # type: ignore[assignment]  # nothing runs before the claim
        self.published: SnapshotRef | None = None
        self.due_bytes: bytes | None = None
        self.rows: Rows = None  # type: ignore[assignment]

    # -- the program -----------------------------------------------------------------------------------

    def run(self) -> Program:
        """Until fenced or refused; the schedule ends it otherwise."""
        if not (yield from self.take_over()):
            return
        while (yield from self.turn()):
            pass

    def take_over(self) -> Program:
        outcome = yield from assign_module.assign(self.wish())
        if isinstance(outcome, Refused):
            raise Violation(f"a healthy owner was refused: {outcome.why}")
        self.world.check_created(outcome.manifest)
        self.own, self.rows, self.published = outcome.manifest, outcome.state, outcome.manifest.published
        if outcome.unpublished is not None:
            self.due_bytes = outcome.unpublished
            if not (yield from self.publish()):
                return False
        yield Commit(self.own.next_offset)
        return True

    def turn(self) -> Program:
        match (yield Choose(6)):
            case 0 | 1:
                return (yield from self.prune())
            case 2:
                return (yield from self.republish())
            case _:
                end = yield Poll()
                some = min(end, len(self.rows.offsets) + 1 + (yield Choose(3)))
                self.rows.pending += tuple(range(len(self.rows.offsets), some))
                return (yield from self.checkpoint())

    def wish(self) -> assign_module.Wish[Rows]:
        return assign_module.Wish(PREFIX, self.binding, PARAMETERS, "earliest", restore, self.nonces, 0.0)

    # -- checkpoint, publish, commit -------------------------------------------------------------------

    def checkpoint(self) -> Program:
        if not self.rows.pending and not self.own.has_pending_snapshot(self.published):
            return True
        state, after = self.freeze((yield Choose(3)) == 0, (yield Choose(2)) == 0)
        nonce = next(self.nonces)
        outcome = yield from abandonable(self.durable(state, nonce))
        if outcome is None:
            return True
        if not isinstance(outcome, Created):
            self.world.check_fenced(self.own.number + 1, nonce)
            return False
        self.world.check_created(outcome.manifest)
        self.own = outcome.manifest
        self.rows = Rows(after.sketch, self.own.sketch, [])
        for (rows, _), ref in zip(after.segments, self.own.buffer, strict=True):
            self.rows.segments.append((rows, ref))
        if state.snapshot is not None:
            self.due_bytes = state.snapshot
            if not (yield from self.publish()):
                return False
        yield Commit(self.own.next_offset)
        return True

    def durable(self, state: NewState, nonce: str) -> Program:
        return protocol.checkpoint(
            PREFIX,
            self.own,
            state,
            binding=BINDING,
            published=self.published,
            nonce=nonce,
            written_at_s=0.0,
        )

    def freeze(self, shrinks: bool, snapshot_due: bool) -> tuple[NewState, Rows]:
        rows = self.rows
        if shrinks:
            after = Rows(rows.offsets, None, [])
            sketch: bytes | BlobRef | None = encode_offsets(rows.offsets)
            buffer: tuple[bytes | BlobRef, ...] = ()
        else:
            new = [(rows.pending, None)] if rows.pending else []
            after = Rows(rows.sketch, rows.sketch_ref, [*rows.segments, *new])  # type: ignore[list-item]
            sketch = rows.sketch_ref
            buffer = tuple(encode_offsets(x) if ref is None else ref for x, ref in after.segments)
        due = snapshot_due or self.own.has_pending_snapshot(self.published)
        snapshot = encode_snapshot(self.snapshot_id(), rows.offsets) if due else None
        count = len(rows.offsets)
        return NewState(count, None, sketch, buffer, {"rows": count}, PARAMETERS, snapshot), after

    def snapshot_id(self) -> StateId:
        return self.own.next_state_id

    def publish(self) -> Program:
        """What is due, from its stored bytes. Whether it was acknowledged is remembered; False if fenced."""
        outcome, newest = yield from self.timed(protocol.check_owner(PREFIX, self.own))
        if isinstance(outcome, Fenced):
            law(self.world.newest > self.own.number, "fenced by nobody")
            return False
        law(newest == self.own.number, "one who was fenced was told that he is still the owner")
        if (yield self.record()) is Answer.DONE:
            self.published = self.own.due
        return True

    def timed(self, steps: Program) -> Program:
        """The outcome, and which manifest was the newest when the first answer was given."""
        answer, newest = None, None
        while True:
            try:
                request = steps.send(answer)
            except StopIteration as stop:
                return stop.value, self.world.newest if newest is None else newest
            answer = yield request
            if newest is None and answer is not Answer.UNKNOWN:
                newest = self.world.newest

    def record(self) -> Produce:
        assert self.own.due is not None
        assert self.due_bytes is not None
        return Produce(self.own.due, self.due_bytes)

    def republish(self) -> Program:
        if self.due_bytes is None:  # published by an earlier owner: its bytes are in the store
            if self.own.due is None:
                return True
            found = yield from protocol.load_blobs((self.own.due.blob,), number=self.own.number, where="rows/0")
            if isinstance(found, Refused):  # pruned by one who came later
                law(self.world.newest > self.own.number, found.why)
                return False
            (self.due_bytes,) = found
        return (yield from self.publish())

    def prune(self) -> Program:
        outcome = yield from retention.retain(PREFIX, keep=self.world.keep, own=self.own, where="rows/0")
        return isinstance(outcome, retention.Removed)


class Foreigner(Owner):
    """The same prefix in another's settings: must be refused, and must leave no trace."""

    def __init__(self, world: World, process: int, life: int, binding: Binding) -> None:
        super().__init__(world, process, life)
        self.binding = binding

    def run(self) -> Program:
        outcome = yield from assign_module.assign(self.wish())
        law(isinstance(outcome, Refused), "a foreign configuration claimed the partition")


def person(world: World, nonce: str) -> Program:
    """`checkpoint rollback`, in the middle of everything."""
    mark = repair.Mark(PREFIX, "rows/0", nonce, 0.0)
    outcome = yield from repair.rollback(mark)
    if isinstance(outcome, Created):
        world.check_created(outcome.manifest)


def abandonable(steps: Any) -> Program:
    """Gives up now and then while blobs are being put (the store was away); never once a CREATE was sent."""
    answer = None
    while True:
        try:
            request = steps.send(answer)
        except StopIteration as stop:
            return stop.value
        if isinstance(request, Put) and (yield Choose(8)) == 0:
            yield request  # it may well arrive
            return None
        answer = yield request
