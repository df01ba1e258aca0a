"""Properties of the clients: the user's pass, those that the protocol owns are refused by name."""

from __future__ import annotations

from typing import Any

import pytest

from sfd_stream.errors import SettingsError
from sfd_stream.kafka.properties import (
    admin_properties,
    assigns_incrementally,
    consumer_properties,
    producer_properties,
    redacted,
)
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
