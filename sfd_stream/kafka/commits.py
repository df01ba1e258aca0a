"""Commits of offsets. One that failed is sent again until the broker acknowledges it or a newer one replaces it.

A partition has at most one commit under way. The client retries a commit that the coordinator can't take yet, and sends
a later one meanwhile: the older offset would arrive last.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping
from typing import NamedTuple

from confluent_kafka import KafkaError, TopicPartition

COMMIT_AGAIN_S = 1.0
"""A commit that failed is sent again after this time."""


class Commit(NamedTuple):
    """What the group is to have for a partition."""

    offset: int
    metadata: str


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
    """What was wanted of a partition is sent until it is acknowledged, replaced by a newer one, or forgotten."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self.waiting: dict[int, Commit] = {}
        """By partition: to send once the commit under way is answered, and not before `_again_s`."""
        self.last: dict[int, int] = {}  # by partition, acknowledged, since it was assigned
        self._clock = clock
        self._wanted: dict[int, Commit] = {}  # by partition: the newest one, since it was assigned
        self._again_s: dict[int, float] = {}
        self._sent: Counter[int] = Counter()
        """By partition: commits without an answer, including those of earlier assignments."""

    @property
    def pending(self) -> bool:
        """Whether a commit has no answer yet."""
        return bool(self._sent)

    @property
    def acknowledged(self) -> dict[int, Commit]:
        """By partition: the newest commit, if the broker has acknowledged it."""
        return {p: commit for p, commit in self._wanted.items() if p not in self.waiting and not self.is_sent(p)}

    def is_sent(self, partition: int) -> bool:
        return self._sent[partition] > 0

    def want(self, partition: int, commit: Commit) -> None:
        """The same commit is sent once."""
        if self._wanted.get(partition) != commit:
            self._wanted[partition] = self.waiting[partition] = commit
            self._again_s.pop(partition, None)

    def take_ready(self, leaving: Collection[int]) -> dict[int, Commit]:
        """The commits to send now: of partitions that have none under way, and all of those that leave."""
        now_s = self._clock()
        due = {
            partition: what for partition, what in self.waiting.items() if self._again_s.get(partition, 0.0) <= now_s
        }
        ready = {partition: what for partition, what in due.items() if not self.is_sent(partition)}
        ready |= {partition: self.waiting[partition] for partition in leaving if partition in self.waiting}
        for partition in ready:
            del self.waiting[partition]
        self._sent.update(ready.keys())
        return ready

    def finish(self, error: KafkaError | None, offsets: Iterable[TopicPartition], assigned: frozenset[int]) -> None:
        for tp in offsets:
            self._sent[tp.partition] -= 1
            self._sent += Counter()  # removes partitions without open commits
            if error is None and tp.error is None:
                if tp.partition in assigned:
                    self.last[tp.partition] = tp.offset
            elif tp.partition in self._wanted and tp.partition not in self.waiting:
                self.waiting[tp.partition] = self._wanted[tp.partition]
                self._again_s[tp.partition] = self._clock() + COMMIT_AGAIN_S

    def renew(self, asked: Mapping[int, Commit], found: Mapping[int, Committed | None]) -> list[int]:
        """Where the group had an older offset than what is acknowledged, that is sent again. `asked`: what was
        acknowledged when the group was asked.
        """
        behind = []
        for partition, commit in self.acknowledged.items():
            committed = found.get(partition)
            if asked.get(partition) is commit and committed is not None and committed.offset < commit.offset:
                self.waiting[partition] = commit
                behind.append(partition)
        return behind

    def forget(self, partition: int) -> None:
        for known in (self.last, self.waiting, self._wanted, self._again_s):
            known.pop(partition, None)
