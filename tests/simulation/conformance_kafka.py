"""Scenarios for a real Kafka alone: what librdkafka's built-in broker does in its own way, or does not check."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from confluent_kafka import KafkaException, TopicPartition

from tests.simulation.conformance import SILENCE_S, Kit, Member, at, code_of, ids_of, left_and_joined_again

# Transactions, which the built-in broker does not check


def _transactional(kit: Kit, name: str) -> Any:
    given = {"transactional.id": name, "transaction.timeout.ms": 10_000}
    producer = kit.producer({**kit.properties, **given})
    producer.init_transactions(30)
    return producer


def an_aborted_transaction_is_never_read_and_positions_pass_its_marker(kit: Kit) -> list[Any]:
    topic, producer = kit.create_topic(1), _transactional(kit, f"{kit.group}-a")
    for value, commit in ((b"1", False), (b"2", True)):
        producer.begin_transaction()
        producer.produce(topic, value, b"k")
        (producer.commit_transaction if commit else producer.abort_transaction)(30)
    consumer = kit.reader()
    consumer.incremental_assign(at(topic, 0))
    seen: list[Any] = [kit.take(consumer, 1)]
    kit.take(consumer, 1, SILENCE_S)
    seen.append(consumer.position(at(topic))[0].offset)
    consumer.close()
    return seen


def an_open_transaction_hides_what_comes_after_it(kit: Kit) -> list[Any]:
    topic, producer = kit.create_topic(1), _transactional(kit, f"{kit.group}-b")
    producer.begin_transaction()
    producer.produce(topic, b"1", b"k")
    producer.flush(10)
    kit.produce(topic, 0, [b"2"])
    consumer = kit.reader()
    consumer.incremental_assign(at(topic, 0))
    seen = [kit.take(consumer, 2, SILENCE_S)]
    producer.commit_transaction(30)
    seen.append(kit.take(consumer, 2))
    consumer.close()
    return seen


def a_new_producer_of_the_same_id_fences_the_old_one(kit: Kit) -> list[Any]:
    topic, old = kit.create_topic(1), _transactional(kit, f"{kit.group}-c")
    old.begin_transaction()
    old.produce(topic, b"1", b"k")
    old.flush(10)
    _transactional(kit, f"{kit.group}-c")
    try:
        old.commit_transaction(30)
    except KafkaException as exception:
        return [exception.args[0].name(), exception.args[0].fatal()]
    return []


def offsets_in_a_transaction_need_a_member_and_are_read_back_when_stable(kit: Kit) -> list[Any]:
    member, producer = Member(kit, kit.create_topic(4)), _transactional(kit, f"{kit.group}-d")
    kit.until([member.consumer], lambda: len(member.owned) == 4)
    metadata, where = member.consumer.consumer_group_metadata(), [TopicPartition(member.topic, 0, 2, "state 1 2")]
    asking = kit.member(**{"isolation.level": "read_committed"})
    producer.begin_transaction()
    producer.send_offsets_to_transaction(where, metadata, 30)
    seen: list[Any] = [code_of(lambda: asking.committed(at(member.topic), SILENCE_S))]
    producer.commit_transaction(30)
    (found,) = asking.committed(at(member.topic), 20)
    seen += [found.offset, found.metadata]
    member.consumer.close()
    producer.begin_transaction()
    try:
        producer.send_offsets_to_transaction(where, metadata, 30)
    except KafkaException as exception:
        seen += [exception.args[0].name(), exception.args[0].txn_requires_abort()]
    producer.abort_transaction(30)
    asking.close()
    return seen


def a_second_transaction_is_refused_while_one_is_open(kit: Kit) -> list[Any]:
    producer = _transactional(kit, f"{kit.group}-e")
    producer.begin_transaction()
    seen = [code_of(producer.begin_transaction)]
    producer.abort_transaction(30)
    producer.begin_transaction()
    producer.abort_transaction(30)
    return seen


TRANSACTIONAL: tuple[Callable[[Kit], list[Any]], ...] = (
    an_aborted_transaction_is_never_read_and_positions_pass_its_marker,
    an_open_transaction_hides_what_comes_after_it,
    a_new_producer_of_the_same_id_fences_the_old_one,
    offsets_in_a_transaction_need_a_member_and_are_read_back_when_stable,
    a_second_transaction_is_refused_while_one_is_open,
)


# KIP-848, which the built-in broker does in its own way

NEW = {"group.protocol": "consumer"}


def a_new_group_gives_everything_to_one_member_and_close_revokes_it(kit: Kit) -> list[Any]:
    member = Member(kit, kit.create_topic(4), **NEW)
    kit.until([member.consumer], lambda: len(member.owned) == 4)
    member.consumer.close()
    return list(member.events)


def a_new_group_gives_half_to_a_second_member(kit: Kit) -> list[Any]:
    first = Member(kit, kit.create_topic(4), **NEW)
    kit.until([first.consumer], lambda: len(first.owned) == 4)
    second = Member(kit, first.topic, **NEW)
    kit.until([first.consumer, second.consumer], lambda: len(second.owned) == 2)
    gone, got = sum(len(given) for kind, given in first.events if kind == "revoke"), len(second.owned)
    kinds = sorted({kind for kind, _ in first.events})
    second.consumer.close()
    seen = [gone, got, kinds, kit.until([first.consumer], lambda: len(first.owned) == 4)]
    first.consumer.close()
    return seen


def a_new_group_keeps_the_id_of_a_member_that_is_removed(kit: Kit) -> list[Any]:
    return _removed(kit, Member(kit, kit.create_topic(4), **NEW))


def a_new_group_keeps_the_id_of_a_member_that_leaves_and_joins_again(kit: Kit) -> list[Any]:
    return left_and_joined_again(kit, Member(kit, kit.create_topic(4), **NEW))


def a_new_group_refuses_a_removed_member_until_it_polls(kit: Kit) -> list[Any]:
    return _refused_until_it_polls(kit, Member(kit, kit.create_topic(4), **NEW))


def _refused_until_it_polls(kit: Kit, member: Member) -> list[Any]:
    """Whether a member that was removed, and has not read its loss yet, can still commit in a transaction: under its
    own id never, for the client joins again only after its loss was read.
    """
    kit.until([member.consumer], lambda: len(member.owned) == 4)
    first, producer = member.consumer.memberid(), _transactional(kit, f"{kit.group}-e")
    kit.remove_member(kit.group, first)
    where, refused = [TopicPartition(member.topic, 0, 2, "state 1 2")], []
    for _ in range(8):
        kit.sleep(1.0)
        metadata = member.consumer.consumer_group_metadata()
        generation = int.from_bytes(metadata[7:11], "little", signed=True)
        if generation < 0 or member.consumer.memberid() != first:
            refused.append(True)  # `Source.membership` gives None
            continue
        producer.begin_transaction()
        refused.append(code_of(lambda m=metadata: producer.send_offsets_to_transaction(where, m, 30)) is not None)
        producer.abort_transaction(30)
    seen = [all(refused), [kind for kind, _ in member.events]]
    kit.until([member.consumer], lambda: len(member.events) > 2)
    seen.append([kind for kind, _ in member.events])
    member.consumer.close()
    return seen


def _removed(kit: Kit, member: Member) -> list[Any]:
    kit.until([member.consumer], lambda: len(member.owned) == 4)
    kit.remove_member(kit.group, member.consumer.memberid())
    kit.until([member.consumer], lambda: len(member.events) > 2)
    seen = ids_of(member)
    member.consumer.close()
    return seen


NEW_PROTOCOL: tuple[Callable[[Kit], list[Any]], ...] = (
    a_new_group_gives_everything_to_one_member_and_close_revokes_it,
    a_new_group_gives_half_to_a_second_member,
    a_new_group_keeps_the_id_of_a_member_that_is_removed,
    a_new_group_keeps_the_id_of_a_member_that_leaves_and_joins_again,
    a_new_group_refuses_a_removed_member_until_it_polls,
)


# Classic groups

EAGER = {"partition.assignment.strategy": "range"}


def a_member_that_is_removed_while_it_joins_joins_again(kit: Kit) -> list[Any]:
    """Its join waits for a member that does not poll. The coordinator answers it with UNKNOWN_MEMBER_ID."""
    waiting = EagerMember(kit, kit.create_topic(4))
    kit.until([waiting.consumer], lambda: len(waiting.owned) == 4)
    silent = EagerMember(kit, waiting.topic)
    both = [waiting.consumer, silent.consumer]
    kit.until(both, lambda: len(waiting.owned) == len(silent.owned) == 2)
    third = EagerMember(kit, waiting.topic)
    kit.until([waiting.consumer, third.consumer], lambda: waiting.events[-1][0] == "revoke")
    kit.until([waiting.consumer, third.consumer], lambda: False, 2.0)
    kit.remove_member(kit.group, waiting.consumer.memberid())
    kit.until([waiting.consumer, third.consumer], lambda: False, 2.0)
    third.consumer.close()
    both_again = kit.until(both, lambda: len(waiting.owned) == len(silent.owned) == 2)
    seen = [both_again, sorted({kind for kind, _ in waiting.events})]
    for consumer in both:
        consumer.close()
    return seen


def a_member_that_is_removed_gets_another_id(kit: Kit) -> list[Any]:
    return _removed(kit, EagerMember(kit, kit.create_topic(4)))


class EagerMember(Member):
    def __init__(self, kit: Kit, topic: str) -> None:
        super().__init__(kit, topic, **EAGER)

    def _assign(self, consumer: Any, given: list[TopicPartition]) -> None:
        self._note("assign", given)
        self.owned = {place.partition for place in given}
        consumer.assign([TopicPartition(place.topic, place.partition, 0) for place in given])

    def _leave(self, kind: str, consumer: Any, given: list[TopicPartition]) -> None:
        self._note(kind, given)
        self.owned = set()
        consumer.unassign()


def an_eager_group_refuses_a_removed_member_until_it_polls(kit: Kit) -> list[Any]:
    return _refused_until_it_polls(kit, EagerMember(kit, kit.create_topic(4)))


EAGER_GROUPS: tuple[Callable[[Kit], list[Any]], ...] = (
    an_eager_group_refuses_a_removed_member_until_it_polls,
    a_member_that_is_removed_while_it_joins_joins_again,
    a_member_that_is_removed_gets_another_id,
)


def a_cooperative_member_that_is_removed_gets_another_id(kit: Kit) -> list[Any]:
    return _removed(kit, Member(kit, kit.create_topic(4)))


def a_cooperative_group_refuses_a_removed_member_until_it_polls(kit: Kit) -> list[Any]:
    return _refused_until_it_polls(kit, Member(kit, kit.create_topic(4)))


CLASSIC: tuple[Callable[[Kit], list[Any]], ...] = (
    a_cooperative_member_that_is_removed_gets_another_id,
    a_cooperative_group_refuses_a_removed_member_until_it_polls,
)
