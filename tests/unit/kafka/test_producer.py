"""The sink's contract, on the real broker and on the built-in one."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from confluent_kafka import Consumer, Message, TopicPartition

from sfd_stream.kafka.producer import TOO_LARGE, UNCONFIRMED, Sink, Ticket

if TYPE_CHECKING:
    from tests.support.kafka import Broker
    from tests.support.kafka_fixtures import PrivateBrokers


def sink_of(broker: Broker, **properties: object) -> Sink:
    return Sink({"bootstrap.servers": broker.bootstrap, **properties})


def stored(broker: Broker, topic: str, count: int, partition: int = 0) -> list[bytes | None]:
    """The values that the partition holds, read by a client that has nothing to do with ours."""
    consumer = Consumer({"bootstrap.servers": broker.bootstrap, "group.id": "reader", "log_level": 0})
    consumer.assign([TopicPartition(topic, partition, 0)])
    found = consumer.consume(count, 30)
    high = consumer.get_watermark_offsets(TopicPartition(topic, partition), 10)[1]
    consumer.close()
    assert high == count
    return [message.value() for message in found]


def test_a_ticket_tells_where_the_message_is(broker: Broker) -> None:
    topic = broker.create_topic(partitions=1)
    sink = sink_of(broker)
    tickets = [sink.publish(topic, b"key", b"%d" % n, [("h", b"1")]) for n in range(10)]
    assert not any(ticket is None for ticket in tickets)
    assert sink.flush(30)
    assert all(ticket.delivered and ticket.error is None for ticket in tickets if ticket)
    assert [ticket.offset for ticket in tickets if ticket] == list(range(10))
    assert len({ticket.partition for ticket in tickets if ticket}) == 1
    assert len(sink) == 0


def test_a_message_too_large_for_the_client_is_told_on_its_ticket_and_the_next_is_delivered(
    broker: Broker,
) -> None:
    topic = broker.create_topic(partitions=1)
    sink = sink_of(broker, **{"message.max.bytes": 2000})
    large, small = sink.publish(topic, None, b"x" * 3000), sink.publish(topic, None, b"x")
    assert sink.flush(30)
    assert large is not None
    assert (large.done, large.delivered, large.error) == (True, False, TOO_LARGE)
    assert small is not None
    assert small.delivered


def test_a_message_too_large_for_the_topic_takes_no_other_with_it(kafka: Broker) -> None:
    topic = kafka.create_topic(config={"max.message.bytes": "2000"})
    sink = sink_of(kafka)
    large, small = sink.publish(topic, None, b"x" * 3000), sink.publish(topic, None, b"x")
    assert sink.flush(30)
    assert large is not None
    assert large.error == TOO_LARGE
    assert small is not None
    assert small.delivered


def test_a_topic_that_is_not_there_fails_the_ticket_and_not_the_sink(kafka: Broker) -> None:
    sink = sink_of(kafka, **{"delivery.timeout.ms": 3000, "topic.metadata.propagation.max.ms": 500})
    ticket = sink.publish("no-such-topic", None, b"x")
    assert sink.flush(30)
    assert ticket is not None
    assert ticket.error is not None
    assert "UNKNOWN_TOPIC" in ticket.error.upper()
    other = sink.publish(kafka.create_topic(), None, b"x")
    assert sink.flush(30)
    assert other is not None
    assert other.delivered


def test_a_success_without_an_offset_is_no_delivery(built_in: Broker) -> None:
    """What the client reports of a message that the broker called a duplicate, and may never have stored."""
    ticket = Ticket()
    sink_of(built_in)._on_delivery(ticket, None, Message(topic="t", partition=0))
    assert (ticket.done, ticket.delivered, ticket.error) == (True, False, UNCONFIRMED)


def test_a_full_queue_says_so_and_takes_more_once_polled(built_in: Broker) -> None:
    topic = built_in.create_topic()
    sink = sink_of(built_in, **{"queue.buffering.max.messages": 5, "linger.ms": 500})
    while sink.publish(topic, None, b"x") is not None:
        pass
    assert sink.flush(30)
    assert sink.publish(topic, None, b"x") is not None
    assert sink.close(30)


@pytest.mark.slow
def test_a_broker_killed_in_between_loses_nothing_and_doubles_nothing(private_broker: PrivateBrokers) -> None:
    broker = private_broker()
    topic = broker.create_topic()
    sink = sink_of(broker, **{"reconnect.backoff.max.ms": 500})
    values = [b"%d" % n for n in range(3000)]
    tickets = []
    for n, value in enumerate(values):
        if n == 1000:
            sink.poll(0)
            broker.kill()
        if n == 2000:
            broker.restart()
        tickets.append(sink.publish(topic, None, value))
    assert sink.flush(60)
    assert all(ticket is not None and ticket.delivered for ticket in tickets)
    assert stored(broker, topic, 3000) == values


def test_what_did_not_get_through_when_closing_fails_its_ticket(private_broker: PrivateBrokers) -> None:
    broker = private_broker()
    topic = broker.create_topic()
    sink = sink_of(broker)
    broker.kill()
    ticket = sink.publish(topic, None, b"x")
    assert not sink.close(0.5)
    assert ticket is not None
    assert ticket.done
    assert not ticket.delivered
