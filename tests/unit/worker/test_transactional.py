"""Transactional delivery by itself: what goes together, what is tried again, what the committed id says."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Collection
from types import SimpleNamespace
from typing import Any

import pytest

from sfd_stream.errors import BrokerRefusedError, FencedError
from sfd_stream.kafka.commits import Committed
from sfd_stream.kafka.transactional_producer import NotCommittedError, Offset, Outgoing, SharedTransactions
from sfd_stream.loop.jobs import Job, Jobs
from sfd_stream.loop.questions import Questions
from sfd_stream.loop.runtime import Runtime
from sfd_stream.state.manifest import Binding, BlobRef, Kind, Manifest, SnapshotRef, StateId
from sfd_stream.state.offset_metadata import metadata_of
from sfd_stream.state.policy import Backlog, Pending, SnapshotPolicy
from sfd_stream.wire.snapshots import Message
from sfd_stream.worker.partitions import OwnedPartition
from sfd_stream.worker.transactional import Transactional
from tests.support.watched import Stage
from tests.system.fakes import Diary, plan_of
from tests.unit.worker.chains import driven

DATA = b"a snapshot's bytes"


def manifest(number: int, *, due: int | None = None, published: int | None = None, partition: int = 0) -> Manifest:
    def shown(at: int | None) -> SnapshotRef | None:
        return None if at is None else SnapshotRef(StateId(1, at), BlobRef(f"blob-{at}", len(DATA), b""))

    return Manifest(
        number=number, epoch=1, nonce="n", parent=None, kind=Kind.CHECKPOINT,
        binding=Binding("c", "t", "g", "rows", partition), next_offset=10 * number, leader_epoch=None, sketch=None,
        buffer=(), counters={}, parameters={}, state_id=StateId(1, number), due=shown(due), published=shown(published),
        written_at_s=0.0,
    )  # fmt: skip


class FakeChain:
    def __init__(self, newest: Manifest) -> None:
        self.manifest = newest
        self.published = newest.published
        self.fenced = False
        self.where = "rows/0"

    @property
    def newest(self) -> Manifest:
        return self.manifest

    @property
    def has_pending_snapshot(self) -> bool:
        return self.manifest.has_pending_snapshot(self.published)

    def check_owner(self) -> Job[None]:
        yield from ()
        if self.fenced:
            raise FencedError("another went on")

    def snapshot_bytes(self) -> Job[bytes]:
        yield from ()
        return DATA


class FakeSink:
    """A broker that answers in turn as it is told; what it took is kept, a transaction a list."""

    def __init__(self, *answers: BaseException | None) -> None:
        self.answers = list(answers)
        self.tried: list[int] = []
        self.taken: list[tuple[list[Offset], list[Outgoing]]] = []
        self.before: Callable[[], None] = lambda: None

    def commit(self, offsets: list[Offset], _: bytes, messages: list[Outgoing]) -> None:
        self.before()
        self.tried.append(len(offsets))
        answer = self.answers.pop(0) if self.answers else None
        if answer is not None:
            raise answer
        self.taken.append((offsets, messages))

    def close(self) -> None: ...


class FakeGroup:
    """The part of a source that is used."""

    def __init__(self, committed: Committed | None = None) -> None:
        self.found = committed
        self.memberships: list[bytes | None] = []
        self.noted: list[tuple[int, int]] = []
        self.settled = 0

    def membership(self) -> bytes | None:
        return self.memberships.pop(0) if self.memberships else b"member"

    def committed(self, partitions: Collection[int], _: float) -> dict[int, Committed | None]:
        self.settled += 1
        return dict.fromkeys(partitions, self.found)

    def note_commit(self, partition: int, next_offset: int) -> None:
        self.noted.append((partition, next_offset))


def owned_of(newest: Manifest) -> Any:
    chain: Any = FakeChain(newest)
    columns: Any = None
    return OwnedPartition(
        newest.binding.partition, chain, Diary(), 0.0, backlog=Backlog(columns, 0, Pending(0.0), Pending(0.0))
    )


def delivery_of(group: FakeGroup, sink: FakeSink, runtime: Runtime | None = None) -> Transactional:
    runtime = runtime or Runtime(None)  # type: ignore[arg-type]
    source: Any = group
    fake_sink: Any = sink
    transactions = SharedTransactions(fake_sink, runtime.transactions, runtime.wake)
    encoder: Any = SimpleNamespace(
        topic="shown",
        message=lambda encoded, key: Message(key.removeprefix("blob-").encode(), encoded, ()),
        advice=lambda size: f"{size} bytes",
    )
    questions = Questions(plan_of(give_up_s=1.0), runtime, source, None)
    watch = Stage(partitions=0).watch
    parts: Any = {"runtime": runtime, "source": source, "log": Diary(), "policy": SnapshotPolicy(None, None)}
    return Transactional(**parts, questions=questions, transactions=transactions, encoder=encoder, watch=watch)


def deliver(delivery: Transactional, owned: OwnedPartition) -> None:
    driven(delivery.deliver(owned), delivery.runtime)


def committed(number: int, *, epoch: int = 1, offset: int | None = None) -> Committed:
    return Committed(
        10 * number if offset is None else offset, metadata_of(StateId(epoch, number), published=True), None
    )


REFUSED = NotCommittedError("ILLEGAL_GENERATION", certain=True)
UNKNOWN = NotCommittedError("_TIMED_OUT", certain=False)


@pytest.mark.parametrize(
    ("newest", "found", "offset", "message"),
    [
        pytest.param(manifest(5, due=5), None, 50, b"5", id="nothing committed"),
        pytest.param(manifest(5, due=5), committed(4), 50, b"5", id="the state before"),
        pytest.param(manifest(5, due=5), committed(5), None, None, id="this very state"),
        pytest.param(manifest(5, due=3), committed(4), 50, None, id="due was seen with an earlier offset"),
        pytest.param(manifest(5, due=3), committed(2), 50, b"3", id="due was not seen"),
        pytest.param(manifest(5, due=4), committed(4, offset=50), 50, None, id="the same offset, another state"),
        pytest.param(manifest(5, due=5), committed(9, epoch=7), 50, b"5", id="of a chain that is no more"),
        pytest.param(manifest(5, due=5), Committed(50, "", None), 50, b"5", id="by something else"),
        pytest.param(manifest(5, due=5, published=5), Committed(50, "", None), 50, None, id="acknowledged before"),
        pytest.param(manifest(1), None, 10, None, id="a beginning"),
    ],
)
def test_after_a_claim_the_committed_id_tells_what_is_still_to_be_seen(
    newest: Manifest, found: Committed | None, offset: int | None, message: bytes | None
) -> None:
    group, sink = FakeGroup(found), FakeSink()
    deliver(delivery_of(group, sink), owned_of(newest))
    offsets = [each.offset for offsets, _ in sink.taken for each in offsets]
    keys = [each.key for _, messages in sink.taken for each in messages]
    assert offsets == ([] if offset is None else [offset])
    assert keys == ([] if message is None else [message])
    assert group.noted == [(0, newest.next_offset)]


def test_what_was_delivered_is_known_without_asking_again() -> None:
    group, sink = FakeGroup(), FakeSink()
    delivery, owned = delivery_of(group, sink), owned_of(manifest(5, due=5))
    deliver(delivery, owned)
    owned.chain.manifest = manifest(6, due=5)
    deliver(delivery, owned)
    assert [(offsets[0].offset, len(messages)) for offsets, messages in sink.taken] == [(50, 1), (60, 0)]
    assert group.settled == 1


def test_a_refusal_is_tried_again_under_a_new_membership_and_an_unknown_result_is_asked_for_first() -> None:
    group, sink = FakeGroup(), FakeSink(REFUSED, UNKNOWN)
    group.memberships = [b"old", b"old", b"new"]
    owned = owned_of(manifest(5, due=5))
    deliver(delivery_of(group, sink), owned)
    assert len(sink.taken) == 1
    assert group.settled == 2, "at the claim, and after the unknown result"
    assert not owned.worker_log.lines


def test_what_an_unknown_result_turns_out_to_have_shown_is_not_shown_again() -> None:
    group, sink = FakeGroup(), FakeSink()
    owned = owned_of(manifest(5, due=5))

    def lands() -> None:
        group.found = committed(5)

    sink.before, sink.answers = lands, [UNKNOWN]
    deliver(delivery_of(group, sink), owned)
    assert sink.tried == [1]
    assert owned.delivered == StateId(1, 5)
    assert not owned.chain.manifest.has_pending_snapshot(owned.chain.published)


def test_what_can_t_be_delivered_stays_due_and_is_said() -> None:
    group, sink = FakeGroup(), FakeSink(REFUSED, REFUSED, REFUSED)
    owned = owned_of(manifest(5, due=5))
    deliver(delivery_of(group, sink), owned)
    [(_, said)] = owned.worker_log.lines
    assert said == {"partition": 0, "epoch": 1, "number": 5, "reason": "ILLEGAL_GENERATION"}
    assert owned.delivered is None
    assert owned.chain.published is None


def test_who_is_no_member_or_not_the_owner_delivers_nothing() -> None:
    group, sink = FakeGroup(), FakeSink()
    group.memberships = [None, None, None]
    delivery, owned = delivery_of(group, sink), owned_of(manifest(5, due=5))
    deliver(delivery, owned)
    assert len(owned.worker_log.lines) == 1
    owned.chain.fenced = True
    with pytest.raises(FencedError):
        deliver(delivery, owned)
    assert not sink.tried


@pytest.mark.parametrize("sent", [False, True])
def test_a_partition_released_meanwhile_is_not_tried_again(*, sent: bool) -> None:
    """A transaction that was sent may still happen; one that waits for its turn is not sent any more."""
    runtime, sink, begun, gate = Runtime(None), FakeSink(REFUSED), threading.Event(), threading.Event()  # type: ignore[arg-type]
    delivery, jobs = delivery_of(FakeGroup(), sink, runtime), Jobs[Any](runtime)
    first, second = owned_of(manifest(5, due=5)), owned_of(manifest(5, due=5, partition=1))

    def hold() -> None:
        begun.set()
        gate.wait(10)

    sink.before = hold
    for owned in (first, second):
        jobs.start(owned, "publication", delivery.deliver(owned))
        while not (begun.is_set() if owned is first else delivery.transactions._waiting):
            jobs.advance()
            runtime.wait(0.005)
    released = first if sent else second
    jobs.cancel(released)
    gate.set()
    while jobs:
        jobs.advance()
        delivery.serve()
        runtime.wait(0.005)
    assert not released.settled, "what became of it must be asked for"
    assert [each.partition for offsets, _ in sink.taken for each in offsets] == ([1] if sent else [0])
    assert sink.tried == [1, 1], "the refusal, then the other one"


def test_a_cancelled_transaction_is_awaited_before_the_broker_is_asked_what_is_visible() -> None:
    """Before it has reached the broker, the committed id says nothing of it: it was published twice (seed 70231)."""
    runtime, begun, gate = Runtime(None), threading.Event(), threading.Event()  # type: ignore[arg-type]
    group, sink = FakeGroup(), FakeSink()
    delivery, jobs, owned = delivery_of(group, sink, runtime), Jobs[Any](runtime), owned_of(manifest(5, due=5))

    def hold() -> None:
        begun.set()
        gate.wait(10)
        group.found = committed(5)

    sink.before = hold
    jobs.start(owned, "publication", delivery.deliver(owned))
    while not begun.is_set():
        jobs.advance()
        runtime.wait(0.005)
    jobs.cancel(owned)
    owned.chain.manifest = manifest(6, due=5)
    jobs.start(owned, "checkpoint", delivery.deliver(owned))
    for _ in range(20):
        jobs.advance()
        runtime.wait(0.005)
    gate.set()
    while jobs:
        assert all(finished.error is None for finished in jobs.advance())
        delivery.serve()
        runtime.wait(0.005)
    assert [(offsets[0].offset, len(messages)) for offsets, messages in sink.taken] == [(50, 1), (60, 0)]


def test_a_broker_that_refuses_for_good_is_told_to_the_worker() -> None:
    sink = FakeSink(BrokerRefusedError("no right to the transactional id"))
    with pytest.raises(BrokerRefusedError, match="no right"):
        deliver(delivery_of(FakeGroup(), sink), owned_of(manifest(5, due=5)))


@pytest.mark.parametrize("spoilt", [False, True])
def test_what_waits_together_goes_together_and_one_that_spoils_it_goes_alone(*, spoilt: bool) -> None:
    runtime, gate, sink, begun = Runtime(None), threading.Event(), FakeSink(), threading.Event()  # type: ignore[arg-type]
    delivery, jobs = delivery_of(FakeGroup(), sink, runtime), Jobs[Any](runtime)

    def hold() -> None:
        begun.set()
        gate.wait(10)

    sink.before = hold
    sink.answers = [None, REFUSED] if spoilt else []
    deadline = time.monotonic() + 20
    for partition in range(4):
        owned = owned_of(manifest(2, due=2, partition=partition))
        jobs.start(owned, "publication", delivery.deliver(owned))
        while not begun.is_set() or len(delivery.transactions._waiting) < partition:
            jobs.advance()
            assert time.monotonic() < deadline
            runtime.wait(0.005)
    gate.set()
    while jobs:
        assert all(finished.error is None for finished in jobs.advance())
        delivery.serve()
        assert time.monotonic() < deadline
        runtime.wait(0.005)
    assert sink.tried == ([1, 3, 1, 1, 1] if spoilt else [1, 3])
    assert sorted(each.partition for offsets, _ in sink.taken for each in offsets) == [0, 1, 2, 3]
