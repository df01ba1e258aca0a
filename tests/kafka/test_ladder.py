"""Laws of the parts themselves: brokers that tests stand on."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tests.parts.kafka import Broker
    from tests.parts.kafka_fixtures import PrivateBrokers


def test_every_topic_has_leaders_when_it_is_handed_out(broker: Broker) -> None:
    topic = broker.create_topic(partitions=2)
    assert broker.leaders_known(topic)
    broker.produce(topic, [b"a", b"b"])


def test_a_private_broker_comes_back_with_what_it_had(private_broker: PrivateBrokers) -> None:
    broker = private_broker()
    topic = broker.create_topic(partitions=2)
    cluster = broker.admin.cluster_id(10)
    broker.kill()
    broker.restart()
    assert broker.leaders_known(topic, partitions=2)
    assert broker.admin.cluster_id(10) == cluster
