"""The owner's view of a partition's chain of checkpoints in the store: claim, write, check, prune.

`state/` makes the decisions; this class runs them on a real store. The loop drives each method that returns a Job.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Literal, TypeVar

from sfd_stream.errors import FencedError
from sfd_stream.loop.jobs import Ask, Job, procedure, reached
from sfd_stream.loop.runtime import Plan, Runtime
from sfd_stream.state.claim import Wish, assign
from sfd_stream.state.manifest import Binding, Manifest, SnapshotRef
from sfd_stream.state.partition import Durable, Frozen, PartitionState, Shape, encode, restore
from sfd_stream.state.perform import no_broker
from sfd_stream.state.protocol import Created, check_owner, checkpoint, load_due
from sfd_stream.state.retention import retain
from sfd_stream.state.steps import Fenced, Refused, Steps
from sfd_stream.storage.contract import partition_prefix

T = TypeVar("T")


@dataclass(eq=False)
class CheckpointChain:
    """Used from claim to release, by one job at a time. A job raises FencedError if another owner continued it."""

    plan: Plan
    partition: int
    runtime: Runtime
    manifest: Manifest | None = None
    published: SnapshotRef | None = None  # the last snapshot that is known to be on the output topic
    _durable: Durable | None = None

    def __post_init__(self) -> None:
        topic = self.plan.input.topic
        self.prefix = partition_prefix(self.plan.group, topic, self.partition)
        self.where = f"{topic}/{self.partition}"

    # Known without a request to the store

    @property
    def newest(self) -> Manifest:
        assert self.manifest is not None, "a state is claimed before it is used"
        return self.manifest

    @property
    def has_pending_snapshot(self) -> bool:
        return self.newest.has_pending_snapshot(self.published)

    # Jobs

    def claim(
        self, binding: Binding, shape: Shape, start: Literal["earliest", "latest"], ask: Ask
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
            nonces=iter(self.runtime.nonce, None),
            written_at_s=self.runtime.wall_clock(),
        )
        claimed = yield from self._run(assign(wish), ask)
        self.manifest, self.published = claimed.manifest, claimed.manifest.published
        state, self._durable = claimed.state
        return state, claimed.unpublished

    def write(self, frozen: Frozen, binding: Binding, snapshot: bytes | None = None) -> Job[Manifest]:
        """Makes `frozen` durable, with the bytes of its snapshot if one is due. Returns the manifest.

        `binding`: the ids of cluster and topic as of now.
        """
        yield from reached(self.runtime, "before-blobs")
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
                nonce=self.runtime.nonce(),
                written_at_s=self.runtime.wall_clock(),
            )
        )

    def check_owner(self) -> Job[None]:
        """Raises FencedError if another owner has continued the chain. Called just before a snapshot is published."""
        yield from self._run(check_owner(self.prefix, self.newest))

    def snapshot_bytes(self) -> Job[bytes]:
        """The newest snapshot, from the store. Raises FencedError if another owner has continued and removed it."""
        return (yield from self._run(load_due(self.prefix, self.newest, where=self.where)))

    def prune(self) -> Job[None]:
        """Removes manifests and blobs that no kept state needs."""
        yield from self._run(retain(self.prefix, keep=self.plan.checkpoint.keep, own=self.newest, where=self.where))

    def _run(self, steps: Steps[T | Fenced | Refused], ask: Ask = no_broker) -> Job[T]:
        outcome = yield from procedure(self.runtime, steps, give_up_s=self.plan.checkpoint.give_up_s, ask=ask)
        if isinstance(outcome, Fenced):
            raise FencedError(f"another owner continued from checkpoint {outcome.number} of {self.where}")
        if isinstance(outcome, Refused):
            raise outcome.error()
        return outcome
