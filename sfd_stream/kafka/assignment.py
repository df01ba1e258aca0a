"""The partitions of a member of a group, as the client's rebalance callbacks assign and revoke them.

    held (the listener returned None) ──► read, from its start ──► gone: revoked in time, or lost
                                            │  ▲
                                            ▼  │
                                           paused

Each callback does what the client needs even if the listener raises. The exception is kept, and `poll` raises it:
if it went into the client, the client would read at its default offsets.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from typing import Protocol

from confluent_kafka import Consumer, KafkaException, TopicPartition

from sfd_stream.kafka.records import Start


class RebalanceListener(Protocol):
    """Called from `poll` and `close`, in the thread that owns the source. What it raises ends the source."""

    def on_assign(self, partitions: Collection[int]) -> Mapping[int, Start | None]:
        """Returns where each begins. None holds it unread until `Source.begin`. `partitions` may be empty."""
        ...

    def on_revoke(self, partitions: Collection[int]) -> None:
        """The partitions leave in time: this is the last chance to commit for them."""
        ...

    def on_lost(self, partitions: Collection[int]) -> None:
        """The partitions are another member's already: write nothing."""
        ...


class Failures:
    """Only the first failure is raised."""

    def __init__(self) -> None:
        self.first: BaseException | None = None

    def keep(self, failure: BaseException | None) -> None:
        self.first = self.first or failure

    def raise_first(self) -> None:
        if self.first is not None:
            raise self.first

    @contextlib.contextmanager
    def kept(self) -> Iterator[None]:
        try:
            yield
        except BaseException as failure:  # noqa: BLE001 - whatever it is, poll raises it
            self.keep(failure)


