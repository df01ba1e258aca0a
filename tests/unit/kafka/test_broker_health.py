"""Whether the brokers answer: `Presence` asks while they do not, `Membership` has a lost client replaced."""

from __future__ import annotations

import itertools
import time
from typing import Any

from confluent_kafka import KafkaError

from sfd_stream.errors import BrokerRefusedError
from sfd_stream.kafka.broker_health import CHECK_S, RENEW_FIRST_S, RENEW_LAST_S, Membership, Presence
from tests.support.watched import Clock

UNKNOWN_TOPIC_S = 30.0


class Cluster:
    def __init__(self, *, has_topic: bool = True) -> None:
        self.has_topic = has_topic

    def topic_exists(self, topic: str, timeout_s: float) -> bool:
        assert (topic, timeout_s > 0) == ("rows", True)
        return self.has_topic


def presence(cluster: Cluster, clock: Clock) -> Presence:
    admin: Any = cluster
    return Presence(admin, "rows", {"bootstrap.servers": "b:1"}, clock, UNKNOWN_TOPIC_S)


def probed(one: Presence) -> BrokerRefusedError | None:
    """The answer of one probe, once its thread has it."""
    found = one.probe()
    probing = one._probing
    if probing is None:
        return found
    deadline = time.monotonic() + 30
    while not probing.done():
        assert time.monotonic() < deadline
        time.sleep(0.001)
    return one.probe()


def test_an_outage_lasts_until_a_probe_is_answered() -> None:
    clock = Clock()
    one = presence(Cluster(), clock)
    assert one.note(KafkaError(KafkaError._ALL_BROKERS_DOWN)) is None
    clock.now += 5
    assert one.unavailable_s == 5
    assert probed(one) is None
    assert one.unavailable_s is None


def test_a_record_ends_an_outage_too() -> None:
    one = presence(Cluster(), Clock())
    one.note(KafkaError(KafkaError._ALL_BROKERS_DOWN))
    one.answered()
    assert one.unavailable_s is None


def test_a_topic_may_be_missing_for_a_while_and_no_longer() -> None:
    clock = Clock()
    one = presence(Cluster(has_topic=False), clock)
    one.note(KafkaError(KafkaError.UNKNOWN_TOPIC_OR_PART))
    clock.now += 1
    assert probed(one) is None
    clock.now += UNKNOWN_TOPIC_S
    assert isinstance(probed(one), BrokerRefusedError)


def test_a_permanent_error_is_returned() -> None:
    found = presence(Cluster(), Clock()).note(KafkaError(KafkaError.TOPIC_AUTHORIZATION_FAILED))
    assert isinstance(found, BrokerRefusedError)


def test_a_client_outside_its_group_is_replaced_at_growing_intervals() -> None:
    clock = Clock()
    began, membership, replaced = clock.now, Membership(clock), []
    while clock.now < began + 4_000:
        clock.now += CHECK_S
        if membership.is_overdue(lambda: False):
            replaced.append(clock.now)
    pauses = [later - earlier for earlier, later in itertools.pairwise(replaced)]
    assert replaced[0] - began - CHECK_S == RENEW_FIRST_S
    assert pauses[0] == 2 * RENEW_FIRST_S
    assert max(pauses) == RENEW_LAST_S


def test_a_member_is_not_replaced() -> None:
    clock = Clock()
    membership = Membership(clock)
    for _ in range(1_000):
        clock.now += CHECK_S
        assert not membership.is_overdue(lambda: True)
    assert membership.outside_s is None
