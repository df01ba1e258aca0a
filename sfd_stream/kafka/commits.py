"""Commits on their way and what became of them: values, never exceptions."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterable

    from confluent_kafka import KafkaError, TopicPartition

NOT_ASSIGNED = "not assigned"


class CommitResult(NamedTuple):
    """`error` is None, NOT_ASSIGNED, or the broker's name, such as UNKNOWN_MEMBER_ID or
    ILLEGAL_GENERATION.
    """

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
        self.pending = 0
        self.last: dict[int, int] = {}  # by partition, acknowledged, since it was assigned
        self._results: list[CommitResult] = []

    def refuse(self, partition: int, offset: int) -> None:
        self._results.append(CommitResult(partition, offset, NOT_ASSIGNED))

    def finish(self, error: KafkaError | None, offsets: Iterable[TopicPartition], assigned: frozenset[int]) -> None:
        for tp in offsets:
            found = tp.error or error
            self._results.append(CommitResult(tp.partition, tp.offset, found.name() if found else None))
            if found is None and tp.partition in assigned:
                self.last[tp.partition] = tp.offset

    def forget(self, partition: int) -> None:
        self.last.pop(partition, None)

    def take(self) -> list[CommitResult]:
        results, self._results = self._results, []
        return results
