"""A hanging transaction is what Kafka's tool names, and nothing else. An open one is found in its partition."""

from __future__ import annotations

from confluent_kafka import Producer

from tests.support.kafka import Broker
from tests.system.runs import wait_until
from tests.torture.hanging import Hanging, hanging_transactions, parsed
from tests.torture.truth import unended

PRINTED = """\
Topic              \tPartition\tProducerId\tProducerEpoch\tCoordinatorEpoch\tStartOffset\tLastTimestamp\tDuration(min)\t
__consumer_offsets \t0        \t1003      \t12           \t3               \t4711       \t1795055578962\t7            \t
"""


def test_each_row_of_the_tool_is_a_hanging_transaction() -> None:
    (found,) = parsed(PRINTED)
    assert (found.topic, found.partition, found.start_offset) == ("__consumer_offsets", 0, 4711)
    assert parsed(PRINTED.splitlines()[0]) == parsed("") == []


def test_a_transaction_that_its_coordinator_knows_does_not_hang(kafka: Broker) -> None:
    """It is open, and older than the limit of 0 minutes."""
    topic = kafka.create_topic()
    producer = Producer({"bootstrap.servers": kafka.bootstrap, "transactional.id": f"open-{topic}"})
    producer.init_transactions(30)
    producer.begin_transaction()
    producer.produce(topic, b"open")
    producer.flush(30)
    found: list[Hanging] = hanging_transactions(kafka.bootstrap, [1], minutes=0)
    assert unended(kafka.bootstrap, topic) == [0]
    producer.abort_transaction(30)
    assert [one for one in found if one.topic == topic] == []
    wait_until(lambda: unended(kafka.bootstrap, topic) == [], "the end of the transaction")
