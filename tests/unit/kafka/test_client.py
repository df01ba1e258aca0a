"""Habits of the real client that the source works around, and the scripted one imitates."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

import pytest
from confluent_kafka import Consumer, KafkaError, KafkaException, TopicPartition

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from tests.support.kafka import Broker
    from tests.unit.kafka.conftest import Reader

    Read = Callable[..., Reader]


@pytest.fixture
def bare(kafka: Broker) -> Iterator[tuple[Consumer, TopicPartition]]:
    """A consumer, and a partition with records."""
    topic = kafka.create_topic()
    kafka.produce(topic, [b"x"] * 20)
    consumer = Consumer({"bootstrap.servers": kafka.bootstrap, "group.id": topic, "log_level": 0})
    yield consumer, TopicPartition(topic, 0, 0)
    consumer.close()


def delivers(consumer: Consumer, within_s: float) -> bool:
    deadline = time.monotonic() + within_s
    while time.monotonic() < deadline:
        if consumer.consume(5, 0.1):
            return True
    return False


@pytest.mark.parametrize("way", ["incremental", "eager"])
def test_the_client_keeps_a_pause_when_a_partition_is_unassigned_and_assigned_again(bare: Any, way: str) -> None:
    consumer, where = bare
    assign, unassign = (
        (consumer.incremental_assign, lambda: consumer.incremental_unassign([where]))
        if way == "incremental"
        else (consumer.assign, consumer.unassign)
    )
    assign([where])
    assert delivers(consumer, 30)
    consumer.pause([where])
    unassign()
    assign([where])
    assert not delivers(consumer, 2)
    consumer.resume([where])
    assert delivers(consumer, 30)


def test_the_client_refuses_to_assign_what_it_has(bare: Any) -> None:
    consumer, where = bare
    consumer.incremental_assign([where])
    with pytest.raises(KafkaException) as caught:
        consumer.incremental_assign([where])
    assert caught.value.args[0].code() == KafkaError._CONFLICT


@pytest.mark.parametrize("protocol", ["cooperative", "eager", "kip-848"])
def test_a_partition_that_was_paused_and_left_is_read_when_it_comes_back(
    kafka: Broker, read: Read, protocol: str
) -> None:
    """One partition stays, so that the client keeps what it knows of the topic."""
    topic = kafka.create_topic(partitions=2)
    for partition in range(2):
        kafka.produce(topic, [b"x"] * 10, partition=partition)
    reader = read(kafka, topic, protocol=protocol)
    reader.until(lambda: reader.count == 20)
    reader.source.pause([0, 1])
    other = read(kafka, topic, protocol=protocol)
    reader.until(lambda: len(other.diary.owned) == 1, "that one goes to the other", others=[other])
    (moved,) = other.diary.owned
    assert other.source.close(10)
    reader.until(lambda: len(reader.diary.owned) == 2, "that it comes back")
    reader.until(lambda: len(reader.offsets(moved)) == 20, "that its records are read again")
