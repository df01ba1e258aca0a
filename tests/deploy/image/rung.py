"""Run by test_testcontainers.py: which rung of the ladder is this, and can its broker be killed and started again?"""

from __future__ import annotations

from confluent_kafka import Consumer, TopicPartition

from tests.support.kafka import Broker
from tests.support.kafka_fixtures import PrivateBrokers


def test_the_shared_broker_is_a_container(kafka: Broker) -> None:
    assert kafka.kind == "container"


def test_a_container_killed_and_started_again_has_its_messages(private_broker: PrivateBrokers) -> None:
    broker = private_broker()
    assert broker.kind == "container"
    topic = broker.create_topic()
    broker.produce(topic, [b"one", b"two"])
    broker.restart()
    consumer = Consumer({"bootstrap.servers": broker.bootstrap, "group.id": "g"})
    try:
        consumer.assign([TopicPartition(topic, 0, 0)])
        assert [message.value() for message in consumer.consume(2, 60)] == [b"one", b"two"]
    finally:
        consumer.close()
