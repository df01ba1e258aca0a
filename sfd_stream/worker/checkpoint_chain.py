"""A partition's chain of checkpoints in the store, as its owner knows it: claim, write, check, prune.

The decisions are those of `state/`; here they meet a real store. Each method that returns a Job is driven by the loop.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any, Literal, TypeVar

from sfd_stream.errors import FencedError, RefusedStateError, StoreUnavailableError
from sfd_stream.state.claim import Wish, assign
from sfd_stream.state.manifest import Binding, Manifest, SnapshotRef
from sfd_stream.state.partition import Durable, Frozen, PartitionState, Shape, encode, restore
from sfd_stream.state.perform import no_broker
from sfd_stream.state.protocol import Created, check_owner, checkpoint, load_blobs
from sfd_stream.state.retention import retain
from sfd_stream.state.steps import Fenced, Question, Refused, Steps
from sfd_stream.storage.contract import partition_prefix
from sfd_stream.worker.jobs import Job, procedure, reached
from sfd_stream.worker.runtime import Plan, Runtime

T = TypeVar("T")


class CheckpointChain:
    """From claim to release. One job at a time; FencedError if another owner went on."""

    def __init__(
        self, plan: Plan, partition: int, runtime: Runtime, failed: Callable[[StoreUnavailableError], None]
    ) -> None:
        """`failed` is called for each attempt that the store did not answer, before the next one."""
        topic = plan.input.topic
        self.prefix = partition_prefix(plan.group, topic, partition)
        self.where = f"{topic}/{partition}"
        self.manifest: Manifest | None = None
        self.published: SnapshotRef | None = None
        """The last snapshot that is known to be on the output topic."""
        self._durable: Durable | None = None
        self._settings = plan.checkpoint
        self._runtime = runtime
        self._failed = failed

    # What is known

    @property
    def newest(self) -> Manifest:
        assert self.manifest is not None, "a state is claimed before it is used"
        return self.manifest

    @property
    def owes_snapshot(self) -> bool:
        return self.manifest is not None and self.manifest.owes_snapshot(self.published)

    @property
    def has_newer_state(self) -> bool:
        """Whether the newest state is newer than the last snapshot of it."""
        return self.newest.due is None or self.newest.due.id < self.newest.state_id

    @property
    def is_published(self) -> bool:
        """Whether the newest state is on the output topic."""
        return not (self.has_newer_state or self.owes_snapshot)

    def acknowledge(self, published: SnapshotRef) -> None:
        self.published = published

    # Jobs

    def claim(
        self, binding: Binding, shape: Shape, start: Literal["earliest", "latest"], ask: Callable[[Question], Job[Any]]
    ) -> Job[tuple[PartitionState, bytes | None]]:
        """The newest state, ours from now on, and its snapshot if the last owner left it pending; or a new state.

        Raises RefusedStateError if the state must not be used.
        """
        wish = Wish(
            prefix=self.prefix,
            binding=binding,
            parameters=shape.described(),
            start=start,
            restore=lambda manifest, sketch, segments: restore(shape, manifest, sketch, segments),
            nonces=iter(self._runtime.nonce, None),
            written_at_s=self._runtime.wall_clock(),
        )
        claimed = yield from self._run(assign(wish), ask)
        self.manifest, self.published = claimed.manifest, claimed.manifest.published
        state, self._durable = claimed.state
        return state, claimed.unpublished

    def write(self, frozen: Frozen, binding: Binding, snapshot: bytes | None = None) -> Job[Manifest]:
        """The manifest that holds exactly `frozen`, durable, with the bytes of its snapshot if one is due.

        `binding` is the topic's as of now.
        """
        yield from reached(self._runtime, "before-blobs")
        created = yield from self._run(self._writing(frozen, binding, snapshot))
        self.manifest = created.manifest
        self._durable = Durable.of(frozen, created.manifest)
        return created.manifest

    def _writing(self, frozen: Frozen, binding: Binding, snapshot: bytes | None) -> Steps[Created | Fenced | Refused]:
        """Encodes on the thread that then writes."""
        encoded = replace(encode(frozen, self._durable), snapshot=snapshot)
        return (
            yield from checkpoint(
                self.prefix,
                self.newest,
                encoded,
                binding=binding,
                published=self.published,
                nonce=self._runtime.nonce(),
                written_at_s=self._runtime.wall_clock(),
            )
        )

    def check_owner(self) -> Job[None]:
        """Raises FencedError if another owner went on: asked just before a snapshot is published."""
        yield from self._run(check_owner(self.prefix, self.newest))

    def snapshot_bytes(self) -> Job[bytes]:
        """The newest snapshot's, from the store. Raises FencedError if it is gone because another owner went on."""
        due = self.newest.due
        assert due is not None
        try:
            found = yield from self._run(load_blobs((due.blob,), number=self.newest.number, where=self.where))
        except RefusedStateError:
            yield from self.check_owner()
            raise
        return found[0]

    def prune(self) -> Job[None]:
        """Removes what no kept state needs any more."""
        yield from self._run(retain(self.prefix, keep=self._settings.keep, own=self.newest, where=self.where))

    def _run(self, steps: Steps[T | Fenced | Refused], ask: Callable[[Question], Job[Any]] = no_broker) -> Job[T]:
        give_up_s = self._settings.give_up_s
        outcome = yield from procedure(self._runtime, steps, give_up_s=give_up_s, failed=self._failed, ask=ask)
        if isinstance(outcome, Fenced):
            raise FencedError(f"somebody else went on from checkpoint {outcome.number} of {self.where}")
        if isinstance(outcome, Refused):
            raise outcome.error()
        return outcome
