"""Membership, on a scripted client: it is used only while it holds, and a client outside its group is replaced."""

from __future__ import annotations

import itertools
from typing import Any

import pytest
from confluent_kafka import KafkaError, Message

from sfd_stream.kafka.records import Start
from tests.unit.kafka.conftest import PROTOCOLS, Played
from tests.unit.kafka.scripted import TOPIC, ScriptedConsumer

every_protocol = pytest.mark.parametrize("protocol", sorted(PROTOCOLS))


@every_protocol
def test_a_new_membership_is_not_used_for_what_was_assigned_under_the_old_one(play: Any, protocol: str) -> None:
    """Between a join that nobody reported and its assignment: the group may have given them to another worker."""
    played = play(protocol)
    client = played.client
    played.poll(lambda: client.assign_to_it(0, 1))
    assert b"member" in (played.source.membership() or b"")
    client.member_id = "another"
    assert played.source.membership() is None
    played.poll(lambda: client.assign_to_it(0, 1))
    assert b"another" in (played.source.membership() or b"")


@every_protocol
def test_a_membership_without_a_generation_is_not_used(play: Any, protocol: str) -> None:
    """A group without members would take it for an administrator's, and check nothing."""
    played = play(protocol)
    played.poll(lambda: played.client.assign_to_it(0, 1))
    played.client.generation = -1
    assert played.source.membership() is None


def expelled(played: Played, sign: str = "no connection") -> Any:
    """A client that lost its partitions, and never joins again."""
    client = played.client
    played.poll(lambda: client.assign_to_it(0, 1))
    played.poll(lambda: client.lose_from_it(0, 1))
    if sign == "no connection":
        client.connected = False
    else:
        client.member_id = ""
    return client


@every_protocol
@pytest.mark.parametrize("sign", ["no connection", "no member"])
def test_a_client_that_stays_outside_its_group_is_replaced(play: Any, protocol: str, sign: str, caplog: Any) -> None:
    played = play(protocol)
    old = expelled(played, sign)
    played.poll_for(69)
    assert played.client is old
    assert played.source.outside_s == 59.0
    played.poll_for(1)
    assert played.client is not old
    assert "outside the consumer group for 60 s, replacing the Kafka client" in caplog.text
    assert old.closed.wait(10)
    played.diary.starts = {0: Start(5), 1: Start(6)}
    assert played.poll(lambda: played.client.assign_to_it(0, 1)) == {0: [5, 6], 1: [6, 7]}
    assert played.diary.events == [("assign", (0, 1)), ("lost", (0, 1)), ("assign", (0, 1))]
    played.poll_for(10)
    assert played.source.outside_s is None


@every_protocol
def test_partitions_of_a_client_that_is_replaced_are_lost_first(play: Any, protocol: str) -> None:
    """KIP-848's client does not report its expulsion while it reaches no broker."""
    played = play(protocol)
    played.poll(lambda: played.client.assign_to_it(0, 1))
    played.client.connected = False
    played.poll_for(70)
    assert played.diary.events == [("assign", (0, 1)), ("lost", (0, 1))]
    assert played.source.assigned == frozenset()


def test_a_replaced_client_that_still_reports_changes_nothing(play: Any) -> None:
    played = play()
    old = expelled(played)
    played.poll_for(70)
    played.poll(lambda: played.client.assign_to_it(0))
    before = list(played.diary.events)
    old.assign_to_it(1)
    old.revoke_from_it(0)
    old.lose_from_it(0)
    assert played.diary.events == before
    assert played.source.assigned == {0}


def test_a_client_is_replaced_at_growing_intervals(play: Any) -> None:
    played = play()
    clients, replaced_s = [expelled(played)], []
    for _ in range(2_200):
        played.poll_for(1)
        played.client.connected = False
        if played.client is not clients[-1]:
            clients.append(played.client)
            replaced_s.append(played.now_s)
    assert [later - earlier for earlier, later in itertools.pairwise(replaced_s)] == [120, 240, 480, 600, 600]


@pytest.mark.parametrize("reason", ["a member without partitions", "no broker answers"])
def test_a_client_that_is_not_to_blame_is_not_replaced(play: Any, reason: str) -> None:
    played = play()
    client = expelled(played, "no connection" if reason == "no broker answers" else "a member")
    if reason == "no broker answers":
        played.source._on_error(KafkaError(KafkaError._ALL_BROKERS_DOWN))
        played.source._presence.probe = lambda: None
    else:
        client.member_id = "member"
    played.poll_for(200)
    assert played.client is client
    assert played.source.outside_s is None


@every_protocol
def test_a_position_outside_the_log_that_the_group_has_passed_is_a_loss(
    play: Any, protocol: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A worker that was paused may ask for removed records before the client reports that the partition was lost."""
    played = play(protocol)
    client = played.client
    played.poll(lambda: client.assign_to_it(0, 1))
    monkeypatch.setattr(ScriptedConsumer, "offset_committed", 10**6)
    client.events.append(Message(topic=TOPIC, partition=0, error=KafkaError(KafkaError._AUTO_OFFSET_RESET)))
    played.poll()
    assert 0 not in played.source.assigned
    assert client.unsubscribed == 1
