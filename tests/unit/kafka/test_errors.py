"""Errors of the client, sorted by what a worker does about them; a refusal says what to do."""

from __future__ import annotations

from typing import Any

import pytest
from confluent_kafka import KafkaError

from sfd_stream.kafka.errors import Fault, fault_of, is_unavailable, refusal

USER: dict[str, Any] = {"bootstrap.servers": "a:1", "group.id": "g"}


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
