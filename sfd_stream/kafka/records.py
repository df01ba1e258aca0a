"""Records, and the records of one partition that a poll returned. A Record is created only on request."""

from __future__ import annotations

from collections import deque
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, NamedTuple

from confluent_kafka import Message

Headers = tuple[tuple[str, bytes | None], ...]
_NO_EPOCH = (None, -1)


class Start(NamedTuple):
    """Where reading begins. With the leader epoch of the last record read, the client notices a truncated log."""

    offset: int
    leader_epoch: int | None = None


@dataclass(frozen=True, slots=True)
class Record:
    partition: int
    offset: int
    value: bytes | None
    key: bytes | None = None
    headers: Headers = ()
    timestamp_ms: int | None = None

    @classmethod
    def of(cls, message: Any) -> Record:
        """The record with all its fields, as the client delivered it."""
        kind, time_ms = message.timestamp()
        return cls(
            partition=message.partition(),
            offset=_offset(message),
            value=message.value(),
            key=message.key(),
            headers=tuple(message.headers() or ()),
            timestamp_ms=None if kind == 0 else time_ms,
        )

    @property
    def next_offset(self) -> int:
        """Where reading resumes after this record. No other place in the code adds 1 to an offset."""
        return self.offset + 1


class PartitionBatch:
    """Records of one partition in order of their offsets; gaps are legal, going back is not. Never empty."""

    __slots__ = ("_messages", "_size_bytes", "_values", "partition")

    def __init__(self, partition: int, messages: Sequence[Any]) -> None:
        self.partition = partition
        self._messages = messages
        self._size_bytes: int | None = None
        self._values: list[bytes | None] | None = None

    def __len__(self) -> int:
        return len(self._messages)

    def __repr__(self) -> str:
        return f"PartitionBatch({self.partition}: {len(self)} records from {self.first_offset})"

    @property
    def values(self) -> list[bytes | None]:
        """The bytes of each record; None is a tombstone. Computed once: it takes a call for each message."""
        if self._values is None:
            self._values = list(map(Message.value, self._messages))
        return self._values

    def present(self) -> tuple[Sequence[int], Sequence[bytes]]:
        """The records that are no tombstones: the index of each in the batch, and its bytes."""
        values: list[Any] = self.values
        if all(values):  # in C, as most batches have neither tombstones nor empty messages
            return range(len(values)), values
        places = [place for place, value in enumerate(values) if value is not None]
        return places, [values[place] for place in places]

    @property
    def messages(self) -> Sequence[Any]:
        """The messages as the client delivered them."""
        return self._messages

    @property
    def size_bytes(self) -> int:
        """The bytes of all values. Computed once: it takes a call for each message."""
        if self._size_bytes is None:
            self._size_bytes = sum(map(len, self._messages))
        return self._size_bytes

    @property
    def offsets(self) -> list[int]:
        return list(map(_offset, self._messages))

    @property
    def first_offset(self) -> int:
        return _offset(self._messages[0])

    @property
    def next_offset(self) -> int:
        return self.record(-1).next_offset

    @property
    def leader_epoch(self) -> int | None:
        """The leader epoch of the last record; None if the broker does not report it."""
        epoch = self._messages[-1].leader_epoch()
        return None if epoch in _NO_EPOCH else int(epoch)

    def record(self, index: int) -> Record:
        """One record with all its fields, for a dead letter."""
        return Record.of(self._messages[index])


def _offset(message: Message[Any, Any]) -> int:
    offset = message.offset()
    assert offset is not None, "only records have offsets, and only records get here"
    return offset


def split(messages: Sequence[Any], partitions: Collection[int]) -> list[PartitionBatch]:
    """Splits the messages of one call by partition, each in order, without partitions that are not in `partitions`.

    The loops over all messages run in C; Python runs once for each run of one partition.
    """
    numbers = list(map(Message.partition, messages))
    if not numbers:
        return []
    if numbers.count(numbers[0]) == len(numbers):
        runs: dict[Any, Sequence[Any]] = {numbers[0]: messages}
    else:
        runs = _gather(messages, numbers)
    return [PartitionBatch(number, found) for number, found in runs.items() if number in partitions]


class LeftoverRecords:
    """Records beyond the bytes of a batch, in order. They wait here until a later poll hands them out."""

    def __init__(self, bytes_max: int) -> None:
        self._bytes_max = bytes_max
        self._waiting: dict[int, deque[Any]] = {}

    def __contains__(self, partition: int) -> bool:
        return partition in self._waiting

    @property
    def partitions(self) -> frozenset[int]:
        return frozenset(self._waiting)

    def forget(self, partition: int) -> None:
        self._waiting.pop(partition, None)

    def clear(self) -> None:
        self._waiting.clear()

    def put_back(self, batch: PartitionBatch) -> None:
        """Takes records back. They come before all others of the partition."""
        self._waiting.setdefault(batch.partition, deque()).extendleft(reversed(batch.messages))

    def bounded(self, batches: list[PartitionBatch], paused: Collection[int]) -> list[PartitionBatch]:
        """What to hand out now of these batches and of the records that wait: at least one record, and nothing more
        beyond the allowed bytes. Records of paused partitions wait.
        """
        if not self._waiting and sum(batch.size_bytes for batch in batches) <= self._bytes_max:
            return batches
        for batch in batches:
            self._waiting.setdefault(batch.partition, deque()).extend(batch.messages)
        taken: dict[int, list[Any]] = {}
        left = self._bytes_max
        for partition in [p for p in self._waiting if p not in paused]:
            waiting = self._waiting.pop(partition)
            while waiting and (not taken or len(waiting[0]) <= left):
                left -= len(waiting[0])
                taken.setdefault(partition, []).append(waiting.popleft())
            if waiting:
                self._waiting[partition] = waiting  # the others come first in the next poll
        return [PartitionBatch(partition, messages) for partition, messages in taken.items()]


def _gather(messages: Sequence[Any], numbers: Sequence[Any]) -> dict[Any, Sequence[Any]]:
    gathered: dict[Any, list[Any]] = {}
    start = 0
    for end in _run_ends(numbers):
        gathered.setdefault(numbers[start], []).extend(messages[start:end])
        start = end
    return dict(gathered)


def _run_ends(numbers: Sequence[Any]) -> Iterable[int]:
    yield from (index for index, (a, b) in enumerate(pairwise(numbers), start=1) if a != b)
    yield len(numbers)
