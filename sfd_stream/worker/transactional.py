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

from concurrent.futures import Future
from dataclasses import dataclass, field

from sfd_stream.kafka.commits import Committed
from sfd_stream.kafka.producer import TOO_LARGE
from sfd_stream.kafka.transactional_producer import NotCommittedError, Offset, Outgoing, TransactionalSink
from sfd_stream.state.manifest import Manifest
from sfd_stream.state.offset_metadata import metadata_of, state_id_in
from sfd_stream.worker.delivery import Delivery
from sfd_stream.worker.jobs import Job, Wait, answer, reached
from sfd_stream.worker.partitions import OwnedPartition
from sfd_stream.worker.questions import Questions
from sfd_stream.worker.snapshots import SnapshotEncoder

PAUSES_S = (0.1, 0.3, 1.0)
"""After each attempt. After the last one the delivery stays pending; reading continues meanwhile."""


@dataclass(frozen=True, eq=False)
class _Parcel:
    membership: bytes
    offset: Offset
    message: Outgoing | None
    done: Future[None] = field(default_factory=Future)


@dataclass(eq=False, kw_only=True)
class Transactional(Delivery):
    """One transaction at a time, on a thread of its own. Partitions that wait at the same time share a transaction."""

    questions: Questions
    transactions: TransactionalSink
    encoder: SnapshotEncoder

    def __post_init__(self) -> None:
        self._waiting: list[_Parcel] = []
        self._open: Future[None] | None = None
        self._carried: set[int] = set()  # the partitions of the transaction that was begun last

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
        if owned.chain.owes_snapshot:
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
            yield from self._carry(_Parcel(membership, _offset(manifest), message))
            owned.settled, owned.delivered = True, manifest.state_id
            if manifest.due is not None:
                owned.chain.acknowledge(manifest.due)
                if message is not None:
                    owned.taken.end_snapshot()
                    self.watch.snapshot_published(owned.number, self.runtime.clock() - began_s)
            yield from reached(self.runtime, "after-publish")
        self.source.note_commit(owned.number, manifest.next_offset)
        return True

    def _settle(self, owned: OwnedPartition) -> Job[None]:
        """Finds out by the committed id what is visible. Repeated while a transaction on the partition is open."""
        # A transaction of a cancelled job may not have reached the broker yet: then the broker can't wait for it.
        if self._open is not None and owned.number in self._carried:
            yield from answer("last transaction", self._open)
        manifest = owned.chain.newest
        found: Committed | None = yield from self.questions.committed(owned.number)
        visible = None if found is None else state_id_in(found.metadata)
        if visible is not None and visible > manifest.state_id:
            visible = None  # of a chain that no longer exists: every visible state was durable before
        if manifest.due is not None and visible is not None and manifest.due.id <= visible:
            owned.chain.acknowledge(manifest.due)
        same = found is not None and found.offset == manifest.next_offset
        owned.delivered = visible if same else None
        owned.settled = True

    def _message(self, owned: OwnedPartition, manifest: Manifest, snapshot: bytes | None) -> Job[Outgoing | None]:
        due = manifest.due
        if due is None or not manifest.owes_snapshot(owned.chain.published):
            return None
        if snapshot is None:
            snapshot = yield from owned.chain.snapshot_bytes()
        return Outgoing(self.encoder.topic, *self.encoder.message(snapshot, due))

    # Transactions

    def _carry(self, parcel: _Parcel) -> Job[None]:
        self._waiting.append(parcel)
        self.serve()
        try:
            yield from answer("transaction", parcel.done)
        finally:
            if parcel in self._waiting:  # cancelled before it was sent
                self._waiting.remove(parcel)

    def serve(self) -> None:
        """Begins the next transaction if none is open, for all parcels that wait with the same membership."""
        if not self._waiting or (self._open is not None and not self._open.done()):
            return
        first = self._waiting[0].membership
        together = [parcel for parcel in self._waiting if parcel.membership == first]
        self._waiting = [parcel for parcel in self._waiting if parcel.membership != first]
        self._carried = {parcel.offset.partition for parcel in together}
        self._open = self.runtime.transactions.submit(self._go, together)
        self._open.add_done_callback(self.runtime.wake)

    def _go(self, together: list[_Parcel]) -> None:
        """On the transactions thread. If a transaction of several parcels is certainly refused, each gets its own."""
        messages = [parcel.message for parcel in together if parcel.message is not None]
        try:
            self.transactions.commit([parcel.offset for parcel in together], together[0].membership, messages)
        except BaseException as error:  # noqa: BLE001 - it belongs to the jobs that wait
            if isinstance(error, NotCommittedError) and error.certain and len(together) > 1:
                for parcel in together:
                    self._go([parcel])
            else:
                for parcel in together:
                    parcel.done.set_exception(error)
        else:
            for parcel in together:
                parcel.done.set_result(None)

    def close(self) -> None:
        self.transactions.close()


def _offset(manifest: Manifest) -> Offset:
    at = manifest.binding
    published = manifest.due is not None and manifest.due.id == manifest.state_id  # or together with this offset
    metadata = metadata_of(manifest.state_id, published=published)
    return Offset(at.topic, at.partition, manifest.next_offset, metadata)
