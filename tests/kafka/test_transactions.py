"""Messages and offsets in one transaction, on a real broker: all of it is seen, or nothing, whatever happens."""

from __future__ import annotations

import threading
import uuid
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from sfd_stream.errors import SettingsError
from sfd_stream.kafka.records import Start
from sfd_stream.kafka.sink import TOO_LARGE
from sfd_stream.kafka.source import Source
from sfd_stream.kafka.tail import Tail
from sfd_stream.kafka.transactions import NotCommittedError, Offset, Outgoing, TransactionalSink
from tests.parts.kafka import Broker
from tests.parts.kafka_fixtures import PrivateBrokers

SHORT = {"transaction.timeout.ms": 2000, "message.timeout.ms": 2000}
SESSION = {"session.timeout.ms": 1500, "heartbeat.interval.ms": 300, "log_level": 0}


class Member:
    """One consumer of a group, which owns whatever it is given."""

    def __init__(self, broker: Broker, topic: str, group: str) -> None:
        properties = {"bootstrap.servers": broker.bootstrap, "group.id": group, **SESSION}
        self.source = Source(properties, topic, self)

    def on_assign(self, partitions: Any) -> dict[int, Start]:
        return dict.fromkeys(partitions, Start(0))

    def on_revoke(self, partitions: Any) -> None: ...

    def on_lost(self, partitions: Any) -> None: ...

    def until_assigned(self) -> bytes:
        for _ in range(300):
            self.source.poll(10, 0.1)
            found = self.source.membership()
            if self.source.assigned and found is not None:
                return found
        raise AssertionError("the group did not answer")


class Case:
    """A group of one member, an input topic, an output topic."""

    def __init__(self, broker: Broker, config: dict[str, str] | None = None) -> None:
        self.broker = broker
        self.topic, self.output = broker.create_topic(), broker.create_topic(config=config)
        self.group = f"g-{uuid.uuid4().hex[:12]}"
        self.member = Member(broker, self.topic, self.group)

    def sink(self, *, give_up_s: float = 10, reach: Callable[[str], None] = lambda _: None) -> TransactionalSink:
        properties = {"bootstrap.servers": self.broker.bootstrap, "log_level": 0, **SHORT}
        return TransactionalSink(properties, f"{self.group}-{uuid.uuid4().hex}", give_up_s=give_up_s, reach=reach)

    def offset(self, number: int) -> Offset:
        return Offset(self.topic, 0, number, f"state {number}")

    def message(self, number: int, size: int = 0) -> Outgoing:
        return Outgoing(self.output, b"key", f"value {number}".encode() + b"." * size, (("n", str(number).encode()),))

    def seen(self) -> list[bytes | None]:
        tail = Tail({"bootstrap.servers": self.broker.bootstrap, "log_level": 0}, self.output)
        try:
            return [record.value for batch in tail.catch_up(30) for record in batch]
        finally:
            tail.close()

    def committed(self, timeout_s: float = 20) -> tuple[int, str] | None:
        found = self.member.source.stable_committed(0, timeout_s)
        return None if found is None else (found.offset, found.metadata)


@pytest.fixture
def case(kafka: Broker) -> Iterator[Case]:
    made = Case(kafka, config={"max.message.bytes": "2000"})
    yield made
    made.member.source.close(5)


def test_offset_its_metadata_and_message_are_seen_together(case: Case) -> None:
    membership, sink = case.member.until_assigned(), case.sink()
    assert (case.committed(), case.seen()) == (None, [])
    for number in (1, 2):
        sink.commit([case.offset(number)], membership, [case.message(number)])
        assert (case.committed(), len(case.seen())) == ((number, f"state {number}"), number)
    sink.commit([case.offset(3)], membership, [])
    assert (case.committed(), len(case.seen())) == ((3, "state 3"), 2)


def test_while_a_transaction_is_open_nobody_is_told_what_is_committed(case: Case) -> None:
    membership = case.member.until_assigned()
    told: list[Any] = []

    def reach(point: str) -> None:
        if point == "before-end":
            with pytest.raises(TimeoutError):
                case.committed(0.3)
            told.append(case.seen())

    case.sink(reach=reach).commit([case.offset(1)], membership, [case.message(1)])
    assert told == [[]]
    assert case.committed() == (1, "state 1")


