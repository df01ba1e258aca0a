"""`--until-end`: is everything up to the end offsets durable, published and committed?

Our partitions are judged by positions, which pass control records; those of other workers by committed offsets.
"""

from __future__ import annotations

import contextlib
from collections.abc import Mapping
from dataclasses import dataclass

from sfd_stream.errors import RefusedStateError
from sfd_stream.kafka.commits import Committed
from sfd_stream.kafka.source import Source
from sfd_stream.loop.jobs import Job, Wait, answer
from sfd_stream.loop.runtime import Plan, Runtime
from sfd_stream.observe.logs import Log
from sfd_stream.state.offset_metadata import is_published
from sfd_stream.worker.partitions import OwnedPartition, Partitions, Phase

ASK_EVERY_S, ASK_S = 0.2, 5.0
"""How often the broker is asked what other workers have committed. Our own positions are compared each turn."""

JOIN_S = 5.0
"""A worker waits this long for its assignment before it trusts commits of others: only its owner finds that a state
must be refused. With KIP-848 a worker that gets no partition is never called: this time ends its wait."""


@dataclass(eq=False)
class UntilEnd:
    ends: Mapping[int, int]
    plan: Plan
    runtime: Runtime
    source: Source
    partitions: Partitions
    log: Log

    def __post_init__(self) -> None:
        self.publishes = self.plan.snapshot.topic is not None
        self._done: set[int] = set()  # partitions of other workers whose rows are committed and published for good
        self._unpublished_since_s: dict[int, float] = {}
        self._since_s = self.runtime.clock()

    def position(self, owned: OwnedPartition) -> int | None:
        """The position of a partition that was read to its end; None before that."""
        position = self.source.position(owned.number)
        return position if position >= self.ends.get(owned.number, 0) else None

    def needs_checkpoint(self, owned: OwnedPartition) -> bool:
        """Whether rows of the partition are not durable, or not in a snapshot."""
        return owned.is_dirty or (self.publishes and owned.taken.unpublished.since_s is not None)

    def is_delivered(self, owned: OwnedPartition) -> bool:
        """Whether the rows are published and committed."""
        committed = self.source.last_committed.get(owned.number, -1)
        return committed >= self.ends.get(owned.number, 0) and not (self.publishes and owned.chain.has_pending_snapshot)

    def is_reached(self) -> bool:
        """Whether our partitions are finished, and those of other workers too."""
        return self._ours_are_finished() and not self._others()

    def _ours_are_finished(self) -> bool:
        joined = self.partitions.joined or self.runtime.clock() - self._since_s >= JOIN_S
        return joined and all(owned.phase is Phase.FINISHED for owned in self.partitions)

    def _others(self) -> set[int]:
        return self.ends.keys() - self._done - {owned.number for owned in self.partitions}

    def ask_for_others(self) -> Job[None]:
        """In the background: once our partitions are finished, asks what other workers have committed."""
        while True:
            others = self._others()
            if others and self._ours_are_finished():
                asking = self.runtime.io.submit(self.source.committed, others, ASK_S)
                with contextlib.suppress(TimeoutError):
                    found = yield from answer("committed", asking)
                    self._done |= {partition for partition in others if self._is_done(partition, found[partition])}
            yield Wait("others", for_s=ASK_EVERY_S)

    def _is_done(self, partition: int, committed: Committed | None) -> bool:
        """Whether another worker has committed the rows, and published them if there is an output topic.

        A last checkpoint before a revoke has no snapshot: the next owner publishes one.
        """
        if committed is None or committed.offset < self.ends[partition]:
            return False
        published = not self.publishes or is_published(committed.metadata)
        if not published:
            self._check_waiting(partition)
        return published

    def _check_waiting(self, partition: int) -> None:
        """Raises RefusedStateError if the owner's next snapshot is late by more than `give_up_s`."""
        now_s, every_s = self.runtime.clock(), self.plan.snapshot.every_s
        if partition not in self._unpublished_since_s:
            self._unpublished_since_s[partition] = now_s
            self.log.info(
                "all rows committed, waiting for their snapshot", partition=partition, snapshot_every_s=every_s
            )
        waited_s = now_s - self._unpublished_since_s[partition]
        if waited_s > (every_s or 0.0) + self.plan.checkpoint.give_up_s:
            raise RefusedStateError(
                f"another worker has committed all rows of {self.plan.input.topic}/{partition}, but has not published"
                f" their snapshot in {waited_s:.0f} s; stop that worker or set its snapshot.every_s (here: {every_s}),"
                " and run this again"
            )
