"""What librdkafka does seldom, on a scripted client: losses without a callback, kept pauses, commits that overtake."""

from __future__ import annotations

import itertools
from typing import Any

import pytest
from confluent_kafka import KafkaError, Message

from sfd_stream.errors import RefusedStateError
from sfd_stream.kafka import admin as admin_module
from sfd_stream.kafka import source as source_module
from sfd_stream.kafka.commits import Committed
from sfd_stream.kafka.records import Start
from sfd_stream.kafka.source import Source
from tests.unit.kafka.conftest import PROTOCOLS, Diary
from tests.unit.kafka.scripted import TOPIC, ScriptedConsumer

every_protocol = pytest.mark.parametrize("protocol", sorted(PROTOCOLS))


class Played:
    """A Source on a scripted client."""

    def __init__(self, protocol: str = "cooperative") -> None:
        self.diary = Diary()
        self.now_s = 0.0
        settings = {"bootstrap.servers": "b:1", "group.id": "g", **PROTOCOLS[protocol]}
        self.source = Source(settings, TOPIC, clock=lambda: self.now_s)
        self.source.subscribe(self.diary)

    @property
    def client(self) -> Any:
        return self.source._consumer

    def poll_for(self, seconds: int) -> None:
        for _ in range(seconds):
            self.now_s += 1.0
            self.poll()

    def poll(self, act: Any = lambda: None) -> dict[int, list[int]]:
        """The offsets that one poll gave, by partition."""
        self.client.script.append(act)
        return {batch.partition: batch.offsets for batch in self.source.poll(100, 0)}


@pytest.fixture
def play(monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.setattr(source_module, "Consumer", ScriptedConsumer)
    monkeypatch.setattr(admin_module, "Consumer", ScriptedConsumer)
    monkeypatch.setattr(source_module, "Admin", lambda *_, **__: None)
    return Played


# Pauses


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


# Losses that the client does not report (librdkafka's pull request 5604)


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


# Clients that stay outside their group (librdkafka's issue 5301)


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


# Commits that overtake each other


def test_an_older_commit_that_the_client_retries_does_not_land_after_a_newer_one(play: Any) -> None:
    """The older one met COORDINATOR_LOAD_IN_PROGRESS and went to librdkafka's back-off queue."""
    played = play()
    client = played.client
    played.poll(lambda: client.assign_to_it(0))
    played.source.commit({0: 5})
    played.source.commit({0: 7})
    played.source.commit({0: 9}, metadata="last")
    while client.requests:
        played.poll(lambda: client.land(len(client.requests) - 1))
    assert client.committed_offsets == {0: (9, "last")}
    assert played.source.last_committed == {0: 9}


def test_a_commit_that_fails_does_not_hold_up_the_one_that_waits_for_it(play: Any) -> None:
    played = play()
    client = played.client
    played.poll(lambda: client.assign_to_it(0, 1))
    played.source.commit({0: 5, 1: 3})
    played.source.commit({0: 7})
    played.poll(lambda: client.land(error=KafkaError(KafkaError.REBALANCE_IN_PROGRESS)))
    played.poll(client.land)
    assert client.committed_offsets == {0: (7, "")}


@pytest.mark.parametrize("fails", ["unpublished", ""])
def test_a_commit_that_failed_is_sent_again_unless_a_newer_one_replaced_it(play: Any, fails: str) -> None:
    """Also one of the same offset: the metadata says whether the rows are published, so the newest must arrive."""
    played = play()
    client = played.client
    played.poll(lambda: client.assign_to_it(0))
    for metadata in ("unpublished", ""):
        played.source.commit({0: 5}, metadata)
    for metadata in ("unpublished", ""):
        error = KafkaError(KafkaError.REQUEST_TIMED_OUT) if metadata == fails else None
        played.poll(lambda error=error: client.land(error=error))
    assert played.source.acknowledged_commits == ({} if fails == "" else {0: (5, "")})
    assert client.requests == [], "not at once"
    played.poll_for(2)
    assert len(client.requests) == (fails == "")
    if client.requests:
        played.poll(client.land)
    assert client.committed_offsets == {0: (5, "")}
    assert played.source.acknowledged_commits == {0: (5, "")}
    played.source.commit({0: 5})
    assert client.requests == [], "it is acknowledged already"


def test_a_failed_commit_of_a_partition_that_left_is_not_sent_again(play: Any) -> None:
    played = play()
    client = played.client
    played.poll(lambda: client.assign_to_it(0))
    played.source.commit({0: 5})
    played.poll(lambda: client.revoke_from_it(0))
    played.poll(lambda: client.land(error=KafkaError(KafkaError.REBALANCE_IN_PROGRESS)))
    played.poll(lambda: client.assign_to_it(0))
    played.poll_for(2)
    assert client.requests == []


def test_a_commit_that_the_group_has_lost_is_sent_again_unless_it_is_old(play: Any) -> None:
    """The coordinator lets every member commit every partition: one that lost this one unawares came last."""
    played = play()
    client = played.client
    played.poll(lambda: client.assign_to_it(0, 1, 2))
    played.source.commit({0: 5, 1: 5, 2: 5})
    played.poll(client.land)
    asked = played.source.acknowledged_commits
    played.source.commit({1: 7})
    found = {0: Committed(3, "", None), 1: Committed(3, "", None), 2: Committed(9, "", None)}
    assert played.source.renew_commits(asked, found) == [0]
    played.poll()
    assert [[(tp.partition, tp.offset) for tp in request] for request in client.requests] == [[(1, 7)], [(0, 5)]]


def test_partitions_do_not_wait_for_each_others_commits(play: Any) -> None:
    played = play()
    client = played.client
    played.poll(lambda: client.assign_to_it(0, 1))
    played.source.commit({0: 5})
    played.source.commit({1: 7})
    played.poll(lambda: client.land(1))
    assert client.committed_offsets == {1: (7, "")}


def test_a_commit_of_an_earlier_tenure_is_waited_for_when_the_partition_comes_back(play: Any) -> None:
    played = play()
    client = played.client
    played.poll(lambda: client.assign_to_it(0))
    played.source.commit({0: 5})
    played.poll(lambda: client.lose_from_it(0))
    played.poll(lambda: client.assign_to_it(0))
    played.source.commit({0: 9})
    while client.requests:
        played.poll(lambda: client.land(len(client.requests) - 1))
    assert client.committed_offsets == {0: (9, "")}


def test_the_last_commit_of_a_partition_that_is_revoked_does_not_wait(play: Any) -> None:
    """It could only be sent after the partition is gone, which the broker refuses."""
    played = play()
    client = played.client
    played.poll(lambda: client.assign_to_it(0))
    played.source.commit({0: 5})
    played.source.commit({0: 6})
    played.diary.in_revoke = lambda _: played.source.commit({0: 7})
    played.poll(lambda: client.revoke_from_it(0))
    assert [[tp.offset for tp in request] for request in client.requests] == [[5], [7]]
    played.poll(client.land)
    played.poll(client.land)
    assert client.committed_offsets == {0: (7, "")}
    assert client.requests == [], "6 was overtaken"
