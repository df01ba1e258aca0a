"""Records of one topic, for one member of a consumer group. One thread owns it, and every call is that
thread's.

What holds:
- A record is handed out only while its partition is assigned, from the offset that the listener gave,
in order.
  Records that a poll had gathered before a partition was revoked in that same poll are dropped.
- An exception in the listener leaves `poll` as it is, and the source takes no further part: nothing is
read at an
  offset that nobody chose (the client itself would go on at its default).
- Commits never block and never raise: their results are values, and one for a partition not held is not sent.
- A broker that is away is waited for; one that refuses for good raises BrokerRefusedError.

    subscribe ──► assigned (held until `begin`, if the listener says None) ──► revoked in time, or lost
"""

from __future__ import annotations

import contextlib
import threading
import time
from typing import TYPE_CHECKING, Any, Protocol

from confluent_kafka import OFFSET_INVALID, Consumer, KafkaError, KafkaException, Message, TopicPartition

from sfd_stream.errors import RefusedStateError
from sfd_stream.kafka.cluster import Cluster, ask
from sfd_stream.kafka.commits import CommitResult, Commits, Committed
from sfd_stream.kafka.faults import Fault, Hooks, error_of, fault_of, refuse_settings
from sfd_stream.kafka.presence import Presence
from sfd_stream.kafka.properties import admin_properties, assigns_incrementally, consumer_properties
from sfd_stream.kafka.records import PartitionBatch, Start, split

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Iterator, Mapping


class RebalanceListener(Protocol):
    """Called from `poll` and `close`, in the thread that owns the source. What it raises ends the source."""

    def on_assign(self, partitions: Collection[int]) -> Mapping[int, Start | None]:
        """Where each begins; None holds it unread until `Source.begin`. May be called with no
        partition at all.
        """
        ...

    def on_revoke(self, partitions: Collection[int]) -> None:
        """Given up in time: the last chance to commit for them."""
        ...

    def on_lost(self, partitions: Collection[int]) -> None:
        """Already another's: write nothing."""
        ...


