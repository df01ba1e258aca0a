"""Dead letters: the pure part on a fake, the bytes on real brokers."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING

import pytest
from confluent_kafka import Consumer, TopicPartition

from sfd_stream.errors import BrokerRefusedError, TooManyBadMessagesError
from sfd_stream.kafka.dead_letters import ATTEMPTS, BadMessageGauge, DeadLetters
from sfd_stream.kafka.producer import TOO_LARGE, Sink, Ticket
from sfd_stream.kafka.records import Record
from tests.support.watched import Clock

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from tests.support.kafka import Broker
    from tests.unit.kafka.conftest import Reader

AT = datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)
GIVE_UP_S = 90.0


class FakeSink:
    """Keeps what is published; the test fills the tickets."""

    def __init__(self) -> None:
        self.sent: list[tuple[bytes | None, dict[str, bytes | None], Ticket]] = []
        self.full = False

    def publish(
        self, topic: str, key: bytes | None, value: bytes | None, headers: Iterable[tuple[str, bytes | None]]
    ) -> Ticket | None:
        assert (topic, key) == ("dead", b"k")
        if self.full:
            return None
        self.sent.append((value, dict(headers), Ticket()))
        return self.sent[-1][2]

    def poll(self, timeout_s: float) -> int:
        assert timeout_s == 0
        return 0

    def deliver(self, index: int) -> None:
        self.sent[index][2].offset = index

    def fail(self, index: int, error: str, *, timed_out: bool = False) -> None:
        self.sent[index][2].error, self.sent[index][2].timed_out = error, timed_out


def letters_of(sink: FakeSink, clock: Clock | None = None) -> DeadLetters:
    times = {"clock": clock or Clock(), "wall_clock": AT.timestamp}
    return DeadLetters(sink, "dead", source_topic="rows", source_topic_id="id-1", give_up_s=GIVE_UP_S, **times)


def bad(offset: int, partition: int = 0, value: bytes | None = b"bad") -> Record:
    return Record(partition, offset, value, b"k", (("h", b"1"),))


def test_a_checkpoint_waits_for_the_dead_letters_below_its_offset_and_no_others() -> None:
    sink = FakeSink()
    letters = letters_of(sink)
    letters.send(bad(5), "malformed")
    letters.send(bad(9), "malformed")
    letters.send(bad(2, partition=1), "malformed")
    assert letters.acknowledged(0, 5)
    assert not letters.acknowledged(0, 6)
    sink.deliver(0)
    assert letters.acknowledged(0, 9)
    assert not letters.acknowledged(0, 10)
    assert not letters.acknowledged(1, 3)
    assert letters.acknowledged(2, 100)


def test_a_failed_dead_letter_is_sent_again_and_given_up_loudly() -> None:
    sink = FakeSink()
    letters = letters_of(sink)
    letters.send(bad(5), "malformed")
    for attempt in range(1, ATTEMPTS):
        sink.fail(attempt - 1, "INVALID_RECORD: no")
        assert not letters.acknowledged(0, 6)
        assert len(sink.sent) == attempt + 1
    sink.fail(-1, "INVALID_RECORD: no")
    with pytest.raises(BrokerRefusedError, match=r"does not take the message at offset 5 .*INVALID_RECORD"):
        letters.acknowledged(0, 6)


def test_a_time_out_is_no_refusal_until_give_up_s_has_passed() -> None:
    """An outage of 15 s with message.timeout.ms at 5 s ended the worker (campaign, seed 13 with --fencing)."""
    sink, clock = FakeSink(), Clock(0.0)
    letters = letters_of(sink, clock)
    letters.send(bad(5), "malformed")
    for attempt in range(4 * ATTEMPTS):
        clock.now += 5
        sink.fail(attempt, "_MSG_TIMED_OUT: too late", timed_out=True)
        assert not letters.acknowledged(0, 6)
        assert "_MSG_TIMED_OUT" in letters.failure
    sink.deliver(-1)
    assert letters.acknowledged(0, 6)
    assert letters.failure == ""
    letters.send(bad(7), "malformed")
    sink.fail(-1, "_MSG_TIMED_OUT: too late", timed_out=True)
    assert not letters.acknowledged(0, 8)
    clock.now += GIVE_UP_S
    sink.fail(-1, "_MSG_TIMED_OUT: too late", timed_out=True)
    with pytest.raises(BrokerRefusedError, match=r"offset 7 for 90 s .*_MSG_TIMED_OUT"):
        letters.acknowledged(0, 8)


def test_the_real_client_says_that_a_message_timed_out() -> None:
    sink = Sink({"bootstrap.servers": "127.0.0.1:1", "message.timeout.ms": 100, "log_level": 0})
    ticket = sink.publish("dead", None, b"x")
    assert ticket is not None
    sink.flush(10.0)
    assert (ticket.timed_out, ticket.delivered) == (True, False)


def test_one_too_large_goes_without_its_value_and_says_so() -> None:
    sink = FakeSink()
    letters = letters_of(sink)
    letters.send(bad(5, value=b"x" * 77), "too_large")
    sink.fail(0, TOO_LARGE)
    assert not letters.acknowledged(0, 6)
    value, headers, _ = sink.sent[1]
    assert value is None
    assert headers["sfd-value-dropped"] == b"77"
    assert headers["sfd-offset"] == b"5"
    sink.deliver(1)
    assert letters.acknowledged(0, 6)


def test_one_too_large_even_without_its_value_is_refused() -> None:
    sink = FakeSink()
    letters = letters_of(sink)
    letters.send(bad(5), "malformed")
    sink.fail(0, TOO_LARGE)
    letters.acknowledged(0, 6)
    sink.fail(1, TOO_LARGE)
    with pytest.raises(BrokerRefusedError, match=r"max\.message\.bytes"):
        letters.acknowledged(0, 6)


def test_a_full_queue_is_no_attempt() -> None:
    sink = FakeSink()
    letters = letters_of(sink)
    sink.full = True
    letters.send(bad(5), "malformed")
    for _ in range(2 * ATTEMPTS):
        assert not letters.acknowledged(0, 6)
    sink.full = False
    assert not letters.acknowledged(0, 6)
    sink.deliver(0)
    assert letters.acknowledged(0, 6)


def test_what_was_given_up_with_its_partition_holds_nobody_back() -> None:
    sink = FakeSink()
    letters = letters_of(sink)
    letters.send(bad(5), "malformed")
    letters.forget(0)
    assert letters.acknowledged(0, 100)


def test_a_dead_letter_has_the_bytes_key_and_headers_of_the_message(
    broker: Broker, read: Callable[..., Reader]
) -> None:
    topic, dead = broker.create_topic(partitions=1), broker.create_topic(partitions=1)
    original = b"\x00\xffnot rows"
    headers = [("trace", b"\x01\x02"), ("trace", b"again"), ("empty", None)]
    broker.produce(topic, [b"fine", original], key=b"\xfekey", headers=headers)
    reader = read(broker, topic)
    record = None
    while record is None:
        found = [batch.record(n) for batch in reader.poll(1.0) for n in range(len(batch))]
        record = next((each for each in found if each.value == original), None)
    sink = Sink({"bootstrap.servers": broker.bootstrap})
    letters = DeadLetters(
        sink, dead, source_topic=topic, source_topic_id="id-1", give_up_s=GIVE_UP_S, wall_clock=AT.timestamp
    )
    letters.send(record, "malformed")
    assert sink.flush(30)
    assert letters.acknowledged(0, 2)

    consumer = Consumer({"bootstrap.servers": broker.bootstrap, "group.id": "dead", "log_level": 0})
    consumer.assign([TopicPartition(dead, p, 0) for p in range(len(sink_partitions(broker, dead)))])
    (message,) = consumer.consume(1, 20)
    consumer.close()
    assert (message.value(), message.key()) == (original, b"\xfekey")
    assert message.headers() == [
        *headers,
        ("sfd-reason", b"malformed"),
        ("sfd-topic", topic.encode()),
        ("sfd-topic-id", b"id-1"),
        ("sfd-partition", b"0"),
        ("sfd-offset", b"1"),
        ("sfd-time", b"2026-01-02T03:04:05+00:00"),
    ]


def sink_partitions(broker: Broker, topic: str) -> list[int]:
    return sorted(broker.admin.list_topics(topic, timeout=10).topics[topic].partitions)


def test_one_too_large_for_the_real_topic_arrives_without_its_value(kafka: Broker) -> None:
    dead = kafka.create_topic(config={"max.message.bytes": "2000"})
    sink = Sink({"bootstrap.servers": kafka.bootstrap})
    letters = DeadLetters(sink, dead, source_topic="rows", source_topic_id=None, give_up_s=GIVE_UP_S)
    letters.send(bad(5, value=b"x" * 5000), "too_large")
    assert sink.flush(30)
    assert not letters.acknowledged(0, 6)
    assert sink.flush(30)
    assert letters.acknowledged(0, 6)


def gauge_of(max_share: float = 0.1, window: int = 100, max_consecutive: int = 1000) -> BadMessageGauge:
    return BadMessageGauge(max_share=max_share, window=window, max_consecutive=max_consecutive)


def test_a_share_at_the_limit_passes_and_one_more_does_not() -> None:
    gauge = gauge_of()
    gauge.good(90)
    for _ in range(10):
        gauge.bad("malformed", "rows/0@1")
    with pytest.raises(TooManyBadMessagesError, match=r"11 of the last 100 .*max_share = 0.1.*rows/0@7"):
        gauge.bad("malformed", "rows/0@7")


def test_a_share_is_not_judged_before_the_window_is_full() -> None:
    gauge = gauge_of()
    for _ in range(50):
        gauge.bad("malformed", "rows/0@1")


def test_old_messages_leave_the_window() -> None:
    gauge = gauge_of()
    for _ in range(100):
        gauge.good(9)
        gauge.bad("malformed", "rows/0@1")
    gauge.good(10**9)
    for _ in range(10):
        gauge.bad("malformed", "rows/0@1")


def test_a_good_message_breaks_a_run() -> None:
    gauge = gauge_of(max_consecutive=3)
    for _ in range(5):
        for _ in range(2):
            gauge.bad("malformed", "rows/0@1")
        gauge.good(1)
    for _ in range(2):
        gauge.bad("malformed", "rows/0@1")
    with pytest.raises(TooManyBadMessagesError, match=r"3 bad messages in a row.*max_consecutive = 3"):
        gauge.bad("malformed", "rows/0@1")