def test_who_is_no_member_has_no_membership(kafka: Broker) -> None:
    member = Member(kafka, kafka.create_topic(), "g-" + uuid.uuid4().hex)
    assert member.source.membership() is None
    member.until_assigned()
    member.source.close(5)


def test_a_membership_of_an_earlier_generation_is_refused_and_nothing_is_seen(case: Case) -> None:
    stale = case.member.until_assigned()
    other = Member(case.broker, case.topic, case.group)
    fresh = stale
    for _ in range(300):
        case.member.source.poll(10, 0.05)
        other.source.poll(10, 0.05)
        fresh = case.member.source.membership() or stale
        if other.source.membership() is not None and fresh != stale:
            break
    sink = case.sink()
    with pytest.raises(NotCommittedError, match="GENERATION") as caught:
        sink.commit([case.offset(1)], stale, [case.message(1)])
    assert caught.value.certain
    assert (case.committed(), case.seen()) == (None, [])
    sink.commit([case.offset(2)], fresh, [case.message(2)])
    assert (case.committed(), len(case.seen())) == ((2, "state 2"), 1)
    other.source.close(5)


@pytest.mark.parametrize("size", [3_000, 3_000_000], ids=["for the broker", "for the client"])
def test_a_message_too_large_spoils_its_transaction_and_no_other(case: Case, size: int) -> None:
    membership, sink = case.member.until_assigned(), case.sink()
    with pytest.raises(NotCommittedError) as caught:
        sink.commit([case.offset(1)], membership, [case.message(1), case.message(2, size)])
    assert (caught.value.reason, caught.value.certain) == (TOO_LARGE, True)
    assert (case.committed(), case.seen()) == (None, [])
    sink.commit([case.offset(3)], membership, [case.message(3)])
    assert (case.committed(), len(case.seen())) == ((3, "state 3"), 1)


@pytest.mark.parametrize("point", ["after-offsets", "before-end"])
def test_a_transaction_that_the_coordinator_ended_is_not_seen_and_the_next_works(case: Case, point: str) -> None:
    membership, slept = case.member.until_assigned(), []

    def reach(passed: str) -> None:
        if passed == point and not slept:
            slept.append(point)
            assert case.committed() is None  # waits until the coordinator has ended it

    sink = case.sink(reach=reach)
    with pytest.raises(NotCommittedError):
        sink.commit([case.offset(1)], membership, [case.message(1)])
    assert (case.committed(), case.seen()) == (None, [])
    sink.commit([case.offset(2)], case.member.until_assigned(), [case.message(2)])
    assert (case.committed(), case.seen()) == ((2, "state 2"), [case.message(2).value])


def test_an_unknown_result_is_told_as_such_and_the_committed_id_tells_what_was_seen(
    private_broker: PrivateBrokers,
) -> None:
    broker = private_broker()
    case = Case(broker)
    membership = case.member.until_assigned()

    def reach(passed: str) -> None:
        if passed == "before-end":
            broker.pause()

    sink = case.sink(give_up_s=1, reach=reach)
    with pytest.raises(NotCommittedError) as caught:
        sink.commit([case.offset(1)], membership, [case.message(1)])
    assert not caught.value.certain
    broker.resume()
    threading.Event().wait(0.5)
    found, seen = case.committed(), case.seen()
    assert (found, len(seen)) in [(None, 0), ((1, "state 1"), 1)]
    sink = case.sink()
    sink.commit([case.offset(2)], case.member.until_assigned(), [case.message(2)])
    assert (case.committed(), len(case.seen())) == ((2, "state 2"), len(seen) + 1)


def test_a_property_that_librdkafka_refuses_is_a_setting_to_mend(kafka: Broker) -> None:
    properties = {"bootstrap.servers": kafka.bootstrap, "message.timeout.ms": 20_000, "log_level": 0}
    with pytest.raises(SettingsError, match=r"message\.timeout\.ms"):
        TransactionalSink(properties, "id", give_up_s=1)