class Source:
    """`poll` again and again; `close` at the end. Times are in seconds, offsets are never negative."""

    def __init__(
        self,
        properties: Mapping[str, Any],
        topic: str,
        listener: RebalanceListener,
        *,
        hooks: Hooks | None = None,
        clock: Callable[[], float] = time.monotonic,
        unknown_topic_s: float = 10.0,
    ) -> None:
        hooks = hooks or Hooks()
        self.topic = topic
        self._listener = listener
        self._logger = hooks.logger
        self._clock = clock
        self._properties = consumer_properties(properties)
        self._incremental = assigns_incrementally(self._properties)
        self._held: set[int] = set()  # assigned, without a position yet
        self._positions: dict[int, int] = {}  # assigned and read: where the next record is expected
        self._paused: set[int] = set()
        self._left_in_this_poll: set[int] = set()
        self._assigned_before: frozenset[int] = frozenset()
        self._torn: set[int] = set()
        self._failure: BaseException | None = None
        self._commits = Commits()
        self._closing = False
        self._closed = False
        callbacks = {"error_cb": self._on_error, "on_commit": self._on_commit}
        try:
            self._consumer = Consumer({**self._properties, **hooks.as_properties(properties), **callbacks})
        except KafkaException as exception:
            refuse_settings(exception, self._properties)
        self._cluster = Cluster(admin_properties(properties), topic, hooks)
        self._presence = Presence(self._cluster, topic, self._properties, clock, unknown_topic_s)
        self._subscribe()

    def __repr__(self) -> str:
        group = self._properties["group.id"]
        return f"Source({self.topic!r}, group {group!r}, partitions {sorted(self.assigned)})"

    # Reading

    def poll(self, max_records: int, timeout_s: float) -> list[PartitionBatch]:
        """Up to `max_records` records, waiting up to `timeout_s` for that many; rebalances happen in here."""
        self._raise_failure()
        self._left_in_this_poll.clear()
        self._assigned_before = self.assigned
        messages = self._consumer.consume(max_records, timeout_s)
        self._raise_failure()
        if any(map(Message.error, messages)):  # in C; an error compared with None would raise
            self._see([message for message in messages if message.error() is not None])
            messages = [message for message in messages if message.error() is None]
        if messages:
            self._presence.answered()
        else:
            self._fail(self._presence.probe())
            self._raise_failure()
        readable = self._positions.keys() - self._torn
        self._mend()
        return [self._advance(batch) for batch in split(messages, readable)]

    def _advance(self, batch: PartitionBatch) -> PartitionBatch:
        assert batch.first_offset >= self._positions[batch.partition], "a partition's records went back"
        self._positions[batch.partition] = batch.next_offset
        return batch

    def _mend(self) -> None:
        """Lets partitions that left and came back within one poll be read, now that their old records
        are dropped.
        """
        torn = self._torn & self._positions.keys() - self._paused
        self._torn.clear()
        if torn:
            self._consumer.resume(self._where(torn))

    def begin(self, partition: int, start: Start) -> None:
        """Starts to read a partition that was held."""
        self._held.remove(partition)
        self._positions[partition] = start.offset
        if self._incremental:
            self._consumer.incremental_assign([self._start(partition, start)])
        else:
            self._assign_all({partition: start})
        if partition in self._paused:
            self._consumer.pause(self._where([partition]))

    def pause(self, partitions: Collection[int]) -> None:
        self._paused |= set(partitions) & self.assigned
        self._consumer.pause(self._where(set(partitions) & self._positions.keys()))

    def resume(self, partitions: Collection[int]) -> None:
        self._paused -= set(partitions)
        self._consumer.resume(self._where(set(partitions) & self._positions.keys()))

    @property
    def assigned(self) -> frozenset[int]:
        return frozenset(self._positions) | self._held

    @property
    def paused(self) -> frozenset[int]:
        return frozenset(self._paused)

    # Rebalances. Each callback keeps its promise to the client even when the listener breaks its own.

    def _subscribe(self) -> None:
        self._consumer.subscribe(
            [self.topic], on_assign=self._on_assign, on_revoke=self._on_revoke, on_lost=self._on_lost
        )

    def rejoin(self) -> None:
        """Leaves the group and joins it again: what a fenced owner does. The partitions are revoked at
        the next poll.
        """
        self._raise_failure()
        self._consumer.unsubscribe()
        self._subscribe()

    def _on_assign(self, _: Consumer, given: list[TopicPartition]) -> None:
        if self._closing:
            self._decline()
            return
        partitions = sorted(tp.partition for tp in given)
        starts: Mapping[int, Start | None] = {}
        if self._failure is None:
            with self._guarded():
                starts = self._listener.on_assign(partitions)
                assert set(starts) == set(partitions), "the listener must place every partition, and no other"
        with self._guarded():
            self._take(starts if self._failure is None else {})

    def _decline(self) -> None:
        """An assignment that was on its way when we left: nothing of it is read, and the client may be past it too."""
        with contextlib.suppress(KafkaException):
            if self._incremental:
                self._consumer.incremental_assign([])
            else:
                self._consumer.assign([])

    def _take(self, starts: Mapping[int, Start | None]) -> None:
        begun = {p: start for p, start in starts.items() if start is not None}
        self._presence.answered()
        self._held |= starts.keys() - begun.keys()
        self._positions.update({p: start.offset for p, start in begun.items()})
        # Even with nothing: a callback that assigns nothing gets everything, at default offsets.
        if self._incremental:
            self._consumer.incremental_assign([self._start(p, start) for p, start in begun.items()])
        else:
            self._assign_all(begun)
        self._torn |= self._left_in_this_poll & begun.keys()
        if unread := (self._torn | self._paused) & begun.keys():
            self._consumer.pause(self._where(unread))

    def _on_revoke(self, _: Consumer, given: list[TopicPartition]) -> None:
        self._leave({tp.partition for tp in given}, self._listener.on_revoke)

    def _on_lost(self, _: Consumer, given: list[TopicPartition]) -> None:
        self._leave({tp.partition for tp in given}, self._listener.on_lost)

    def _leave(self, partitions: set[int], tell: Callable[[Collection[int]], None]) -> None:
        told = partitions & self.assigned
        if told and self._failure is None:
            with self._guarded():
                tell(sorted(told))
        with self._guarded():
            read = self._drop(partitions)
            if self._incremental:
                self._consumer.incremental_unassign(self._where(read))
            else:
                self._consumer.unassign()

    @contextlib.contextmanager
    def _guarded(self) -> Iterator[None]:
        """Keeps an exception for `poll` to raise: raised into the client, it would be followed by
        default offsets.
        """
        try:
            yield
        except BaseException as failure:  # noqa: BLE001 - whatever it is, poll raises it
            self._fail(failure)

    def _drop(self, partitions: set[int]) -> set[int]:
        """Forgets partitions; says which of them the client was reading."""
        read = partitions & {tp.partition for tp in self._consumer.assignment()}
        self._left_in_this_poll |= partitions & self.assigned
        self._held -= partitions
        self._paused -= partitions
        for partition in partitions:
            self._positions.pop(partition, None)
            self._commits.last.pop(partition, None)
        return read

    def _assign_all(self, begun: Mapping[int, Start]) -> None:
        """Eager: the whole assignment at once, those already read where they are."""
        starts = {p: Start(offset) for p, offset in self._positions.items()} | dict(begun)
        self._consumer.assign([self._start(p, start) for p, start in starts.items()])

    # Commits

    def commit(self, offsets: Mapping[int, int], metadata: str = "") -> None:
        """Tells the broker, without waiting. Within on_revoke it is sent before the partitions are
        given up.
        """
        for partition in sorted(offsets.keys() - self.assigned):
            self._commits.refuse(partition, offsets[partition])
        owned = sorted(offsets.keys() & self.assigned)
        if not owned:
            return
        where = [TopicPartition(self.topic, p, offsets[p], metadata) for p in owned]
        try:
            self._consumer.commit(offsets=where, asynchronous=True)
            self._commits.pending += 1
        except KafkaException as exception:
            self._commits.finish(error_of(exception), where, self.assigned)

    def commit_results(self) -> list[CommitResult]:
        """Those that came in since the last call, in order; polling brings them."""
        return self._commits.take()

    def note_commit(self, partition: int, next_offset: int) -> None:
        """A transaction committed it."""
        if partition in self.assigned:
            self._commits.last[partition] = next_offset

    def membership(self) -> bytes | None:
        """Who we are in the group, in which generation, for a transaction's offsets; None while it is no member.

        A blank one must never be used: the coordinator takes it for a group without members, and checks nothing.
        """
        member = self._consumer.memberid()
        found = self._consumer.consumer_group_metadata()
        return found if member and member.encode() in found else None

    @property
    def last_committed(self) -> Mapping[int, int]:
        """By partition: the last offset that the broker acknowledged since the partition was assigned."""
        return self._commits.last

    def _on_commit(self, error: KafkaError | None, offsets: list[TopicPartition]) -> None:
        self._commits.pending -= 1
        self._commits.finish(error, offsets, self.assigned)

    # Questions

    def committed(self, partitions: Collection[int], timeout_s: float) -> dict[int, Committed | None]:
        """What the group has committed; None where nothing is."""
        where = self._where(partitions)
        found = self._ask(lambda left_s: self._consumer.committed(where, left_s), timeout_s)
        return {tp.partition: Committed.of(tp) for tp in found}

    def stable_committed(self, partition: int, timeout_s: float) -> Committed | None:
        """What the group has committed once no transaction is open on it. May be asked by any thread."""
        return self._cluster.stable_committed(str(self._properties["group.id"]), partition, timeout_s)

    def watermarks(self, partition: int, timeout_s: float) -> tuple[int, int]:
        """The first offset in the log and the one after the last committed record. May be asked by any thread.

        On a connection of its own: the consumer's waits behind its fetches, half a second for each partition.
        """
        return self._cluster.watermarks(partition, timeout_s)

    def end_offsets(self, partitions: Collection[int], timeout_s: float) -> dict[int, int]:
        """As `watermarks`, for many at once."""
        return self._cluster.end_offsets(partitions, timeout_s)

    def position(self, partition: int) -> int:
        """Where reading stands. It passes control records, which are never handed out: the end is
        reached by this.
        """
        (found,) = self._consumer.position(self._where([partition]))
        handed_out = self._positions[partition]
        return handed_out if found.offset == OFFSET_INVALID else max(found.offset, handed_out)

    @property
    def positions(self) -> dict[int, int]:
        """Where reading stands in each partition that is read."""
        return dict(self._positions)

    def known_lag(self) -> int | None:
        """Records between the positions and the ends that the last fetches told; None where none has told yet."""
        lag = 0 if self._positions else None
        for partition, position in self._positions.items():
            (where,) = self._where([partition])
            _, end = self._consumer.get_watermark_offsets(where, cached=True)
            if end < 0:
                return None
            lag = (lag or 0) + max(end - position, 0)
        return lag

    def known_end(self, partition: int) -> int | None:
        """The end that the last fetch told; None where none has told yet."""
        (where,) = self._where([partition])
        _, end = self._consumer.get_watermark_offsets(where, cached=True)
        return end if end >= 0 else None

    def partition_count(self, timeout_s: float) -> int:
        return self._cluster.partition_count(timeout_s)

    def cluster_id(self, timeout_s: float) -> str:
        return self._cluster.cluster_id(timeout_s)

    def topic_id(self, timeout_s: float) -> str | None:
        """Asked anew each time: a topic deleted and made again has another. None on the built-in broker.

        The one question that any thread may ask: it goes to a client of its own.
        """
        return self._cluster.topic_id(timeout_s)

    def member_id(self) -> str:
        return self._consumer.memberid()

    @property
    def away_s(self) -> float | None:
        """For how long no broker has answered; None if one does."""
        return self._presence.away_s

    @property
    def away_words(self) -> str:
        """What the client last said about it."""
        return self._presence.words

    @property
    def passing_errors(self) -> int:
        return self._presence.passing_errors

    def _ask(self, question: Callable[[float], Any], timeout_s: float) -> Any:
        return ask(question, timeout_s, self._properties)

    # Faults

    def _on_error(self, error: KafkaError) -> None:
        """The client's own news, outside any record. Never raises: it is called from inside the client."""
        self._fail(self._presence.note(error))

    def _fail(self, failure: BaseException | None) -> None:
        """The first failure is the one that is told."""
        self._failure = self._failure or failure

    def _see(self, events: Iterable[Message[Any, Any]]) -> None:
        for event in events:
            error = event.error()
            assert error is not None
            fault = fault_of(error)
            if fault is Fault.OUTSIDE_LOG:
                self._fail(self._outside_log(event.partition(), error))
            elif fault is Fault.EXPELLED:
                self._expel()
            else:
                self._on_error(error)
        self._raise_failure()

    def _outside_log(self, partition: int | None, error: KafkaError) -> RefusedStateError:
        place = f"{self.topic}/{partition}"
        offset = self._positions.get(partition or 0)
        return RefusedStateError(
            f"offset {offset} of {place} is not in the log ({error.str()}): retention, truncation or a"
            " new topic took rows that were not read; go on without them by"
            f' "sfd-stream checkpoint reset {place} --to earliest --keep-sketch"'
        )

    def _expel(self) -> None:
        """Polled too late: the partitions are another's by now, whether or not the client says so later.

        By the time that this news is read the client may have told of the loss, and even have been
        assigned anew.
        """
        lost = set(self._assigned_before - self._left_in_this_poll)
        self._logger.warning("polled too late: the partitions of %s are lost", self.topic)
        if lost:
            with self._guarded():
                self._listener.on_lost(sorted(lost))
        self._drop(lost)

    def _raise_failure(self) -> None:
        assert not self._closed, "the source is closed"
        if self._failure is not None:
            raise self._failure

    # The end

    def close(self, timeout_s: float) -> bool:
        """Gives up its partitions (on_revoke is called), waits for commits, leaves the group; says if in
        time.

        Raises what on_revoke raised. A client that hangs in its own close is left to a thread that does not keep the
        process alive.
        """
        if self._closed:
            return True
        deadline = self._clock() + timeout_s
        before, self._closing = self._failure, True
        with self._guarded():
            self._consumer.unsubscribe()
        while (self.assigned or self._commits.pending) and self._clock() < deadline and self._failure is None:
            self._consumer.consume(1, 0.05)
        self._closed = True
        closing = threading.Thread(target=self._consumer.close, name="kafka-close", daemon=True)
        closing.start()
        closing.join(max(deadline - self._clock(), 0.1))
        if before is None and self._failure is not None:
            raise self._failure
        return not closing.is_alive()

    def _start(self, partition: int, start: Start) -> TopicPartition:
        where = TopicPartition(self.topic, partition, start.offset)
        if start.leader_epoch is not None:
            where = TopicPartition(self.topic, partition, start.offset, leader_epoch=start.leader_epoch)
        return where

    def _where(self, partitions: Iterable[int]) -> list[TopicPartition]:
        return [TopicPartition(self.topic, partition) for partition in sorted(partitions)]
