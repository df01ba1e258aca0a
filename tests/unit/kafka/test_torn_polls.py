"""Rebalances inside one poll, on a fake client: rare on a broker, and silent loss when mishandled."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from confluent_kafka import KafkaError, KafkaException, Message, TopicPartition

from sfd_stream.kafka.records import Start
from sfd_stream.kafka.source import Source
from tests.unit.kafka.conftest import Diary

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from tests.support.kafka import Broker


class FakeClient:
    """Plays, in each `consume`, what the test put there, and writes down what it is told."""

    def __init__(self) -> None:
        self.script: list[Callable[[], list[Any]]] = []
        self.told: list[tuple[str, list[tuple[int, int]]]] = []
        self.reading: set[int] = set()
        self.ending = False

    def memberid(self) -> str:
        return "member"

    def unsubscribe(self) -> None:
        pass

    def close(self) -> None:
        """As librdkafka: what the broker gave meanwhile is still told, to one who can no longer ask."""
        self.ending = True
        while self.script:
            self.script.pop(0)()

    def consume(self, _count: int, _timeout_s: float) -> list[Any]:
        return self.script.pop(0)()

    def assignment(self) -> list[TopicPartition]:
        self._answer()
        return [TopicPartition("t", p) for p in sorted(self.reading)]

    def incremental_assign(self, partitions: list[TopicPartition]) -> None:
        self._answer()
        self.reading |= {tp.partition for tp in partitions}
        self._write("assign", partitions)

    def incremental_unassign(self, partitions: list[TopicPartition]) -> None:
        self._answer()
        assert {tp.partition for tp in partitions} <= self.reading, "librdkafka refuses what it does not read"
        self.reading -= {tp.partition for tp in partitions}
        self._write("unassign", partitions)

    def pause(self, partitions: list[TopicPartition]) -> None:
        self._write("pause", partitions)

    def resume(self, partitions: list[TopicPartition]) -> None:
        self._write("resume", partitions)

    def _answer(self) -> None:
        if self.ending:
            raise KafkaException(KafkaError(KafkaError._DESTROY))

    def _write(self, what: str, partitions: list[TopicPartition]) -> None:
        if partitions:
            self.told.append((what, [(tp.partition, tp.offset) for tp in partitions]))


@pytest.fixture
def played(built_in: Broker) -> Iterator[tuple[Source, FakeClient, Diary]]:
    """A source that reads partitions 0 and 1 from offset 0, with its client replaced."""
    diary = Diary()
    source = Source({"bootstrap.servers": built_in.bootstrap, "group.id": "torn"}, "t")
    source.subscribe(diary)
    real, client = source._consumer, FakeClient()
    source._consumer = source._assignment.consumer = client  # type: ignore[assignment]
    client.script.append(lambda: assign(source, 0, 1))
    assert source.poll(10, 0) == []
    yield source, client, diary
    real.close()


def tps(*partitions: int) -> list[TopicPartition]:
    return [TopicPartition("t", p) for p in partitions]


def assign(source: Source, *partitions: int) -> list[Any]:
    source._assignment.on_assign(source._consumer, tps(*partitions))
    return []


def revoke(source: Source, *partitions: int) -> list[Any]:
    source._assignment.on_revoke(source._consumer, tps(*partitions))
    return []


def messages(partition: int, *offsets: int) -> list[Any]:
    return [Message(topic="t", partition=partition, offset=n, value=b"x") for n in offsets]


def expelled() -> list[Any]:
    return [Message(topic="t", partition=-1, error=KafkaError(KafkaError._MAX_POLL_EXCEEDED))]


def test_records_gathered_before_a_revoke_in_the_same_poll_are_dropped(
    played: tuple[Source, FakeClient, Diary],
) -> None:
    source, client, _ = played
    client.script.append(lambda: messages(0, 0, 1) + messages(1, 0) + revoke(source, 0))
    assert [(b.partition, b.offsets) for b in source.poll(10, 0)] == [(1, [0])]


def test_a_partition_that_left_and_came_back_in_one_poll_is_read_from_its_new_start_only(
    played: tuple[Source, FakeClient, Diary],
) -> None:
    """The old records begin at 5, the listener says 2: handing out 5 would skip 2, 3 and 4."""
    source, client, diary = played
    client.script.append(lambda: messages(0, 0, 1, 2, 3, 4))
    source.poll(10, 0)
    diary.starts[0] = Start(2)
    client.script.append(lambda: messages(0, 5, 6) + revoke(source, 0) + assign(source, 0) + messages(1, 0))
    client.told.clear()
    assert [(b.partition, b.offsets) for b in source.poll(10, 0)] == [(1, [0])]
    kinds = [what for what, _ in client.told]
    assert kinds == [
        "unassign",
        "assign",
        "pause",
        "resume",
    ]  # paused, so that nothing new could be among the old
    client.script.append(lambda: messages(0, 2, 3))
    assert [(b.partition, b.offsets) for b in source.poll(10, 0)] == [(0, [2, 3])]


def test_news_of_an_expulsion_read_after_the_new_assignment_takes_nothing_away(
    played: tuple[Source, FakeClient, Diary],
) -> None:
    source, client, diary = played

    def story() -> list[Any]:
        source._assignment.on_lost(source._consumer, tps(0, 1))
        assign(source, 0, 1)
        return expelled()

    client.script.append(story)
    source.poll(10, 0)
    assert source.assigned == {0, 1}
    assert [kind for kind, _ in diary.events] == ["assign", "lost", "assign"]


def test_an_expulsion_that_the_client_never_tells_of_is_a_loss_all_the_same(
    played: tuple[Source, FakeClient, Diary],
) -> None:
    source, client, diary = played
    client.script.append(expelled)
    source.poll(10, 0)
    assert source.assigned == frozenset()
    assert diary.events[-1] == ("lost", (0, 1))
    client.script.append(lambda: messages(0, 0, 1))
    assert source.poll(10, 0) == []


def test_a_held_partition_is_revoked_without_the_client_having_read_it(
    played: tuple[Source, FakeClient, Diary],
) -> None:
    source, client, diary = played
    diary.starts[2] = None
    client.script.append(lambda: assign(source, 2))
    client.script.append(lambda: revoke(source, 1, 2))
    source.poll(10, 0)
    source.poll(10, 0)
    assert source.assigned == {0}
    assert diary.events[-1] == ("revoke", (1, 2))


def test_an_assignment_that_comes_while_it_closes_ends_nothing(played: tuple[Source, FakeClient, Diary]) -> None:
    """The client gives, takes back, and answers no question any more: the leave is a clean one all the same."""
    source, client, diary = played
    client.script.append(lambda: revoke(source, 0, 1))
    source.poll(10, 0)
    client.script += [lambda: assign(source, 0, 1), lambda: revoke(source, 0, 1)]
    assert source.close(10)
    assert [kind for kind, _ in diary.events] == ["assign", "revoke"]


def test_a_client_that_refuses_before_any_closing_is_heard(played: tuple[Source, FakeClient, Diary]) -> None:
    source, client, _ = played
    client.ending = True
    client.script.append(lambda: revoke(source, 0))
    with pytest.raises(KafkaException):
        source.poll(10, 0)
