"""The courier by itself: what goes together, what is tried again, what the committed id tells."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Collection
from concurrent.futures import ThreadPoolExecutor
from types import SimpleNamespace
from typing import Any

import pytest

from sfd_stream.errors import BrokerRefusedError, FencedError
from sfd_stream.kafka.commits import Committed
from sfd_stream.kafka.transactions import NotCommittedError, Offset, Outgoing
from sfd_stream.service.courier import Courier
from sfd_stream.service.keeper import AbandonedError
from sfd_stream.service.tenure import Tenure
from sfd_stream.state.manifest import Binding, BlobRef, Kind, Manifest, SnapshotRef, StateId
from sfd_stream.state.offset_metadata import metadata_of
from tests.parts.watched import Stage
from tests.service.fakes import Diary
from tests.service.runs import wait_until

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


class FakeKeeper:
    def __init__(self, newest: Manifest) -> None:
        self.manifest = newest
        self.published = newest.published
        self.abandoned = threading.Event()
        self.fenced = False
        self.where = "rows/0"
        self.on_step = lambda _: None

    @property
    def owes_snapshot(self) -> bool:
        return self.manifest.owes_snapshot(self.published)

    def check_owner(self) -> None:
        if self.fenced:
            raise FencedError("another went on")

    def snapshot_bytes(self) -> bytes:
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


class FakeHost:
    """A worker of which only the answers are left."""

    def __init__(self, committed: Committed | None = None) -> None:
        self.plan: Any = SimpleNamespace(give_up_s=1.0)
        self.around: Any = SimpleNamespace(reach=lambda _: None, clock=time.monotonic)
        self.found = committed
        self.memberships: list[bytes | None] = []
        self.noted: list[tuple[int, int]] = []
        self.watch = Stage(partitions=0).watch
        self.settled = 0

    def ask(self, _: Tenure, question: Callable[[], Any]) -> Any:
        return question()

    def membership(self) -> bytes | None:
        return self.memberships.pop(0) if self.memberships else b"member"

    @property
    def source(self) -> FakeHost:
        return self

    def committed(self, partitions: Collection[int], _: float) -> dict[int, Committed | None]:
        self.settled += 1
        return dict.fromkeys(partitions, self.found)

    def note_commit(self, partition: int, next_offset: int) -> None:
        self.noted.append((partition, next_offset))


class FakePublishing:
    topic = "shown"

    def message(self, encoded: bytes, due: SnapshotRef) -> tuple[bytes, bytes, tuple[()]]:
        return str(due.id.number).encode(), encoded, ()

    def advice(self, size: int) -> str:
        return f"{size} bytes"


def tenure_of(newest: Manifest) -> Any:
    keeper: Any = FakeKeeper(newest)
    return Tenure(newest.binding.partition, keeper, Diary())


def courier_of(host: FakeHost, sink: FakeSink) -> Courier:
    fake_sink: Any = sink
    publishing: Any = FakePublishing()
    return Courier(host, fake_sink, publishing)


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
    host, sink = FakeHost(found), FakeSink()
    courier_of(host, sink).deliver(tenure_of(newest))
    offsets = [each.offset for offsets, _ in sink.taken for each in offsets]
    keys = [each.key for _, messages in sink.taken for each in messages]
    assert offsets == ([] if offset is None else [offset])
    assert keys == ([] if message is None else [message])
    assert host.noted == [(0, newest.next_offset)]


def test_what_was_delivered_is_known_without_asking_again() -> None:
    host, sink = FakeHost(), FakeSink()
    courier, tenure = courier_of(host, sink), tenure_of(manifest(5, due=5))
    courier.deliver(tenure)
    tenure.keeper.manifest = manifest(6, due=5)
    courier.deliver(tenure)
    assert [(offsets[0].offset, len(messages)) for offsets, messages in sink.taken] == [(50, 1), (60, 0)]
    assert host.settled == 1


def test_a_refusal_is_tried_again_under_a_new_membership_and_an_unknown_result_is_asked_for_first() -> None:
    host, sink = FakeHost(), FakeSink(REFUSED, UNKNOWN)
    host.memberships = [b"old", b"old", b"new"]
    tenure = tenure_of(manifest(5, due=5))
    courier_of(host, sink).deliver(tenure)
    assert len(sink.taken) == 1
    assert host.settled == 2, "at the claim, and after the unknown result"
    assert not tenure.worker_log.lines


def test_what_an_unknown_result_turns_out_to_have_shown_is_not_shown_again() -> None:
    host, sink = FakeHost(), FakeSink()
    tenure = tenure_of(manifest(5, due=5))

    def lands() -> None:
        host.found = committed(5)

    sink.before, sink.answers = lands, [UNKNOWN]
    courier_of(host, sink).deliver(tenure)
    assert sink.tried == [1]
    assert tenure.delivered == StateId(1, 5)
    assert not tenure.keeper.manifest.owes_snapshot(tenure.keeper.published)


def test_what_can_t_be_delivered_stays_due_and_is_said() -> None:
    host, sink = FakeHost(), FakeSink(REFUSED, REFUSED, REFUSED)
    tenure = tenure_of(manifest(5, due=5))
    courier_of(host, sink).deliver(tenure)
    [(_, said)] = tenure.worker_log.lines
    assert said == {"partition": 0, "epoch": 1, "number": 5, "reason": "ILLEGAL_GENERATION"}
    assert tenure.delivered is None
    assert tenure.keeper.published is None


def test_who_is_no_member_or_not_the_owner_delivers_nothing() -> None:
    host, sink = FakeHost(), FakeSink()
    host.memberships = [None, None, None]
    courier, tenure = courier_of(host, sink), tenure_of(manifest(5, due=5))
    courier.deliver(tenure)
    assert len(tenure.worker_log.lines) == 1
    tenure.keeper.fenced = True
    with pytest.raises(FencedError):
        courier.deliver(tenure)
    assert not sink.tried


def test_a_partition_given_up_meanwhile_is_not_tried_again() -> None:
    sink, tenure = FakeSink(REFUSED), tenure_of(manifest(5, due=5))
    sink.before = tenure.keeper.abandoned.set
    with pytest.raises(AbandonedError):
        courier_of(FakeHost(), sink).deliver(tenure)


def test_a_broker_that_refuses_for_good_is_told_to_the_worker() -> None:
    sink = FakeSink(BrokerRefusedError("no right to the transactional id"))
    with pytest.raises(BrokerRefusedError, match="no right"):
        courier_of(FakeHost(), sink).deliver(tenure_of(manifest(5, due=5)))


@pytest.mark.parametrize("spoilt", [False, True])
def test_what_waits_together_goes_together_and_one_that_spoils_it_goes_alone(*, spoilt: bool) -> None:
    gate, sink = threading.Event(), FakeSink()
    begun = threading.Event()
    courier = courier_of(FakeHost(), sink)

    def hold() -> None:
        begun.set()
        gate.wait(10)

    sink.before = hold
    sink.answers = [None, REFUSED] if spoilt else []
    with ThreadPoolExecutor(4) as threads:
        first = threads.submit(courier.deliver, tenure_of(manifest(2, due=2, partition=0)))
        assert begun.wait(10)
        others = [threads.submit(courier.deliver, tenure_of(manifest(2, due=2, partition=p))) for p in (1, 2, 3)]
        wait_until(lambda: len(courier) == 3, "three that wait")
        gate.set()
        for future in (first, *others):
            future.result(10)
    assert sink.tried == ([1, 3, 1, 1, 1] if spoilt else [1, 3])
    assert sorted(each.partition for offsets, _ in sink.taken for each in offsets) == [0, 1, 2, 3]
