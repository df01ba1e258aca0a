"""The simulated client against the real one, on librdkafka's built-in broker and on a real Kafka."""

from __future__ import annotations

import socket
import struct
import time
import uuid
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import confluent_kafka
import pytest
from confluent_kafka.admin import AdminClient as RealAdmin

from tests.simulation.admin import AdminClient
from tests.simulation.conformance import (
    SCENARIOS,
    Kit,
    a_pause_survives_unassign_and_assign,
    what_is_assigned_cannot_be_assigned_again,
)
from tests.simulation.conformance_kafka import CLASSIC, EAGER_GROUPS, NEW_PROTOCOL, TRANSACTIONAL
from tests.simulation.consumer import Consumer
from tests.simulation.primitives import sleep
from tests.simulation.producer import Producer
from tests.simulation.scheduler import Process, Scheduler, active, running
from tests.simulation.world import World

if TYPE_CHECKING:
    from tests.support.kafka import Broker

Scenario = Callable[[Kit], list[Any]]


def simulated(scenario: Scenario) -> list[Any]:
    found: list[Any] = []
    scheduler = Scheduler(1)
    with running(scheduler):
        world = World(scheduler, 1)
        world.network.slow = 0.0
        world.kip_848, world.cooperative = scenario in NEW_PROTOCOL, scenario not in EAGER_GROUPS

        def create_topic(partitions: int) -> str:
            return world.broker.create(f"topic-{len(world.broker.topics)}", partitions).name

        def produce(topic: str, partition: int, values: list[bytes]) -> None:
            for value in values:
                world.broker.append(topic, partition, "test", value)

        def remove_member(group: str, member_id: str) -> None:
            world.group(group).leave(member_id)

        clients = (Consumer, Producer, AdminClient)
        kit = Kit(*clients, {}, create_topic, produce, lambda: active().now, sleep, "group", remove_member)
        scheduler.spawn(Process("client"), "main", lambda: found.append(scenario(kit)))
        assert scheduler.run_until(scheduler.now + 600.0, lambda: bool(found))
    return found[0]  # type: ignore[no-any-return]


def real(scenario: Scenario, broker: Broker) -> list[Any]:
    kit = Kit(
        confluent_kafka.Consumer,
        confluent_kafka.Producer,
        RealAdmin,
        {"bootstrap.servers": broker.bootstrap, "log_level": 0},
        lambda partitions: broker.create_topic(partitions=partitions),
        lambda topic, partition, values: broker.produce(topic, values, partition=partition),
        time.monotonic,
        time.sleep,
        f"g-{uuid.uuid4().hex[:8]}",
        lambda group, member_id: _remove(broker.bootstrap, group, member_id, new=scenario in NEW_PROTOCOL),
    )
    return scenario(kit)


def _remove(bootstrap: str, group: str, member_id: str, *, new: bool) -> None:
    """Requests in another member's name, which the Python client has no call for: LeaveGroup (version 2), or in the
    new protocol ConsumerGroupHeartbeat (version 0) with epoch -1.
    """
    host, _, port = bootstrap.rpartition(":")
    client = struct.pack(">h", 4) + b"test"
    if new:
        names = b"".join(bytes([len(word) + 1]) + word for word in (group.encode(), member_id.encode()))
        nothing = b"\0\0" + struct.pack(">i", -1) + b"\0\0\0\0"
        request = struct.pack(">hhi", 68, 0, 1) + client + b"\0" + names + struct.pack(">i", -1) + nothing
    else:
        words = [struct.pack(">h", len(word)) + word for word in (group.encode(), member_id.encode())]
        request = struct.pack(">hhi", 13, 2, 1) + client + b"".join(words)
    with socket.create_connection((host, int(port)), timeout=10) as connection:
        connection.sendall(struct.pack(">i", len(request)) + request)
        answer = connection.recv(256)
    code = answer[13:15] if new else answer[-2:]  # after size, number, an empty tag section and the throttle time
    assert code == b"\0\0", f"the member was not removed: {answer!r}"


SMOKE = (a_pause_survives_unassign_and_assign, what_is_assigned_cannot_be_assigned_again)


def named(scenarios: tuple[Scenario, ...]) -> list[Any]:
    """Those that take seconds each are for make test-all."""
    return [pytest.param(each, id=each.__name__, marks=() if each in SMOKE else pytest.mark.slow) for each in scenarios]


@pytest.mark.parametrize("scenario", named(SCENARIOS))
def test_the_simulated_client_does_what_the_real_one_does(scenario: Scenario, broker: Broker) -> None:
    assert simulated(scenario) == real(scenario, broker)


@pytest.mark.parametrize("scenario", named(TRANSACTIONAL + NEW_PROTOCOL + EAGER_GROUPS + CLASSIC))
def test_simulated_transactions_and_new_groups_do_what_the_real_ones_do(scenario: Scenario, kafka: Broker) -> None:
    assert simulated(scenario) == real(scenario, kafka)