class Assignment:
    """The client calls the callbacks, within `poll`. The source calls everything else."""

    def __init__(
        self,
        consumer: Consumer,
        topic: str,
        failures: Failures,
        *,
        incremental: bool,
        on_given: Callable[[], None],
        on_gone: Callable[[int], None],
    ) -> None:
        self.consumer = consumer
        self.positions: dict[int, int] = {}
        """The offset of the next record, by partition that is read."""
        self.leader_epochs: dict[int, int | None] = {}
        """The leader epoch of the last record, by partition that is read: a lower one shows a truncated log."""
        self.held: set[int] = set()
        """Partitions without a position yet."""
        self.paused: set[int] = set()
        self.leaving: frozenset[int] = frozenset()
        """Partitions that are being revoked, during the call of the listener."""
        self.closing = False
        self.member = ""
        """The member id under which everything that is held was assigned."""
        self.must_rejoin = False
        """Partitions were lost that the group may still count as ours: they come back only after a new join."""
        self.listener: RebalanceListener  # set by Source.subscribe
        self._topic = topic
        self._failures = failures
        self._incremental = incremental
        self._on_given = on_given
        self._on_gone = on_gone
        self._left_in_this_poll: set[int] = set()
        self._before: frozenset[int] = frozenset()
        self._torn: set[int] = set()

    def subscribe(self) -> None:
        self.consumer.subscribe([self._topic], on_assign=self.on_assign, on_revoke=self.on_revoke, on_lost=self.on_lost)

    @property
    def all(self) -> frozenset[int]:
        return frozenset(self.positions) | self.held

    @property
    def is_same_member(self) -> bool:
        """Whether the client is still the member to whom everything that is held was assigned.

        If not, it has left the group and joined it again, whether or not it reported a loss (librdkafka's pull request
        5604): the partitions may be another worker's by now. With KIP-848 a client keeps its id for life, and reports
        each loss before it joins again.
        """
        return self.member_id() == self.member

    def member_id(self) -> str:
        return self.consumer.memberid() or ""

    # Around a poll

    def before_poll(self) -> None:
        self._left_in_this_poll.clear()
        self._before = self.all

    def readable(self) -> set[int]:
        """The partitions whose records of this poll count. If a partition left and came back within the poll, its
        records are old: they are dropped, and it is read again from its new position.
        """
        found = self.positions.keys() - self._torn
        torn = self._torn & self.positions.keys() - self.paused
        self._torn.clear()
        if torn:
            self.consumer.resume(self.where(torn))
        return found

    def stayed(self, partition: int | None) -> bool:
        """Whether a partition is read, and was not lost or revoked in this poll."""
        return partition in self.positions and partition not in self._left_in_this_poll

    def expel(self) -> frozenset[int]:
        """The client polled too late: its partitions are another member's by now, even if it never reports that.

        When this error is read, the client may have reported the loss, and may have been assigned the partitions again.
        """
        lost = self._before - self._left_in_this_poll
        self.lose(lost)
        return lost

    def lose(self, partitions: Collection[int]) -> None:
        """The partitions are another worker's by now, or the client that has them is about to be replaced."""
        if partitions:
            with self._failures.kept():
                self.listener.on_lost(sorted(partitions))
        self._drop(partitions)

    # Reading and pausing

    def begin(self, partition: int, start: Start) -> None:
        """Starts to read a partition that is held."""
        self.held.remove(partition)
        self.positions[partition], self.leader_epochs[partition] = start
        self._assign({partition: start})

    def pause(self, partitions: Collection[int]) -> None:
        self.paused |= set(partitions) & self.all
        self.consumer.pause(self.where(set(partitions) & self.positions.keys()))

    def resume(self, partitions: Collection[int]) -> None:
        self.paused -= set(partitions)
        self.consumer.resume(self.where(set(partitions) & self.positions.keys()))

    def pause_only(self, wanted: set[int]) -> None:
        """Pauses and resumes until exactly these are paused. Calls the client only for changes."""
        if wanted - self.paused:
            self.pause(wanted - self.paused)
        if self.paused - wanted:
            self.resume(self.paused - wanted)

    # The callbacks

    def on_assign(self, client: Consumer, given: list[TopicPartition]) -> None:
        if client is not self.consumer:  # it was replaced, and is closing
            return
        if self.closing:
            self._decline()
            return
        partitions = sorted(tp.partition for tp in given)
        self._lose_unreported(partitions)
        self.member = self.member_id()
        starts: Mapping[int, Start | None] = {}
        if self._failures.first is None:
            with self._failures.kept():
                starts = self.listener.on_assign(partitions)
                assert set(starts) == set(partitions), "the listener must place every partition, and no other"
        with self._failures.kept():
            self._take(starts if self._failures.first is None else {})

    def on_revoke(self, client: Consumer, given: list[TopicPartition]) -> None:
        if client is self.consumer:
            notify = self.listener.on_revoke if self.is_same_member else self.listener.on_lost
            self._leave({tp.partition for tp in given}, notify)

    def on_lost(self, client: Consumer, given: list[TopicPartition]) -> None:
        if client is self.consumer:
            self._leave({tp.partition for tp in given}, self.listener.on_lost)

    def _lose_unreported(self, given: Collection[int]) -> None:
        """A partition that is assigned while it is still held was lost before (librdkafka's pull request 5604).

        An eager assignment is complete: whatever else is held was lost, too. So is everything that was assigned to an
        earlier member id. The client refuses to assign a partition that it still reads.
        """
        lost = self.all & set(given) if self._incremental and self.is_same_member else self.all
        self.must_rejoin |= self._incremental and not lost <= set(given)
        if lost and self._failures.first is None:
            with self._failures.kept():
                self.listener.on_lost(sorted(lost))
        with self._failures.kept():
            self._drop(lost)
            if self._incremental and (read := self._read_of(given)):
                self.consumer.incremental_unassign(self.where(read))

    def _read_of(self, partitions: Collection[int]) -> set[int]:
        """The partitions that the client really reads."""
        return set(partitions) & {tp.partition for tp in self.consumer.assignment()}

    def _decline(self) -> None:
        """An assignment that was already on its way when we left: none of it is read."""
        with self._past_it_when_closing():
            if self._incremental:
                self.consumer.incremental_assign([])
            else:
                self.consumer.assign([])

    @contextlib.contextmanager
    def _past_it_when_closing(self) -> Iterator[None]:
        """A client that closes releases its partitions by itself, and may answer every call with an error."""
        try:
            yield
        except KafkaException:
            if not self.closing:
                raise

    def _take(self, starts: Mapping[int, Start | None]) -> None:
        begun = {p: start for p, start in starts.items() if start is not None}
        self._on_given()
        self.held |= starts.keys() - begun.keys()
        self.positions.update({p: start.offset for p, start in begun.items()})
        self.leader_epochs.update({p: start.leader_epoch for p, start in begun.items()})
        self._torn |= self._left_in_this_poll & begun.keys()
        self._assign(begun)  # also with nothing: a callback that assigns none gets all partitions, at default offsets

    def _assign(self, begun: Mapping[int, Start]) -> None:
        """An eager client assigns all partitions at once; those already read keep their positions.

        The client keeps a partition's pause when it is unassigned and assigned again, so each partition is paused or
        resumed at every assignment.
        """
        if self._incremental:
            starts = dict(begun)
            self.consumer.incremental_assign([self._start(p, start) for p, start in starts.items()])
        else:
            read = {p: Start(offset, self.leader_epochs[p]) for p, offset in self.positions.items()}
            starts = read | dict(begun)
            self.consumer.assign([self._start(p, start) for p, start in starts.items()])
        unread = starts.keys() & (self.paused | self._torn)
        if unread:
            self.consumer.pause(self.where(unread))
        if others := starts.keys() - unread:
            self.consumer.resume(self.where(others))

    def _leave(self, partitions: set[int], notify: Callable[[Collection[int]], None]) -> None:
        leaving = partitions & self.all
        if leaving and self._failures.first is None:
            self.leaving = frozenset(leaving)
            with self._failures.kept():
                notify(sorted(leaving))
            self.leaving = frozenset()
        with self._failures.kept(), self._past_it_when_closing():
            self._drop(partitions)
            if self._incremental:
                self.consumer.incremental_unassign(self.where(self._read_of(partitions)))
            else:
                self.consumer.unassign()

    def _drop(self, partitions: Collection[int]) -> None:
        gone = set(partitions)
        self._left_in_this_poll |= gone & self.all
        self.held -= gone
        self.paused -= gone
        for partition in gone:
            self.positions.pop(partition, None)
            self.leader_epochs.pop(partition, None)
            self._on_gone(partition)

    # As the client names them

    def where(self, partitions: Iterable[int]) -> list[TopicPartition]:
        return [TopicPartition(self._topic, partition) for partition in sorted(partitions)]

    def _start(self, partition: int, start: Start) -> TopicPartition:
        if start.leader_epoch is None:
            return TopicPartition(self._topic, partition, start.offset)
        return TopicPartition(self._topic, partition, start.offset, leader_epoch=start.leader_epoch)
