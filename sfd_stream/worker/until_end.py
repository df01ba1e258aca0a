"""`--until-end`: is everything up to the end offsets durable, published and committed?

By positions, which pass control records, and by commits, of whichever worker.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum

from sfd_stream.kafka.commits import Committed
from sfd_stream.kafka.source import Source
from sfd_stream.worker.delivery import UNPUBLISHED
from sfd_stream.worker.jobs import Background
from sfd_stream.worker.partitions import OwnedPartition, Partitions, Phase
from sfd_stream.worker.runtime import Log, Runtime

ASK_EVERY_S, ASK_S = 0.2, 5.0
"""What others have committed is a question to the broker. Our own positions are compared each turn."""

JOIN_S = 5.0
"""A state that must be refused is found by the worker that is assigned it, so commits alone are not believed at once.
But where the group has nothing for a worker, KIP-848 never calls it: after this time others have the partitions."""


class Verdict(Enum):
    """What a partition needs next."""

    MORE_TIME = "more time"
    CHECKPOINT = "checkpoint"
    """Read to its end; a checkpoint with a snapshot is missing."""
    NOTHING = "nothing"


class UntilEnd:
    def __init__(
        self,
        ends: Mapping[int, int],
        runtime: Runtime,
        source: Source,
        partitions: Partitions,
        log: Log,
        *,
        publishes: bool,
    ) -> None:
        self.ends = ends
        self._runtime = runtime
        self._source = source
        self._partitions = partitions
        self._log = log
        self._publishes = publishes
        self._asking = Background[dict[int, Committed | None]](runtime, ASK_EVERY_S)
        self._logged: set[int] = set()
        self._since_s = runtime.clock()

    def position(self, owned: OwnedPartition) -> int | None:
        """Where a partition stands that was read to its end; None before."""
        position = self._source.position(owned.number)
        return position if position >= self.ends.get(owned.number, 0) else None

    def verdict(self, owned: OwnedPartition) -> Verdict:
        """For a partition that is read to its end and has no job."""
        if owned.is_dirty or (owned.taken.unpublished_since_s is not None and self._publishes):
            return Verdict.CHECKPOINT
        if self._publishes and owned.chain.owes_snapshot:
            return Verdict.MORE_TIME  # it could not be published, and is retried in its time
        if self._source.last_committed.get(owned.number, -1) >= self.ends.get(owned.number, 0):
            return Verdict.NOTHING
        return Verdict.MORE_TIME

    def is_reached(self) -> bool:
        """Whether ours are finished, and those of other workers too."""
        if not (self._partitions.joined or self._runtime.clock() - self._since_s >= JOIN_S):
            return False
        ours = list(self._partitions)
        return all(owned.phase is Phase.FINISHED for owned in ours) and self._others_are_done(
            self.ends.keys() - {owned.number for owned in ours}
        )

    def _others_are_done(self, others: set[int]) -> bool:
        if not others:
            return True
        if self._asking.is_due:
            self._asking.ask(self._source.committed, others, ASK_S)
        answered = self._asking.take()
        if answered is None:
            return False
        try:
            found = answered.result()
        except TimeoutError:
            return False
        return all(self._is_done(partition, found.get(partition)) for partition in others)

    def _is_done(self, partition: int, committed: Committed | None) -> bool:
        """Whether another worker has committed its rows, and published them if they are to be published.

        A last checkpoint before a revoke has no snapshot: the next owner publishes it.
        """
        if committed is None or committed.offset < self.ends[partition]:
            return False
        published = not (self._publishes and committed.metadata.endswith(UNPUBLISHED))
        if not published and partition not in self._logged:
            self._logged.add(partition)
            self._log.info("all rows committed, waiting for their snapshot", partition=partition)
        return published
