"""`--until-end`: when is the work done? By positions, which pass control records, and by commits, whoever made them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from concurrent.futures import Executor, Future
from typing import Any, Protocol

from sfd_stream.errors import RefusedStateError
from sfd_stream.kafka.commits import Committed
from sfd_stream.service.delivery import Delivery
from sfd_stream.service.rebalance import Tenures
from sfd_stream.service.sketching import Sketching
from sfd_stream.service.tenure import Log, Plan, Tenure
from sfd_stream.state.offset_metadata import is_published

LOOK_EVERY_S = 0.2
"""At what others have committed, which is a question to the broker. Our own positions are looked at each turn."""

JOIN_S = 5.0
"""A state that must be refused is found by whoever is assigned it, so commits alone are not believed at once. But where
the group has nothing for a worker, KIP-848 never calls it: after this time others have the partitions."""

_ASK_S = 5.0


class Positions(Protocol):
    """The part of a Source that is used."""

    @property
    def last_committed(self) -> Mapping[int, int]: ...
    def position(self, partition: int) -> int: ...
    def committed(self, partitions: Any, timeout_s: float) -> dict[int, Committed | None]: ...
    def pause(self, partitions: Any) -> None: ...


class Hands(Protocol):
    """The part of a worker that is used."""

    plan: Plan
    tenures: Tenures
    sketching: Sketching
    delivery: Delivery
    log: Log

    def begin_checkpoint(self, tenure: Tenure, *, show: bool = False) -> None: ...


class Ending:
    """Reached when all records up to `ends` are in committed checkpoints, and shown where they are to be shown."""

    def __init__(
        self,
        ends: Mapping[int, int],
        source: Positions,
        hands: Hands,
        clock: Callable[[], float],
        background: Executor,
    ) -> None:
        self.ends = ends
        self._source = source
        self._hands = hands
        self._clock = clock
        self._background = background
        self._asking: Future[dict[int, Committed | None]] | None = None
        self._next_look_s = 0.0
        self._done: set[int] = set()
        """Partitions of other workers whose rows were found committed and published. That cannot be undone."""
        self._unpublished_since: dict[int, float] = {}
        self._asked_from_s = clock()

    def reached(self) -> bool:
        """Asked when the sketch has all that was read. Begins last checkpoints where only they are missing."""
        if not (self._hands.tenures.joined or self._clock() - self._asked_from_s >= JOIN_S):
            return False
        ours = self._hands.tenures.all()
        for tenure in ours:
            self._finish(tenure)
        return all(tenure.finished for tenure in ours) and self._others_are_done()

    def _finish(self, tenure: Tenure) -> None:
        """Moves a partition that was read to its end on to durable, committed, and out of memory."""
        if tenure.state is None or tenure.job is not None:
            return
        position, end = self._source.position(tenure.partition), self.ends.get(tenure.partition, 0)
        if position < end:
            return
        if tenure.state.next_offset < position:  # control records at the end hold nothing for us
            self._hands.sketching.advance(tenure, position)
        if tenure.dirty or (tenure.unseen and self._hands.delivery.shows):
            self._hands.begin_checkpoint(tenure, show=True)
        elif self._hands.delivery.shows and tenure.keeper.owes_snapshot:
            return  # it could not be published, and is tried again in its time
        elif self._source.last_committed.get(tenure.partition, -1) >= end:
            tenure.finished, tenure.state, tenure.columns = True, None, None
            self._source.pause([tenure.partition])
            self._hands.tenures.claim_what_fits()

    def _others_are_done(self) -> bool:
        others = self.ends.keys() - self._done - {tenure.partition for tenure in self._hands.tenures.all()}
        if not others:
            return True
        if self._asking is None:
            if self._clock() >= self._next_look_s:
                self._next_look_s = self._clock() + LOOK_EVERY_S
                self._asking = self._background.submit(self._source.committed, others, _ASK_S)
            return False
        if not self._asking.done():
            return False
        asking, self._asking = self._asking, None
        try:
            found = asking.result()
        except TimeoutError:
            return False
        self._done |= {partition for partition in others if self._is_done(partition, found.get(partition))}
        return others <= self._done

    def _is_done(self, partition: int, committed: Committed | None) -> bool:
        """Whether another worker has committed the rows of a partition, and published them if they are to be published.

        A last checkpoint before a revoke has no snapshot: the next owner of the partition publishes it.
        """
        if committed is None or committed.offset < self.ends[partition]:
            return False
        published = not self._hands.delivery.shows or is_published(committed.metadata)
        if not published:
            self._check_waiting(partition)
        return published

    def _check_waiting(self, partition: int) -> None:
        """Waits for the owner's next snapshot, and once more as long as for an outage; then refuses to wait longer."""
        publishing = self._hands.delivery.publishing
        every_s = publishing.every_s if publishing is not None else None
        if partition not in self._unpublished_since:
            self._unpublished_since[partition] = self._clock()
            self._hands.log.info(
                "all rows committed, waiting for their snapshot", partition=partition, snapshot_every_s=every_s
            )
        waited_s = self._clock() - self._unpublished_since[partition]
        if waited_s > (every_s or 0.0) + self._hands.plan.give_up_s:
            place = f"{self._hands.plan.topic}/{partition}"
            raise RefusedStateError(
                f"another worker has committed all rows of {place}, but has not published their snapshot in"
                f" {waited_s:.0f} s; stop that worker or set its snapshot.every_s (here: {every_s}), and run this again"
            )
