"""Small scenarios that run on the simulated client and on the real one. What they observe must be the same.

Every habit of the client that the simulation models stands here, so that the model cannot drift from the truth.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from confluent_kafka import KafkaException, TopicPartition

WAIT_S = 8.0
"""What is expected to come is waited for this long; it mostly comes at once."""

SILENCE_S = 1.5
"""What is expected not to come is waited for this long."""


@dataclass(frozen=True)
class Kit:
    """A client and a broker: simulated or real."""

    consumer: Callable[[dict[str, Any]], Any]
    producer: Callable[[dict[str, Any]], Any]
    admin: Callable[[dict[str, Any]], Any]
    properties: dict[str, Any]
    create_topic: Callable[[int], str]
    produce: Callable[[str, int, list[bytes]], None]
    clock: Callable[[], float]
    sleep: Callable[[float], None]
    group: str
    remove_member: Callable[[str, str], None]
    """Removes a member (group, member id) as a person does with an administration tool."""

    def reader(self, **more: Any) -> Any:
        """A consumer outside any group, as for a whole topic."""
        given = {"enable.auto.commit": False, "enable.auto.offset.store": False, "auto.offset.reset": "error"}
        return self.consumer({**self.properties, **given, "group.id": "alone", **more})

    def member(self, **more: Any) -> Any:
        if more.get("group.protocol") == "consumer":
            return self.reader(**{"group.id": self.group, **more})
        times = {"session.timeout.ms": 6000, "heartbeat.interval.ms": 200}
        strategy = {"partition.assignment.strategy": "cooperative-sticky"}
        return self.reader(**{"group.id": self.group, **times, **strategy, **more})

    def filled(self, count: int) -> str:
        topic = self.create_topic(1)
        self.produce(topic, 0, [b"%d" % number for number in range(count)])
        return topic

    def take(self, consumer: Any, count: int, wait_s: float = WAIT_S) -> list[int]:
        """The offsets of what comes, up to this many."""
        found: list[int] = []
        until = self.clock() + wait_s
        while len(found) < count and self.clock() < until:
            found += [m.offset() for m in consumer.consume(count - len(found), 0.2) if m.error() is None]
        return found

    def until(self, consumers: list[Any], condition: Callable[[], bool], wait_s: float = 30.0) -> bool:
        until = self.clock() + wait_s
        while not condition() and self.clock() < until:
            for consumer in consumers:
                consumer.consume(1, 0.1)
        return condition()


def code_of(call: Callable[[], Any]) -> str | None:
    try:
        call()
    except KafkaException as exception:
        return str(exception.args[0].name())
    return None


def at(topic: str, offset: int = -1001, partition: int = 0) -> list[TopicPartition]:
    return [TopicPartition(topic, partition, offset)]


class Member:
    """A member of a group that assigns what it is given at 0, and remembers its callbacks."""

    def __init__(self, kit: Kit, topic: str, **more: Any) -> None:
        self.events: list[tuple[str, tuple[int, ...]]] = []
        self.ids: list[tuple[str, str]] = []
        """Its member id as each callback found it."""
        self.owned: set[int] = set()
        self.commits: list[tuple[str | None, list[tuple[int, int]]]] = []
        self.consumer = kit.member(on_commit=self._on_commit, **more)
        self.topic = topic
        self.subscribe()

    def subscribe(self) -> None:
        self.consumer.subscribe([self.topic], on_assign=self._assign, on_revoke=self._revoke, on_lost=self._lost)

    def _assign(self, consumer: Any, given: list[TopicPartition]) -> None:
        self._note("assign", given)
        self.owned |= {place.partition for place in given}
        consumer.incremental_assign([TopicPartition(place.topic, place.partition, 0) for place in given])

    def _revoke(self, consumer: Any, given: list[TopicPartition]) -> None:
        self._leave("revoke", consumer, given)

    def _lost(self, consumer: Any, given: list[TopicPartition]) -> None:
        self._leave("lost", consumer, given)

    def _leave(self, kind: str, consumer: Any, given: list[TopicPartition]) -> None:
        self._note(kind, given)
        self.owned -= {place.partition for place in given}
        consumer.incremental_unassign(given)

    def _note(self, kind: str, given: list[TopicPartition]) -> None:
        if given:
            self.ids.append((kind, self.consumer.memberid() or ""))
            self.events.append((kind, tuple(sorted(place.partition for place in given))))

    def _on_commit(self, error: Any, places: list[TopicPartition]) -> None:
        name = None if error is None else error.name()
        self.commits.append((name, [(place.partition, place.offset) for place in places]))


# Reading


def position_is_unknown_until_something_was_read(kit: Kit) -> list[Any]:
    topic, consumer = kit.filled(4), kit.reader()
    consumer.incremental_assign(at(topic, 0))
    seen = [consumer.position(at(topic))[0].offset]
    seen += [kit.take(consumer, 3), consumer.position(at(topic))[0].offset]
    consumer.incremental_unassign(at(topic))
    consumer.incremental_assign(at(topic, 1))
    seen.append(consumer.position(at(topic))[0].offset)
    seen += [kit.take(consumer, 1), consumer.position(at(topic))[0].offset]
    consumer.close()
    return seen


def a_pause_survives_unassign_and_assign(kit: Kit) -> list[Any]:
    topic, consumer = kit.filled(3), kit.reader()
    consumer.incremental_assign(at(topic, 0))
    seen = [kit.take(consumer, 3)]
    consumer.pause(at(topic))
    consumer.incremental_unassign(at(topic))
    consumer.incremental_assign(at(topic, 0))
    seen.append(kit.take(consumer, 3, SILENCE_S))
    consumer.resume(at(topic))
    seen.append(kit.take(consumer, 3))
    consumer.close()
    return seen


def an_eager_pause_survives_too(kit: Kit) -> list[Any]:
    topic, consumer = kit.filled(3), kit.reader()
    consumer.assign(at(topic, 0))
    seen = [kit.take(consumer, 3)]
    consumer.pause(at(topic))
    consumer.unassign()
    consumer.assign(at(topic, 0))
    seen.append(kit.take(consumer, 3, SILENCE_S))
    consumer.resume(at(topic))
    seen.append(kit.take(consumer, 3))
    consumer.close()
    return seen


def a_pause_holds_back_what_was_fetched_and_a_resume_goes_on_there(kit: Kit) -> list[Any]:
    topic, consumer = kit.filled(6), kit.reader()
    consumer.incremental_assign(at(topic, 0))
    seen = [kit.take(consumer, 2)]
    consumer.pause(at(topic))
    seen.append(kit.take(consumer, 6, SILENCE_S))
    consumer.resume(at(topic))
    seen.append(kit.take(consumer, 4))
    consumer.close()
    return seen


def a_pause_before_anything_was_read_loses_nothing(kit: Kit) -> list[Any]:
    topic, other, consumer = kit.filled(3), kit.create_topic(1), kit.reader()
    consumer.incremental_assign([*at(other, 0), *at(topic, 0)])
    consumer.pause(at(topic))
    consumer.resume(at(topic))
    consumer.pause(at(topic))
    seen = [kit.take(consumer, 3, SILENCE_S)]
    consumer.resume(at(topic))
    kit.sleep(SILENCE_S)  # fetched by now, and not handed out
    consumer.pause(at(topic))
    seen.append(kit.take(consumer, 3, SILENCE_S))
    consumer.resume(at(topic))
    seen += [kit.take(consumer, 3), consumer.position(at(topic))[0].offset]
    consumer.close()
    return seen


def what_is_assigned_cannot_be_assigned_again(kit: Kit) -> list[Any]:
    topic, consumer = kit.filled(2), kit.reader()
    consumer.incremental_assign(at(topic, 0))
    seen = [code_of(lambda: consumer.incremental_assign(at(topic, 0)))]
    seen.append([place.partition for place in consumer.assignment()])
    consumer.incremental_unassign(at(topic))
    seen.append(code_of(lambda: consumer.incremental_unassign(at(topic))))
    consumer.close()
    return seen


def assign_replaces_and_begins_anew(kit: Kit) -> list[Any]:
    topic, consumer = kit.filled(4), kit.reader()
    consumer.assign(at(topic, 0))
    seen = [kit.take(consumer, 2)]
    consumer.assign(at(topic, 1))
    seen.append(kit.take(consumer, 3))
    consumer.close()
    return seen


def the_end_of_a_partition_is_an_event_once(kit: Kit) -> list[Any]:
    topic, consumer = kit.filled(2), kit.reader(**{"enable.partition.eof": True})
    consumer.incremental_assign(at(topic, 0))
    seen: list[Any] = []
    until = kit.clock() + 3.0
    while kit.clock() < until:
        events = [(message.error(), message.offset()) for message in consumer.consume(10, 0.2)]
        seen += [(None if error is None else error.name(), offset) for error, offset in events]
    consumer.close()
    return seen


def an_offset_outside_the_log_is_an_error(kit: Kit) -> list[Any]:
    topic, consumer = kit.filled(3), kit.reader()
    consumer.incremental_assign(at(topic, 100))
    found: list[Any] = []
    until = kit.clock() + WAIT_S
    while not found and kit.clock() < until:
        found += [message.error().name() for message in consumer.consume(5, 0.2) if message.error() is not None]
    consumer.close()
    return found[:1]


def a_closed_consumer_raises(kit: Kit) -> list[Any]:
    consumer = kit.reader()
    consumer.close()
    try:
        consumer.consume(1, 0.1)
    except RuntimeError:
        return ["RuntimeError"]
    return []


# Groups


def one_member_is_given_everything_and_close_revokes_it(kit: Kit) -> list[Any]:
    member = Member(kit, kit.create_topic(4))
    kit.until([member.consumer], lambda: len(member.owned) == 4)
    member.consumer.close()
    return list(member.events)


def a_second_member_takes_over_half(kit: Kit) -> list[Any]:
    first = Member(kit, kit.create_topic(4))
    kit.until([first.consumer], lambda: len(first.owned) == 4)
    second = Member(kit, first.topic)
    kit.until([first.consumer, second.consumer], lambda: len(second.owned) == 2)
    kinds = [(kind, len(given)) for kind, given in first.events], [(kind, len(given)) for kind, given in second.events]
    second.consumer.close()
    seen = [*kinds, kit.until([first.consumer], lambda: len(first.owned) == 4)]
    first.consumer.close()
    return seen


def leaving_and_joining_again_revokes_at_the_next_poll(kit: Kit) -> list[Any]:
    member = Member(kit, kit.create_topic(4))
    kit.until([member.consumer], lambda: len(member.owned) == 4)
    member.consumer.unsubscribe()
    member.subscribe()
    before = len(member.events)
    kit.until([member.consumer], lambda: len(member.events) > 2)
    seen = [before, list(member.events)]
    member.consumer.close()
    return seen


def ids_of(member: Member) -> list[tuple[str, str]]:
    """What the member id was at each callback: the first one, a blank one, or another."""
    first = member.ids[0][1]
    return [(kind, "first" if found == first else "another" if found else "blank") for kind, found in member.ids]


def leaving_and_joining_again_keeps_the_member_id(kit: Kit) -> list[Any]:
    return left_and_joined_again(kit, Member(kit, kit.create_topic(4)))


def left_and_joined_again(kit: Kit, member: Member) -> list[Any]:
    kit.until([member.consumer], lambda: len(member.owned) == 4)
    member.consumer.unsubscribe()
    member.subscribe()
    kit.until([member.consumer], lambda: len(member.events) > 2)
    seen = ids_of(member)
    member.consumer.close()
    return seen


def a_commit_is_reported_and_read_back(kit: Kit) -> list[Any]:
    member = Member(kit, kit.create_topic(4))
    kit.until([member.consumer], lambda: len(member.owned) == 4)
    consumer = member.consumer
    seen: list[Any] = [consumer.committed(at(member.topic), 10)[0].offset]
    consumer.commit(offsets=[TopicPartition(member.topic, 0, 3, "words")], asynchronous=True)
    kit.until([consumer], lambda: bool(member.commits))
    (found,) = consumer.committed(at(member.topic), 10)
    seen += [member.commits, found.offset, found.metadata, found.error is None]
    other = kit.member()
    seen.append(other.committed(at(member.topic), 10)[0].offset)
    other.close()
    consumer.close()
    return seen


def who_is_no_member_has_no_member_id(kit: Kit) -> list[Any]:
    topic, alone = kit.create_topic(4), kit.member()
    blank = alone.memberid() or ""
    member = Member(kit, topic)
    kit.until([member.consumer], lambda: len(member.owned) == 4)
    name, metadata = member.consumer.memberid(), member.consumer.consumer_group_metadata()
    generation = int.from_bytes(metadata.removeprefix(b"CGMDv2:")[:4], "little", signed=True)
    seen = [blank, bool(name), name.encode() in metadata, generation > 0]
    member.consumer.close()
    alone.close()
    return seen


# Questions


def ends_and_metadata_are_told(kit: Kit) -> list[Any]:
    from confluent_kafka.admin import OffsetSpec

    topic, admin = kit.filled(3), kit.admin(dict(kit.properties))
    asked = [OffsetSpec.earliest(), OffsetSpec.latest()]
    seen = [
        next(iter(admin.list_offsets({TopicPartition(topic, 0): spec}, request_timeout=10).values())).result(10).offset
        for spec in asked
    ]
    metadata = admin.list_topics(topic, timeout=10).topics[topic]
    return [*seen, metadata.error is None, sorted(metadata.partitions)[:1]]


def a_message_is_reported_with_its_offset(kit: Kit) -> list[Any]:
    topic, seen = kit.filled(2), list[Any]()
    producer = kit.producer({**kit.properties, "enable.idempotence": True, "acks": "all"})
    producer.produce(topic, b"v", b"k", on_delivery=lambda error, m: seen.append((error, m.offset() >= 0)))
    seen.append(len(producer))
    seen.append(producer.flush(10))
    return [*seen, len(producer)]


SCENARIOS: tuple[Callable[[Kit], list[Any]], ...] = (
    position_is_unknown_until_something_was_read,
    a_pause_survives_unassign_and_assign,
    an_eager_pause_survives_too,
    a_pause_holds_back_what_was_fetched_and_a_resume_goes_on_there,
    a_pause_before_anything_was_read_loses_nothing,
    what_is_assigned_cannot_be_assigned_again,
    assign_replaces_and_begins_anew,
    the_end_of_a_partition_is_an_event_once,
    an_offset_outside_the_log_is_an_error,
    a_closed_consumer_raises,
    one_member_is_given_everything_and_close_revokes_it,
    a_second_member_takes_over_half,
    leaving_and_joining_again_revokes_at_the_next_poll,
    leaving_and_joining_again_keeps_the_member_id,
    a_commit_is_reported_and_read_back,
    who_is_no_member_has_no_member_id,
    ends_and_metadata_are_told,
    a_message_is_reported_with_its_offset,
)
