"""Commits that were sent, and their results: values, never exceptions.

A partition has at most one commit under way. The client retries a commit that the coordinator can't take yet, and sends
a later one meanwhile: the older offset would arrive last.
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterable

    from confluent_kafka import KafkaError, TopicPartition

NOT_ASSIGNED = "not assigned"


class CommitResult(NamedTuple):
    """`error` is None, NOT_ASSIGNED, or the broker's name, such as UNKNOWN_MEMBER_ID or ILLEGAL_GENERATION."""

    partition: int
    offset: int
    error: str | None


class Committed(NamedTuple):
    """What the group has committed for a partition."""

    offset: int
    metadata: str
    leader_epoch: int | None

    @classmethod
    def of(cls, found: TopicPartition) -> Committed | None:
        if found.offset < 0:
            return None
        return cls(found.offset, found.metadata or "", found.leader_epoch)


class Commits:
    def __init__(self) -> None:
        self.waiting: dict[int, tuple[int, str]] = {}
        """By partition: offset and metadata to send once the commit under way is answered."""
        self._sent: Counter[int] = Counter()
        """By partition: commits without an answer, including those of earlier assignments."""
        self.last: dict[int, int] = {}  # by partition, acknowledged, since it was assigned
        self._results: list[CommitResult] = []

    @property
    def pending(self) -> bool:
        """Whether a commit has no answer yet."""
        return bool(self._sent)

    def is_sent(self, partition: int) -> bool:
        return self._sent[partition] > 0

    def send(self, partitions: Iterable[int]) -> None:
        self._sent.update(list(partitions))

    def take_ready(self) -> dict[int, tuple[int, str]]:
        """The commits whose partition has none under way."""
        ready = {partition: what for partition, what in self.waiting.items() if not self.is_sent(partition)}
        for partition in ready:
            del self.waiting[partition]
        return ready

    def refuse(self, partition: int, offset: int) -> None:
        self._results.append(CommitResult(partition, offset, NOT_ASSIGNED))

    def finish(self, error: KafkaError | None, offsets: Iterable[TopicPartition], assigned: frozenset[int]) -> None:
        for tp in offsets:
            self._sent[tp.partition] -= 1
            self._sent += Counter()  # removes partitions without open commits
            found = tp.error or error
            self._results.append(CommitResult(tp.partition, tp.offset, found.name() if found else None))
            if found is None and tp.partition in assigned:
                self.last[tp.partition] = tp.offset

    def forget(self, partition: int) -> None:
        self.last.pop(partition, None)
        self.waiting.pop(partition, None)

    def take(self) -> list[CommitResult]:
        results, self._results = self._results, []
        return results
