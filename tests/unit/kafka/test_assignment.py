"""The partitions of a member, on a scripted client: what is assigned, paused and lost is what the group says."""

from __future__ import annotations

from typing import Any

import pytest
from confluent_kafka import KafkaError, Message

from sfd_stream.errors import RefusedStateError
from sfd_stream.kafka.records import Start
from tests.unit.kafka.conftest import PROTOCOLS
from tests.unit.kafka.scripted import TOPIC

every_protocol = pytest.mark.parametrize("protocol", sorted(PROTOCOLS))


@every_protocol
@pytest.mark.parametrize("way", ["revoke_from_it", "lose_from_it"])
@pytest.mark.parametrize("held", [True, False])
def test_a_partition_that_was_paused_and_left_is_read_when_it_comes_back(
    play: Any, protocol: str, way: str, held: bool
) -> None:
    played = play(protocol)
    client = played.client
    played.poll(lambda: client.assign_to_it(0, 1))
    played.source.pause([0, 1])
    assert played.poll() == {}
    played.poll(lambda: getattr(client, way)(0, 1))
    if held:
        played.diary.starts = {0: None, 1: None}
    played.poll(lambda: client.assign_to_it(0, 1))
    if held:
        assert played.poll() == {}
        played.source.begin(0, Start(40))
        played.source.begin(1, Start(50))
        assert played.poll() == {0: [40, 41], 1: [50, 51]}
    else:
        assert set(played.poll()) == {0, 1}
    assert played.source.paused == frozenset()


@every_protocol
def test_a_partition_that_stays_paused_stays_so_when_another_comes(play: Any, protocol: str) -> None:
    played = play(protocol)
    client = played.client
    played.diary.starts = {1: None}
    played.poll(lambda: client.assign_to_it(0, 1))
    played.source.pause([0])
    played.source.begin(1, Start(7))
    assert played.poll() == {1: [7, 8]}
    played.source.resume([0])
    assert set(played.poll()) == {0, 1}


@every_protocol
def test_a_partition_paused_while_it_is_held_is_not_read_when_it_begins(play: Any, protocol: str) -> None:
    played = play(protocol)
    played.diary.starts = {0: None}
    played.poll(lambda: played.client.assign_to_it(0))
    played.source.pause([0])
    played.source.begin(0, Start(3))
    assert played.poll() == {}
    played.source.resume([0])
    assert played.poll() == {0: [3, 4]}


@every_protocol
def test_exactly_the_wanted_partitions_are_paused(play: Any, protocol: str) -> None:
    played = play(protocol)
    played.poll(lambda: played.client.assign_to_it(0, 1))
    for wanted in ([0], [0, 1], [1], []):
        played.source.pause_only(wanted)
        assert played.source.paused == frozenset(wanted)
        assert set(played.poll()) == {0, 1} - set(wanted)


@every_protocol
def test_partitions_assigned_while_they_are_still_held_are_lost_first(play: Any, protocol: str) -> None:
    played = play(protocol)
    client, diary = played.client, played.diary
    played.poll(lambda: client.assign_to_it(0, 1))
    diary.starts = {0: Start(5), 1: Start(6)}
    played.poll(lambda: client.assign_to_it(0, 1))
    assert diary.events == [("assign", (0, 1)), ("lost", (0, 1)), ("assign", (0, 1))]
    played.poll()
    assert played.source.positions == {0: client.positions[0], 1: client.positions[1]}
    assert client.positions.keys() == {0, 1}


@pytest.mark.parametrize("protocol", ["cooperative", "kip-848"])
def test_of_a_part_that_is_assigned_again_the_rest_is_read_on(play: Any, protocol: str) -> None:
    played = play(protocol)
    client, diary = played.client, played.diary
    played.poll(lambda: client.assign_to_it(0, 1))
    before = client.positions[0]
    diary.starts = {1: None}
    played.poll(lambda: client.assign_to_it(1, 2))
    assert diary.events[1:] == [("lost", (1,)), ("assign", (1, 2))]
    assert client.positions.keys() == {0, 2}, "1 is held"
    played.source.begin(1, Start(9))
    found = played.poll()
    assert found[1] == [9, 10]
    assert found[0][0] >= before


@every_protocol
def test_after_an_expulsion_that_the_client_does_not_report_the_partitions_can_come_back(
    play: Any, protocol: str
) -> None:
    played = play(protocol)
    client, diary = played.client, played.diary
    played.poll(lambda: client.assign_to_it(0, 1))
    client.events.append(Message(topic=TOPIC, partition=-1, error=KafkaError(KafkaError._MAX_POLL_EXCEEDED)))
    played.poll()
    diary.starts = {0: Start(5), 1: Start(6)}
    played.poll(lambda: client.assign_to_it(0, 1))
    assert diary.events == [("assign", (0, 1)), ("lost", (0, 1)), ("assign", (0, 1))]
    found = played.poll()
    assert {partition: offsets[0] for partition, offsets in found.items()}.keys() == {0, 1}


@every_protocol
@pytest.mark.parametrize("given", [(), (2,)])
def test_an_assignment_to_a_new_member_loses_everything_that_is_still_held(
    play: Any, protocol: str, given: tuple[int, ...]
) -> None:
    """The worker joins again after that: the group may count on it for partitions that the client did not name."""
    played = play(protocol)
    client, diary = played.client, played.diary
    played.poll(lambda: client.assign_to_it(0, 1))
    client.member_id = "another"
    played.poll(lambda: client.assign_to_it(*given))
    assert diary.events == [("assign", (0, 1)), ("lost", (0, 1)), ("assign", given)]
    assert played.source.assigned == set(given)
    assert client.unsubscribed == (0 if protocol == "eager" else 1)
    played.poll()
    assert client.unsubscribed <= 1, "it joins again once"


@every_protocol
@pytest.mark.parametrize("member", ["another", ""])
def test_a_revocation_from_another_membership_is_a_loss(play: Any, protocol: str, member: str) -> None:
    """The client forgets that they were lost when a rebalance is under way; its member id is another one or blank."""
    played = play(protocol)
    client, diary = played.client, played.diary
    played.poll(lambda: client.assign_to_it(0, 1))
    client.member_id = member
    played.poll(lambda: client.revoke_from_it(0, 1))
    assert diary.events == [("assign", (0, 1)), ("lost", (0, 1))]


@every_protocol
@pytest.mark.parametrize("comes_back", [True, False])
def test_an_error_of_a_partition_that_was_lost_in_the_same_poll_is_not_ours(
    play: Any, protocol: str, comes_back: bool
) -> None:
    """Retention removed what the new owner has read: the old position of the old owner says nothing."""
    played = play(protocol)
    client = played.client
    played.poll(lambda: client.assign_to_it(0, 1))

    def act() -> None:
        client.lose_from_it(0, 1)
        if comes_back:
            client.assign_to_it(0, 1)

    client.events.append(Message(topic=TOPIC, partition=0, error=KafkaError(KafkaError._AUTO_OFFSET_RESET)))
    played.poll(act)
    played.poll()
    client.events.append(Message(topic=TOPIC, partition=0, error=KafkaError(KafkaError._AUTO_OFFSET_RESET)))
    if comes_back:
        with pytest.raises(RefusedStateError, match="is not in the log"):
            played.poll()
