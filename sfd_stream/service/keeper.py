"""Keeps one partition's state in the store: takes it over, writes it, tidies up behind itself.

The decisions are `state/`'s; here they meet a real store, a real clock and a real broker's answers. Blocking: run it
beside the loop.
"""

from __future__ import annotations

import random
import threading
import uuid
from collections.abc import Callable, Iterator
from concurrent.futures import Executor
from dataclasses import dataclass, field, replace
from typing import Any, Literal, TypeVar

from sfd_stream.errors import FencedError, StoreUnavailableError
from sfd_stream.service.beside import Computing
from sfd_stream.service.store_runner import Patience, no_broker, run
from sfd_stream.state.assign import Wish, assign
from sfd_stream.state.manifest import Binding, Manifest, SnapshotRef
from sfd_stream.state.partition import Durable, Frozen, PartitionState, Shape, encode, restore
from sfd_stream.state.protocol import check_owner, checkpoint, load_blobs
from sfd_stream.state.retention import retain
from sfd_stream.state.steps import Fenced, Question, Refused, Steps
from sfd_stream.storage.contract import Store, key_part

T = TypeVar("T")


class AbandonedError(Exception):
    """The partition was given up while something waited for it: nobody's fault, nothing to tell."""


@dataclass(frozen=True)
class Surroundings:
    """What all partitions of a worker share."""

    store: Store
    readers: Executor
    clock: Callable[[], float]
    wall_clock: Callable[[], float]
    pause: Callable[[float], None]
    give_up_s: float
    keep: int
    reach: Callable[[str], None]
    """Called at each named point of the protocol: tests stop or kill the process there."""
    computing: Computing = field(default_factory=Computing)
    """The background jobs that compute at this moment: the process does not exit before they are done."""


def partition_prefix(group: str, topic: str, partition: int) -> str:
    return f"{key_part(group)}/{key_part(topic)}/{partition}"


class Keeper:
    """Owner of one partition, from claim to revoke. One call at a time."""

    def __init__(self, group: str, topic: str, partition: int, surroundings: Surroundings) -> None:
        self.prefix = partition_prefix(group, topic, partition)
        self.where = f"{topic}/{partition}"
        self.abandoned = threading.Event()
        self.on_failure: Callable[[StoreUnavailableError], None] = lambda _: None
        """Hears of each attempt that the store did not answer, before the next."""
        self.on_step: Callable[[str], None] = lambda _: None
        """Called when a job goes on to its next step, with the step's name."""
        self.manifest: Manifest | None = None
        self.published: SnapshotRef | None = None
        """The last snapshot known to be on the output topic."""
        self.unpublished: bytes | None = None
        """The bytes of a snapshot that was due before us and is not known to be published."""
        self._durable: Durable | None = None
        self._around = surroundings

    def claim(
        self, binding: Binding, shape: Shape, start: Literal["earliest", "latest"], ask: Callable[[Question], Any]
    ) -> PartitionState:
        """The newest state, ours from now on; or a new one. Raises RefusedStateError if it must not be used."""

        def restored(
            manifest: Manifest, sketch: bytes | None, segments: tuple[bytes, ...]
        ) -> tuple[PartitionState, Durable]:
            with self._around.computing():
                return restore(shape, manifest, sketch, segments)

        wish = Wish(
            prefix=self.prefix,
            binding=binding,
            parameters=shape.described(),
            start=start,
            restore=restored,
            nonces=_nonces(),
            written_at_s=self._around.wall_clock(),
        )
        outcome = self._run(assign(wish), ask)
        if isinstance(outcome, Refused):
            raise outcome.error()
        self.manifest, self.published = outcome.manifest, outcome.manifest.published
        self.unpublished = outcome.unpublished
        state, self._durable = outcome.state
        return state

    @property
    def owes_snapshot(self) -> bool:
        return self.manifest is not None and self.manifest.owes_snapshot(self.published)

    @property
    def has_unseen_state(self) -> bool:
        """Whether the last owner left a state that is newer than its last snapshot."""
        assert self.manifest is not None
        return self.manifest.due is None or self.manifest.due.id < self.manifest.state_id

    @property
    def is_published(self) -> bool:
        """Whether the newest state is on the output topic."""
        return not (self.has_unseen_state or self.owes_snapshot)

    def make_durable(self, frozen: Frozen, binding: Binding, snapshot: bytes | None = None) -> Manifest:
        """The manifest that holds exactly `frozen`, in the store, with its snapshot's bytes if one is due.

        `binding` is the topic's as of now.
        """
        assert self.manifest is not None, "a state is claimed before it is written"
        with self._around.computing():
            encoded = replace(encode(frozen, self._durable), snapshot=snapshot)
        steps = checkpoint(
            self.prefix,
            self.manifest,
            encoded,
            binding=binding,
            published=self.published,
            nonce=next(_nonces()),
            written_at_s=self._around.wall_clock(),
        )
        self._around.reach("before-blobs")
        outcome = self._run(steps)
        if isinstance(outcome, Fenced):
            raise self._fenced(outcome)
        if isinstance(outcome, Refused):
            raise outcome.error()
        self.manifest = outcome.manifest
        self._durable = Durable.of(frozen, outcome.manifest)
        return outcome.manifest

    def check_owner(self) -> None:
        """Raises FencedError if somebody else went on: asked just before a snapshot is shown to others."""
        assert self.manifest is not None
        outcome = self._run(check_owner(self.prefix, self.manifest))
        if isinstance(outcome, Fenced):
            raise self._fenced(outcome)

    def snapshot_bytes(self) -> bytes:
        """The newest snapshot's, from the store."""
        assert self.manifest is not None
        assert self.manifest.due is not None
        found = self._run(load_blobs((self.manifest.due.blob,), number=self.manifest.number, where=self.where))
        if isinstance(found, Refused):
            raise found.error()
        return found[0]

    def tidy(self) -> None:
        """Removes what no kept state needs any more."""
        assert self.manifest is not None
        outcome = self._run(retain(self.prefix, keep=self._around.keep, own=self.manifest, where=self.where))
        if isinstance(outcome, Fenced):
            raise self._fenced(outcome)

    def _fenced(self, outcome: Fenced) -> FencedError:
        return FencedError(f"somebody else went on from checkpoint {outcome.number} of {self.where}")

    def _run(self, steps: Steps[T], ask: Callable[[Question], Any] = no_broker) -> T:
        around = self._around
        patience = Patience(around.give_up_s, around.clock, self._pause, _jitter, self.on_failure)
        return run(self._watched(steps), around.store, patience, ask=ask, readers=around.readers)

    def _watched(self, steps: Steps[T]) -> Steps[T]:
        """The same steps, with every write a named point before and after it."""
        answer: Any = None
        while True:
            try:
                request = steps.send(answer)
            except StopIteration as done:
                outcome: T = done.value
                return outcome
            if self.abandoned.is_set():
                raise AbandonedError(self.where)
            name = type(request).__name__
            self.on_step(name)
            self._around.reach(f"before-{name}")
            answer = yield request
            self._around.reach(f"after-{name}")

    def _pause(self, seconds: float) -> None:
        if self.abandoned.wait(seconds):
            raise AbandonedError(self.where)


def _jitter() -> float:
    return random.uniform(0.5, 1)


def _nonces() -> Iterator[str]:
    while True:
        yield uuid.uuid4().hex
