"""Transactional delivery: a state's snapshot and its offset become visible at once, in order, each once.

The store decides who owns a partition; the transaction decides what a `read_committed` reader sees. With each offset
goes, as its metadata, the id of its state. A snapshot that is due goes with the first offset whose id is not below its
own, so the committed id tells what has been seen:

    settle   after a claim, or when a result is unknown: what does the committed id say was seen?   (R)
    deliver  membership ──► still the newest in the store? ──► offset and due snapshot in one transaction

The membership (member and generation) is taken *before* the store is asked. Whoever claims later does so in a later
generation, in which the broker refuses this membership: so a zombie, wherever it slept, is refused.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Collection, Mapping
from concurrent.futures import Future
from dataclasses import dataclass, field
from typing import Protocol, TypeVar

from sfd_stream.kafka.commits import Committed
from sfd_stream.kafka.sink import TOO_LARGE
from sfd_stream.kafka.transactions import NotCommittedError, Offset, Outgoing, TransactionalSink
from sfd_stream.service.beside import Beside
from sfd_stream.service.claims import patiently
from sfd_stream.service.keeper import AbandonedError, Surroundings
from sfd_stream.service.publishing import Publishing
from sfd_stream.service.tenure import Plan, Tenure
from sfd_stream.service.watch import Watch
from sfd_stream.state.manifest import Manifest
from sfd_stream.state.offset_metadata import metadata_of, state_id_in

T = TypeVar("T")

PAUSES_S = (0.1, 0.3, 1.0)
"""Between tries; after the last one it stays due, and the stream goes on."""


class Group(Protocol):
    """The part of a source that is used."""

    def membership(self) -> bytes | None: ...
    def committed(self, partitions: Collection[int], timeout_s: float) -> Mapping[int, Committed | None]: ...
    def note_commit(self, partition: int, next_offset: int) -> None: ...


class Host(Protocol):
    """What is needed of the worker."""

    plan: Plan
    around: Surroundings
    watch: Watch

    @property
    def source(self) -> Group: ...
    def ask(self, tenure: Tenure, question: Callable[[], T]) -> T: ...


@dataclass(frozen=True)
class _Parcel:
    membership: bytes
    offset: Offset
    message: Outgoing | None
    done: Future[None] = field(default_factory=Future)


class Courier:
    """`deliver` is called beside the loop, for one partition at a time each; what waits together goes together."""

    def __init__(self, host: Host, sink: TransactionalSink, publishing: Publishing) -> None:
        self._host = host
        self._sink = sink
        self._publishing = publishing
        self._lock = threading.Lock()
        self._waiting: list[_Parcel] = []
        self._thread = Beside(1, "deliver")

    def __len__(self) -> int:
        """How many wait for a transaction."""
        return len(self._waiting)

    def deliver(self, tenure: Tenure, snapshot: bytes | None = None) -> None:
        """The newest manifest's offset, and with it the snapshot that is due and was not seen.

        `snapshot`: its bytes, where they are at hand. If it fails it stays due.
        """
        reason, too_large = "the group has not answered", False
        for pause_s in PAUSES_S:
            try:
                if self._try(tenure, snapshot):
                    return
            except NotCommittedError as error:
                tenure.settled = tenure.settled and error.certain
                too_large = error.reason == TOO_LARGE
                reason = self._publishing.advice(len(snapshot or b"")) if too_large else error.reason
            if tenure.keeper.abandoned.wait(pause_s):
                raise AbandonedError(tenure.keeper.where)
        if tenure.keeper.owes_snapshot:
            self._host.watch.snapshot_failed("refused" if too_large else "unavailable")
        tenure.log.warning("snapshot and offset not delivered: due", reason=reason)

    def close(self) -> None:
        self._thread.shutdown(wait=False, cancel_futures=True)
        self._sink.close()

    def _try(self, tenure: Tenure, snapshot: bytes | None) -> bool:
        keeper, reach = tenure.keeper, self._host.around.reach
        if not tenure.settled:
            self._settle(tenure)
        manifest = keeper.manifest
        assert manifest is not None
        if tenure.delivered != manifest.state_id:
            membership = self._host.ask(tenure, self._host.source.membership)
            if membership is None:
                return False
            keeper.check_owner()
            reach("before-publish")
            message, began_s = self._message(tenure, manifest, snapshot), self._host.around.clock()
            keeper.on_step("transaction")
            self._carry(_Parcel(membership, self._offset(manifest), message))
            self._seen(tenure, manifest)
            if manifest.due is not None and message is not None:
                seconds = self._host.around.clock() - began_s
                self._host.watch.snapshot_published(tenure.partition, seconds, manifest.due.blob.size)
            reach("after-publish")
        self._host.ask(tenure, lambda: self._host.source.note_commit(tenure.partition, manifest.next_offset))
        return True

    def _settle(self, tenure: Tenure) -> None:
        """What was seen, by the committed id; asked until no transaction is open on it any more."""
        manifest = tenure.keeper.manifest
        assert manifest is not None
        found = self._committed(tenure)
        seen = None if found is None else state_id_in(found.metadata)
        if seen is not None and seen > manifest.state_id:
            seen = None  # of a chain that is no more: what is durable comes before what is seen
        if manifest.due is not None and seen is not None and manifest.due.id <= seen:
            tenure.keeper.published = manifest.due
        same = found is not None and found.offset == manifest.next_offset
        tenure.delivered = seen if same else None
        tenure.settled = True

    def _committed(self, tenure: Tenure) -> Committed | None:
        """Asked beside the loop: it takes as long as a transaction may be open."""
        host, keeper = self._host, tenure.keeper
        keeper.on_step("committed offset")

        def check(failure: Exception) -> None:
            tenure.step_failure = str(failure)
            if keeper.abandoned.is_set():
                raise AbandonedError(keeper.where)

        def ask(timeout_s: float) -> Committed | None:
            return host.source.committed([tenure.partition], timeout_s)[tenure.partition]

        return patiently(ask, clock=host.around.clock, give_up_s=host.plan.give_up_s, check=check)

    def _seen(self, tenure: Tenure, manifest: Manifest) -> None:
        tenure.delivered = manifest.state_id
        if manifest.due is not None:
            tenure.keeper.published = manifest.due

    def _offset(self, manifest: Manifest) -> Offset:
        at = manifest.binding
        published = manifest.due is not None and manifest.due.id == manifest.state_id  # by then, or together with it
        metadata = metadata_of(manifest.state_id, published=published)
        return Offset(at.topic, at.partition, manifest.next_offset, metadata)

    def _message(self, tenure: Tenure, manifest: Manifest, snapshot: bytes | None) -> Outgoing | None:
        due = manifest.due
        if due is None or not manifest.owes_snapshot(tenure.keeper.published):
            return None
        encoded = tenure.keeper.snapshot_bytes() if snapshot is None else snapshot
        return Outgoing(self._publishing.topic, *self._publishing.message(encoded, due))

    # One transaction at a time, on a thread of its own

    def _carry(self, parcel: _Parcel) -> None:
        with self._lock:
            self._waiting.append(parcel)
        self._thread.submit(self._go)
        parcel.done.result()

    def _go(self) -> None:
        """All that waits under the same membership, in one transaction; if that is refused, each by itself."""
        together = self._take()
        if together and not self._commit(together, alone=len(together) == 1):
            for parcel in together:
                self._commit([parcel], alone=True)

    def _take(self) -> list[_Parcel]:
        with self._lock:
            first = self._waiting[0].membership if self._waiting else None
            together = [parcel for parcel in self._waiting if parcel.membership == first]
            self._waiting = [parcel for parcel in self._waiting if parcel.membership != first]
        return together

    def _commit(self, parcels: list[_Parcel], *, alone: bool) -> bool:
        """Whether all were told; not so if one of several may have spoilt it for the others."""
        messages = [parcel.message for parcel in parcels if parcel.message is not None]
        failure: BaseException | None = None
        try:
            self._sink.commit([parcel.offset for parcel in parcels], parcels[0].membership, messages)
        except BaseException as error:  # noqa: BLE001 - it belongs to those who wait
            failure = error
        if isinstance(failure, NotCommittedError) and failure.certain and not alone:
            return False
        for parcel in parcels:
            if failure is None:
                parcel.done.set_result(None)
            else:
                parcel.done.set_exception(failure)
        return True
