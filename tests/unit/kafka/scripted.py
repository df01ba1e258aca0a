"""A consumer of confluent_kafka whose broker is a script: what librdkafka does seldom, it does here when told to.

Each habit that it has was seen on the real client (test_client.py) or is named with its place in librdkafka.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

from confluent_kafka import KafkaError, KafkaException, Message, TopicPartition

TOPIC = "t"


class ScriptedConsumer:
    """`script`: what each `consume` does before it hands out records. Its logs never end."""

    offset_committed = -1001
    """What the group has committed, for all scripted clients."""

    def __init__(self, config: dict[str, Any]) -> None:
        self.unsubscribed = 0
        self._on_commit: Callable[..., None] = config.get("on_commit", lambda *_: None)
        self.script: list[Callable[[], Any]] = []
        self.events: list[Any] = []
        """Errors that the next `consume` hands out among its records."""
        self.positions: dict[int, int] = {}
        self.paused: set[int] = set()
        """Kept when a partition is unassigned, as librdkafka keeps it."""
        self.requests: list[list[TopicPartition]] = []
        """Commits on their way."""
        self.committed_offsets: dict[int, tuple[int, str]] = {}
        self.member_id = "member"
        """Empty while it is outside its group."""
        self.generation = 1
        self.connected = True
        self.closed = threading.Event()

    # What tests do

    def assign_to_it(self, *partitions: int) -> None:
        self._callbacks["on_assign"](self, _places(partitions))

    def revoke_from_it(self, *partitions: int) -> None:
        self._callbacks["on_revoke"](self, _places(partitions))

    def lose_from_it(self, *partitions: int) -> None:
        self._callbacks["on_lost"](self, _places(partitions))

    def land(self, request: int = 0, error: KafkaError | None = None) -> None:
        """A commit reaches the coordinator, be it before those that were sent earlier; its result is reported."""
        offsets = self.requests.pop(request)
        if error is None:
            self.committed_offsets.update({tp.partition: (tp.offset, tp.metadata or "") for tp in offsets})
        self._on_commit(error, offsets)

    # What a Source calls

    def subscribe(self, _: list[str], **callbacks: Any) -> None:
        self._callbacks = callbacks

    def consume(self, count: int, _: float) -> list[Any]:
        for act in self.script[:1]:
            self.script.pop(0)
            act()
        found, self.events = self.events, []
        for partition in sorted(self.positions.keys() - self.paused):
            first = self.positions[partition]
            found += [Message(topic=TOPIC, partition=partition, offset=first + n, value=b"x") for n in range(2)]
            self.positions[partition] = first + 2
        return found[:count]

    def poll(self, _: float) -> None:
        """Of the consumer that only asks for committed offsets."""

    def committed(self, places: list[TopicPartition], _: float) -> list[TopicPartition]:
        return [TopicPartition(each.topic, each.partition, self.offset_committed) for each in places]

    def unsubscribe(self) -> None:
        self.unsubscribed += 1

    def assignment(self) -> list[TopicPartition]:
        return _places(sorted(self.positions))

    def incremental_assign(self, partitions: list[TopicPartition]) -> None:
        if self.positions.keys() & {tp.partition for tp in partitions}:
            raise KafkaException(KafkaError(KafkaError._CONFLICT))
        self.positions.update({tp.partition: tp.offset for tp in partitions})

    def incremental_unassign(self, partitions: list[TopicPartition]) -> None:
        for tp in partitions:
            del self.positions[tp.partition]

    def assign(self, partitions: list[TopicPartition]) -> None:
        self.positions = {tp.partition: tp.offset for tp in partitions}

    def unassign(self) -> None:
        self.positions = {}

    def pause(self, partitions: list[TopicPartition]) -> None:
        self.paused |= {tp.partition for tp in partitions}

    def resume(self, partitions: list[TopicPartition]) -> None:
        self.paused -= {tp.partition for tp in partitions}

    def commit(self, *, offsets: list[TopicPartition], asynchronous: bool) -> None:
        assert asynchronous, "a commit that waits would hold up the loop"
        self.requests.append(offsets)

    def memberid(self) -> str:
        return self.member_id

    def list_topics(self, _: str, timeout: float) -> None:
        assert timeout == 0, "a question that waits would hold up the loop"
        raise KafkaException(KafkaError(KafkaError._TIMED_OUT if self.connected else KafkaError._TRANSPORT))

    def consumer_group_metadata(self) -> bytes:
        return b"CGMDv2:" + self.generation.to_bytes(4, "little", signed=True) + f"g\0{self.member_id}\0".encode()

    def close(self) -> None:
        self.closed.set()


def _places(partitions: Any) -> list[TopicPartition]:
    return [TopicPartition(TOPIC, partition) for partition in partitions]
