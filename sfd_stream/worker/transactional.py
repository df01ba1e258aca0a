"""Transactional delivery: a state's snapshot and its offset become visible together, in order, each once.

The store decides who owns a partition; the transaction decides what a `read_committed` reader gets. The metadata of
each offset is the id of its state. A due snapshot is in the transaction of the first offset whose id is not below its
own, so the committed id determines which snapshots are visible:

    settle   after a claim, or when a result is unknown: read the committed id
    deliver  membership ──► still the newest in the store? ──► offset and due snapshot in one transaction

The membership (member and generation) is taken *before* the store is asked. Another owner claims in a later generation,
in which the broker refuses this membership: a zombie is refused at whatever step it slept.
"""

from __future__ import annotations

from dataclasses import dataclass

from sfd_stream.kafka.commits import Committed
from sfd_stream.kafka.producer import TOO_LARGE
from sfd_stream.kafka.transactional_producer import NotCommittedError, Offset, Outgoing, SharedTransactions
from sfd_stream.loop.jobs import Job, Wait, answer, reached
from sfd_stream.loop.questions import Questions
from sfd_stream.state.manifest import Manifest
from sfd_stream.state.offset_metadata import metadata_of, state_id_in
from sfd_stream.state.policy import PENDING_AFTER_S
from sfd_stream.wire.snapshots import SnapshotEncoder
from sfd_stream.worker.delivery import Delivery
from sfd_stream.worker.partitions import OwnedPartition

PAUSES_S = (0.1, 0.3, 1.0)
"""After each attempt. After the last one the delivery stays pending; reading continues meanwhile."""


@dataclass(eq=False, kw_only=True)
class Transactional(Delivery):
    """Snapshot and offset in one transaction. Partitions that wait at the same time share one."""

    questions: Questions
    transactions: SharedTransactions
    encoder: SnapshotEncoder

    def is_again_due(self, owned: OwnedPartition, elapsed_s: float) -> bool:
        """Whether a delivery that failed is to be repeated. A zombie's snapshot never becomes visible here."""
        return owned.delivered != owned.chain.newest.state_id and elapsed_s >= PENDING_AFTER_S

    def deliver(self, owned: OwnedPartition, snapshot: bytes | None = None, *, again: bool = False) -> Job[None]:
        """Commits the newest manifest's offset, with the due snapshot if that is not visible yet."""
        del again  # no difference here: only what is not delivered yet is delivered
        reason, too_large = "the group has not answered", False
        for pause_s in PAUSES_S:
            try:
                if (yield from self._try(owned, snapshot)):
                    return
            except NotCommittedError as error:
                owned.settled = error.certain
                too_large = error.reason == TOO_LARGE
                reason = self.encoder.advice(len(snapshot or b"")) if too_large else error.reason
            yield Wait("next transaction", for_s=pause_s, failure=reason)
        if owned.chain.has_pending_snapshot:
            self.watch.snapshot_failed("refused" if too_large else "unavailable")
        owned.log.warning("transaction failed, will retry", reason=reason)

    def _try(self, owned: OwnedPartition, snapshot: bytes | None) -> Job[bool]:
        if not owned.settled:
            yield from self._settle(owned)
        manifest = owned.chain.newest
        if owned.delivered != manifest.state_id:
            membership = self.source.membership()
            if membership is None:
                return False
            yield from owned.chain.check_owner()
            yield from reached(self.runtime, "before-publish")
            message = yield from self._message(owned, manifest, snapshot)
            began_s = self.runtime.clock()
            owned.settled = False  # until the result is known: a cancelled transaction may still be committed
            sending = self.transactions.send(_offset(manifest), membership, message)
            try:
                yield from answer("transaction", sending)
            finally:
                sending.cancel()  # if the partition was released before it was sent
            owned.settled, owned.delivered = True, manifest.state_id
            if manifest.due is not None:
                owned.chain.published = manifest.due
                if message is not None:
                    owned.taken.unpublished.end()
                    self.watch.snapshot_published(owned.number, self.runtime.clock() - began_s)
            yield from reached(self.runtime, "after-publish")
        self.source.note_commit(owned.number, manifest.next_offset)
        return True

    def _settle(self, owned: OwnedPartition) -> Job[None]:
        """Finds out by the committed id what is visible. Repeated while a transaction on the partition is open."""
        # A transaction of a cancelled job may not have reached the broker yet: then the broker can't wait for it.
        if (last := self.transactions.last(owned.number)) is not None:
            yield from answer("last transaction", last)
        manifest = owned.chain.newest
        found: Committed | None = yield from self.questions.committed(owned.number)
        owned.settled, owned.delivered = True, None
        visible = None if found is None else state_id_in(found.metadata)
        if found is None or visible is None or visible > manifest.state_id:
            return  # nothing, or of a chain that no longer exists: every visible state was durable before
        if manifest.due is not None and manifest.due.id <= visible:
            owned.chain.published = manifest.due
        if found.offset == manifest.next_offset:
            owned.delivered = visible

    def _message(self, owned: OwnedPartition, manifest: Manifest, snapshot: bytes | None) -> Job[Outgoing | None]:
        due = manifest.due
        if due is None or not owned.chain.has_pending_snapshot:
            return None
        if snapshot is None:
            snapshot = yield from owned.chain.snapshot_bytes()
        return Outgoing(self.encoder.topic, *self.encoder.message(snapshot, due.blob.key))

    def serve(self) -> None:
        self.transactions.serve()

    def close(self) -> None:
        self.transactions.close()


def _offset(manifest: Manifest) -> Offset:
    at = manifest.binding
    metadata = metadata_of(manifest.state_id, published=not manifest.has_newer_state)  # or together with this offset
    return Offset(at.topic, at.partition, manifest.next_offset, metadata)
