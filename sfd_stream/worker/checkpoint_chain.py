"""The owner's view of a partition's chain of checkpoints in the store: claim, write, check, prune.

`state/` makes the decisions; this class runs them on a real store. The loop drives each method that returns a Job.
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
    """From claim to release. One job at a time; a job raises FencedError if another owner has continued the chain."""

    def __init__(
        self, plan: Plan, partition: int, runtime: Runtime, failed: Callable[[StoreUnavailableError], None]
    ) -> None:
        """`failed` is called after each request that the store did not answer, before the next attempt."""
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

    # Known without a request to the store

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
        """Claims the newest state, or begins a new one. Returns it, and its snapshot if that is still unpublished.

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
        """Makes `frozen` durable, with the bytes of its snapshot if one is due. Returns the manifest.

        `binding`: the ids of cluster and topic as of now.
        """
        yield from reached(self._runtime, "before-blobs")
        created = yield from self._run(self._writing(frozen, binding, snapshot))
        self.manifest = created.manifest
        self._durable = Durable.of(frozen, created.manifest)
        return created.manifest

    def _writing(self, frozen: Frozen, binding: Binding, snapshot: bytes | None) -> Steps[Created | Fenced | Refused]:
        """Runs on an io thread: the thread that encodes the state also writes it."""
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
        """Raises FencedError if another owner has continued the chain. Called just before a snapshot is published."""
        yield from self._run(check_owner(self.prefix, self.newest))

    def snapshot_bytes(self) -> Job[bytes]:
        """The newest snapshot, from the store. Raises FencedError if another owner has continued and removed it."""
        due = self.newest.due
        assert due is not None
        try:
            found = yield from self._run(load_blobs((due.blob,), number=self.newest.number, where=self.where))
        except RefusedStateError:
            yield from self.check_owner()
            raise
        return found[0]

    def prune(self) -> Job[None]:
        """Removes manifests and blobs that no kept state needs."""
        yield from self._run(retain(self.prefix, keep=self._settings.keep, own=self.newest, where=self.where))

    def _run(self, steps: Steps[T | Fenced | Refused], ask: Callable[[Question], Job[Any]] = no_broker) -> Job[T]:
        give_up_s = self._settings.give_up_s
        outcome = yield from procedure(self._runtime, steps, give_up_s=give_up_s, failed=self._failed, ask=ask)
        if isinstance(outcome, Fenced):
            raise FencedError(f"somebody else went on from checkpoint {outcome.number} of {self.where}")
        if isinstance(outcome, Refused):
            raise outcome.error()
        return outcome
