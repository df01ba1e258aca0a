"""Properties, faults and records: the pure part, without a broker."""

from __future__ import annotations

from typing import Any

import pytest
from confluent_kafka import KafkaError, Message
from hypothesis import given
from hypothesis import strategies as st

from sfd_stream.errors import SettingsError
from sfd_stream.kafka.errors import Fault, fault_of, is_unavailable, refusal
from sfd_stream.kafka.properties import (
    admin_properties,
    assigns_incrementally,
    consumer_properties,
    producer_properties,
    redacted,
)
from sfd_stream.kafka.records import Record, split
from sfd_stream.tools.sizing import QUEUES_BYTES

USER: dict[str, Any] = {"bootstrap.servers": "a:1", "group.id": "g"}


@pytest.mark.parametrize(
    "key",
    [
        "enable.auto.commit",
        "enable.auto.offset.store",
        "auto.offset.reset",
        "transactional.id",
        "acks",
        "error_cb",
    ],
)
@pytest.mark.parametrize("make", [consumer_properties, producer_properties, admin_properties])
def test_what_the_protocol_owns_is_refused_by_name(make: Any, key: str) -> None:
    with pytest.raises(SettingsError, match=key):
        make({**USER, key: "x"})


def test_every_consumer_commits_and_resets_nothing_by_itself() -> None:
    made = consumer_properties(USER)
    assert made["enable.auto.commit"] is made["enable.auto.offset.store"] is made["enable.partition.eof"] is False
    assert made["auto.offset.reset"] == "error"
    assert made["partition.assignment.strategy"] == "cooperative-sticky"


def test_prefetched_messages_fit_into_the_memory_that_size_estimates() -> None:
    """The client needs some 420 bytes for each message besides its own (measured with librdkafka 2.16)."""
    made = consumer_properties(USER)
    assert made["queued.max.messages.kbytes"] * 1024 + made["queued.min.messages"] * 420 < QUEUES_BYTES


def test_users_properties_pass_to_the_clients_that_they_concern() -> None:
    user = {
        **USER,
        "fetch.min.bytes": 7,
        "linger.ms": 9,
        "ssl.ca.location": "ca.pem",
        "queued.min.messages": 1,
    }
    consumer, producer, admin = consumer_properties(user), producer_properties(user), admin_properties(user)
    assert (consumer["fetch.min.bytes"], consumer["queued.min.messages"]) == (7, 1)
    assert producer["linger.ms"] == 9
    assert consumer["ssl.ca.location"] == producer["ssl.ca.location"] == admin["ssl.ca.location"] == "ca.pem"
    assert "linger.ms" not in {**consumer, **admin}
    assert not {"fetch.min.bytes", "group.id"} & {**producer, **admin}.keys()


@pytest.mark.parametrize("key", ["session.timeout.ms", "heartbeat.interval.ms", "partition.assignment.strategy"])
def test_the_new_group_protocol_refuses_what_the_broker_decides(key: str) -> None:
    assert consumer_properties({**USER, key: "1"})
    with pytest.raises(SettingsError, match=rf"{key} can't be set with group.protocol=consumer"):
        consumer_properties({**USER, "group.protocol": "consumer", key: "1"})


def test_the_kind_of_assignment_follows_from_the_properties() -> None:
    assert assigns_incrementally(consumer_properties(USER))
    assert assigns_incrementally(consumer_properties({**USER, "group.protocol": "consumer"}))
    assert not assigns_incrementally(consumer_properties({**USER, "partition.assignment.strategy": "range"}))


@pytest.mark.parametrize("missing", ["bootstrap.servers", "group.id"])
def test_what_is_missing_is_named(missing: str) -> None:
    with pytest.raises(SettingsError, match=f"{missing} is not set"):
        consumer_properties({key: value for key, value in USER.items() if key != missing})


def test_no_secret_survives_in_a_message() -> None:
    secrets = {
        "sasl.password": "hunter2",
        "ssl.key.pem": "PEM..",
        "sasl.username": "joe",
        "client.id": "shown",
    }
    assert redacted("hunter2 PEM.. joe shown", secrets) == "*** *** *** shown"


@pytest.mark.parametrize(
    ("code", "fault"),
    [
        (KafkaError._ALL_BROKERS_DOWN, Fault.PASSING),
        (KafkaError._TRANSPORT, Fault.PASSING),
        (KafkaError._SSL, Fault.PASSING),
        (KafkaError.NOT_LEADER_FOR_PARTITION, Fault.PASSING),
        (KafkaError.TOPIC_AUTHORIZATION_FAILED, Fault.REFUSED),
        (KafkaError.GROUP_AUTHORIZATION_FAILED, Fault.REFUSED),
        (KafkaError._AUTHENTICATION, Fault.REFUSED),
        (KafkaError.FENCED_INSTANCE_ID, Fault.REFUSED),
        (KafkaError._AUTO_OFFSET_RESET, Fault.OUTSIDE_LOG),
        (KafkaError._LOG_TRUNCATION, Fault.OUTSIDE_LOG),
        (KafkaError.UNKNOWN_TOPIC_OR_PART, Fault.UNKNOWN_TOPIC),
        (KafkaError._MAX_POLL_EXCEEDED, Fault.EXPELLED),
    ],
)
def test_each_error_is_sorted_by_what_to_do_about_it(code: int, fault: Fault) -> None:
    assert fault_of(KafkaError(code)) is fault


def test_brokers_that_are_all_restarting_are_away_and_a_wrong_replication_factor_is_not() -> None:
    code = KafkaError.INVALID_REPLICATION_FACTOR
    assert is_unavailable(
        KafkaError(code, "Unable to replicate the partition 1 time(s): All brokers are currently fenced")
    )
    assert not is_unavailable(
        KafkaError(code, "Unable to replicate the partition 3 time(s): only 1 broker(s) are registered")
    )


def test_a_fatal_error_is_for_good_whatever_its_code() -> None:
    assert fault_of(KafkaError(KafkaError._TRANSPORT, "x", fatal=True)) is Fault.REFUSED


def test_a_refusal_says_where_what_to_do_and_no_secret() -> None:
    error = KafkaError(KafkaError.GROUP_AUTHORIZATION_FAILED, "denied to hunter2")
    words = str(refusal(error, {**USER, "sasl.password": "hunter2"}))
    assert "a:1 refused: no right to the consumer group: grant READ" in words
    assert "hunter2" not in words


def message(partition: int, offset: int) -> Message[bytes, bytes]:
    return Message(topic="t", partition=partition, offset=offset, value=b"%d" % offset)


@given(st.lists(st.integers(0, 3), max_size=60), st.sets(st.integers(0, 3)))
def test_splitting_keeps_order_and_every_record_of_the_wanted_partitions(runs: list[int], wanted: set[int]) -> None:
    messages = [message(partition, offset) for offset, partition in enumerate(runs)]
    found = {batch.partition: batch.offsets for batch in split(messages, wanted)}
    expected = {p: [offset for offset, q in enumerate(runs) if q == p] for p in wanted}
    assert found == {p: offsets for p, offsets in expected.items() if offsets}


def test_a_batch_makes_records_only_when_asked() -> None:
    (batch,) = split([message(2, 5), message(2, 9)], {2})
    assert (batch.first_offset, batch.next_offset, len(batch)) == (5, 10, 2)
    assert batch.values == [b"5", b"9"]
    assert batch.record(0) == Record(2, 5, b"5")
    assert batch.record(0).next_offset == 6
