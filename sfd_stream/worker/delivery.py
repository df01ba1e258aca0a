"""Delivers a partition's newest manifest to the broker: publishes its snapshot and commits its offset.

    offsets only    nothing to publish; the offset is committed
    idempotent      the snapshot is published and acknowledged, then the offset is committed
    transactional   both in one transaction (transactional.py)

A delivery that fails stays pending in the manifest. This owner or the next one calls `deliver` again later.
"""

from __future__ import annotations

import contextlib
from dataclasses import dataclass

from sfd_stream.errors import SfdError
from sfd_stream.kafka.producer import TOO_LARGE, Sink, Ticket
from sfd_stream.kafka.source import Source
from sfd_stream.loop.jobs import Job, Wait, answer, reached
from sfd_stream.loop.runtime import Runtime
from sfd_stream.observe.logs import Log
from sfd_stream.observe.worker_status import Watch
from sfd_stream.state.offset_metadata import metadata_of
from sfd_stream.state.policy import SnapshotPolicy
from sfd_stream.wire.snapshots import Message, SnapshotEncoder
from sfd_stream.worker.partitions import OwnedPartition

CONFIRM_EVERY_S, CONFIRM_TIMEOUT_S = 30.0, 5.0
"""How often the committed offsets are compared with ours. The coordinator lets every member of a group commit offsets
of every partition: a member that lost a partition without notice may commit an older offset after us."""


@dataclass(eq=False, kw_only=True)
class Delivery:
    """Commits offsets, and publishes snapshots if there is an encoder. Only the loop's thread calls it.

    A snapshot may be published twice, under the same id with the same bytes. A zombie that slept between its owner
    check and its produce may publish an older snapshot after a newer one. Readers that have the newer one drop it; all
    others get the newest one again with the next publication.
    """

    runtime: Runtime
    source: Source
    log: Log
    watch: Watch
    policy: SnapshotPolicy
    encoder: SnapshotEncoder | None = None  # None: nothing is published
    sink: Sink | None = None

    def is_due(self, owned: OwnedPartition, now_s: float) -> bool:
        """Whether a snapshot is due. If so, a checkpoint with a snapshot is due too."""
        if self.encoder is None:
            return False
        return self.policy.is_due(owned.taken.unpublished, now_s, has_pending=owned.chain.has_pending_snapshot)

    def is_again_due(self, owned: OwnedPartition, elapsed_s: float) -> bool:
        """Whether the newest snapshot is to be published once more: a zombie may have published an older one after it.
        `elapsed_s`: since the last publication was begun.
        """
        return self.encoder is not None and owned.chain.published is not None and elapsed_s >= self.policy.republish_s

    def deliver(self, owned: OwnedPartition, snapshot: bytes | None = None, *, again: bool = False) -> Job[None]:
        """Delivers the newest manifest. `snapshot`: the bytes of its pending snapshot, if the caller has them. `again`:
        publish the newest snapshot once more.
        """
        if again:
            snapshot = yield from owned.chain.snapshot_bytes()
        if snapshot is not None and self.encoder is not None:
            yield from self._publish(owned, self.encoder, snapshot)
        yield from self._commit(owned)

    def _publish(self, owned: OwnedPartition, encoder: SnapshotEncoder, snapshot: bytes) -> Job[None]:
        """A snapshot that the broker does not acknowledge stays pending."""
        due = owned.chain.newest.due
        assert due is not None
        yield from owned.chain.check_owner()
        began_s = self.runtime.clock()
        message = encoder.message(snapshot, due.blob.key)
        yield from reached(self.runtime, "before-publish")
        ticket = yield from self._acknowledged(encoder.topic, message)
        yield from reached(self.runtime, "after-publish")
        if ticket.delivered:
            owned.chain.published = due
            owned.taken.unpublished.end()
            self.watch.snapshot_published(owned.number, self.runtime.clock() - began_s)
            return
        too_large = ticket.error == TOO_LARGE
        self.watch.snapshot_failed("refused" if too_large else "unavailable")
        reason = encoder.advice(len(message.value)) if too_large else ticket.error
        owned.log.warning("snapshot publish failed, will retry", reason=reason)

    def _acknowledged(self, topic: str, message: Message) -> Job[Ticket]:
        """Waits for the delivery report, which polling the sink brings."""
        assert self.sink is not None
        ticket = self.sink.publish(topic, *message)
        while ticket is None or not ticket.done:
            yield Wait("delivery report")
            ticket = ticket or self.sink.publish(topic, *message)  # None: the queue was full
        return ticket

    def _commit(self, owned: OwnedPartition) -> Job[None]:
        newest = owned.chain.newest
        published = self.encoder is None or not (newest.has_newer_state or owned.chain.has_pending_snapshot)
        yield from reached(self.runtime, "before-commit")
        self.source.commit({owned.number: newest.next_offset}, metadata_of(None, published=published))
        yield from reached(self.runtime, "after-commit")

    def serve(self) -> None:
        """Called once a turn."""

    def confirm(self) -> Job[None]:
        """In the background: where the committed offset is older than our last commit, commits ours again."""
        while True:
            yield Wait("next confirmation", for_s=CONFIRM_EVERY_S)
            ours = self.source.acknowledged_commits
            if not ours:
                continue
            with contextlib.suppress(SfdError, TimeoutError):  # the worker itself reports a broker that is unavailable
                asking = self.runtime.io.submit(self.source.committed, tuple(ours), CONFIRM_TIMEOUT_S)
                found = yield from answer("committed", asking)
                for number in self.source.renew_commits(ours, found):
                    self.log.info("committed offset went back, committing it again", partition=number)

    def close(self) -> None:
        """Nothing to close."""
