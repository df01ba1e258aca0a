"""Messages and offsets in one transaction, on a real broker: all of it is seen, or nothing, whatever happens."""

from __future__ import annotations

import gc
import threading
import uuid
import weakref
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from confluent_kafka import KafkaError, KafkaException

from sfd_stream.errors import SettingsError
from sfd_stream.kafka import transactional_producer
from sfd_stream.kafka.admin import GroupOffsets
from sfd_stream.kafka.errors import Hooks
from sfd_stream.kafka.producer import TOO_LARGE
from sfd_stream.kafka.records import Start
from sfd_stream.kafka.source import Source
from sfd_stream.kafka.topic_reader import Tail
from sfd_stream.kafka.transactional_producer import NotCommittedError, Offset, Outgoing, TransactionalSink
from sfd_stream.threads import DaemonExecutor
from tests.support.kafka import Broker
from tests.support.kafka_fixtures import PrivateBrokers
from tests.system.runs import wait_until

SHORT = {"transaction.timeout.ms": 2000, "message.timeout.ms": 2000}
SESSION = {"session.timeout.ms": 1500, "heartbeat.interval.ms": 300, "log_level": 0}


class Member:
    """One consumer of a group, which owns whatever it is given."""

    def __init__(self, broker: Broker, topic: str, group: str) -> None:
        properties = {"bootstrap.servers": broker.bootstrap, "group.id": group, **SESSION}
        self.source = Source(properties, topic)
        self.source.subscribe(self)

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

    def sink(
        self, *, give_up_s: float = 10, reach: Callable[[str], None] = lambda _: None, timeout_ms: int = 2000
    ) -> TransactionalSink:
        properties = {"bootstrap.servers": self.broker.bootstrap, "log_level": 0, **SHORT}
        properties["transaction.timeout.ms"] = timeout_ms
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
        found = self.member.source.committed([0], timeout_s)[0]
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
    """Whatever isolation.level the settings have: what is asked for is the offset, not a record."""
    membership = case.member.until_assigned()
    told: list[Any] = []
    properties = {"bootstrap.servers": case.broker.bootstrap, "group.id": case.group, "log_level": 0}
    others = GroupOffsets({**properties, "isolation.level": "read_uncommitted"}, case.topic, Hooks())

    def reach(point: str) -> None:
        if point == "before-end":
            with pytest.raises(TimeoutError):
                case.committed(1.0)
            with pytest.raises(TimeoutError):
                others.committed([0], 1.0)
            told.append(case.seen())

    # The broker must not end the transaction while the two questions wait.
    case.sink(reach=reach, timeout_ms=60_000).commit([case.offset(1)], membership, [case.message(1)])
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


@pytest.mark.slow
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


class ScriptedProducer:
    """As librdkafka's. `timeouts`: by step, how many calls time out although the broker may do what was asked later;
    "lost": how many commits lose their connection, so that the client itself sends them again.
    """

    made: list[ScriptedProducer]
    timeouts: dict[str, int]

    def __init__(self, properties: Any) -> None:
        self.committed = 0
        self._error_cb = properties["error_cb"]
        self._errors: list[KafkaError] = []
        self.made.append(self)

    def __len__(self) -> int:
        return 0

    def _step(self, name: str) -> None:
        if self.timeouts.get(name, 0):
            self.timeouts[name] -= 1
            raise KafkaException(KafkaError(KafkaError._TIMED_OUT, "timed out", retriable=True))

    def init_transactions(self, _: float) -> None:
        self._step("init")

    def begin_transaction(self) -> None: ...

    def send_offsets_to_transaction(self, *_: Any) -> None:
        if self.timeouts.get("never", 0):
            self.timeouts["never"] -= 1
            threading.Event().wait(600)
        self._step("offsets")
        if self.timeouts.get("refused", 0):
            raise KafkaException(KafkaError(KafkaError.ILLEGAL_GENERATION, "refused", txn_requires_abort=True))

    def abort_transaction(self, _: float) -> None: ...

    def commit_transaction(self, _: float) -> None:
        self._step("commit")
        if self.timeouts.get("lost", 0):
            self.timeouts["lost"] -= 1
            self._errors.append(KafkaError(KafkaError._TRANSPORT, "Disconnected"))
        self.committed += 1

    def poll(self, _: float) -> None:
        while self._errors:
            self._error_cb(self._errors.pop())


@pytest.mark.parametrize(
    ("timeouts", "producers"),
    [
        ({}, [3]),
        ({"init": 1}, [3]),
        ({"commit": 1}, [1, 2]),
        ({"commit": 2}, [1, 2]),
        ({"offsets": 1}, [1, 2]),
        ({"lost": 1}, [1, 2]),
        ({"lost": 2}, [1, 1, 1]),
    ],
)
def test_a_transaction_after_a_retried_one_has_a_producer_of_its_own(
    monkeypatch: pytest.MonkeyPatch, timeouts: dict[str, int], producers: list[int]
) -> None:
    """The request that timed out may still arrive: without KIP-890 in the client only a new epoch keeps it out."""
    monkeypatch.setattr(ScriptedProducer, "made", [], raising=False)
    monkeypatch.setattr(ScriptedProducer, "timeouts", dict(timeouts), raising=False)
    monkeypatch.setattr(transactional_producer, "Producer", ScriptedProducer)
    sink = TransactionalSink({"bootstrap.servers": "b:1"}, "id", give_up_s=10)
    for offset in range(3):
        sink.commit([Offset("t", 0, offset, "")], b"group", [])
    assert [producer.committed for producer in ScriptedProducer.made] == producers


def test_a_step_that_ignores_its_time_limit_is_abandoned_with_its_producer(monkeypatch: pytest.MonkeyPatch) -> None:
    """As send_offsets_to_transaction of librdkafka does after its connections were reset (its issue 5456)."""
    monkeypatch.setattr(ScriptedProducer, "made", [], raising=False)
    monkeypatch.setattr(ScriptedProducer, "timeouts", {"never": 1}, raising=False)
    monkeypatch.setattr(transactional_producer, "Producer", ScriptedProducer)
    monkeypatch.setattr(transactional_producer, "_OVERDUE_S", 0.1, raising=False)
    monkeypatch.setattr(transactional_producer, "_TURN_S", 0.1)
    sink, failures = TransactionalSink({"bootstrap.servers": "b:1"}, "id", give_up_s=10), []

    def commit() -> None:
        try:
            sink.commit([Offset("t", 0, 1, "")], b"group", [])
        except NotCommittedError as error:
            failures.append(error)

    thread = threading.Thread(target=commit, daemon=True)
    thread.start()
    thread.join(30)
    assert not thread.is_alive(), "it blocks for ever"
    assert [failure.certain for failure in failures] == [False]
    commit()
    assert [producer.committed for producer in ScriptedProducer.made] == [0, 1], "the next has a producer of its own"
    assert len(failures) == 1


def test_a_producer_that_is_not_used_again_ends_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each has some ten threads, and Python's collector, which would find it in a cycle, runs seldom in a program."""
    monkeypatch.setattr(ScriptedProducer, "made", [], raising=False)
    monkeypatch.setattr(ScriptedProducer, "timeouts", {"refused": 1}, raising=False)
    monkeypatch.setattr(transactional_producer, "Producer", ScriptedProducer)
    sink, thread = TransactionalSink({"bootstrap.servers": "b:1"}, "id", give_up_s=10), DaemonExecutor(1, "test")
    gc.disable()
    try:
        sent = thread.submit(sink.commit, [Offset("t", 0, 1, "")], b"group", [])
        assert isinstance(sent.exception(30), NotCommittedError)
        used = weakref.ref(ScriptedProducer.made.pop())
        wait_until(lambda: used() is None, "the end of the producer")
    finally:
        gc.enable()
