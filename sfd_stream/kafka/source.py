"""Records of one topic, for one member of a consumer group. One thread owns it; any thread may ask its questions.

Guarantees:
- A record is handed out only while its partition is assigned, in order, from the offset that the listener gave.
  Records of a partition that was revoked in the same poll are dropped.
- `poll` raises an exception of the listener, and the source ends. Nothing is read at an offset that nobody chose
  (the client itself would continue at its default offset).
- Commits never block and never raise: one that failed is sent again until it is acknowledged or replaced by a newer
  one. A commit for a partition that is not held is not sent.
- While brokers are unavailable the source waits. A permanent refusal raises BrokerRefusedError.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Collection, Iterable, Mapping
from typing import Any

from confluent_kafka import OFFSET_INVALID, Consumer, KafkaError, KafkaException, Message, TopicPartition

from sfd_stream.errors import BrokerRefusedError, RefusedStateError
from sfd_stream.kafka.admin import Admin, GroupOffsets
from sfd_stream.kafka.assignment import Assignment, Failures, RebalanceListener
from sfd_stream.kafka.broker_health import Membership, Presence
from sfd_stream.kafka.commits import Commit, Commits, Committed
from sfd_stream.kafka.errors import Fault, Hooks, create, error_of, fault_of
from sfd_stream.kafka.properties import assigns_incrementally, consumer_properties
from sfd_stream.kafka.records import LeftoverRecords, PartitionBatch, Start, split

BATCH_BYTES = 1 << 20
"""The most bytes of values that a poll hands out, unless one message is larger. Decoding a list takes up to 50 times
its bytes, so this bounds the memory that decoding takes."""

AIMED_BYTES = BATCH_BYTES * 7 // 8
"""The bytes that a poll asks the client for, by the mean size of the last records. Without a margin to BATCH_BYTES
every other batch would leave a few records behind, which the next poll hands out alone."""


TOPIC_ID_S = 5.0

_METADATA_MAGIC = b"CGMDv2:"
"""How librdkafka's group metadata begins. Four bytes follow: the generation, -1 if there is no member. 0, while a
member joins, is refused by the coordinator like every other generation that is not the current one."""


class Source:
    """Call `poll` again and again, and `close` at the end. Times are in seconds, offsets are never negative."""

    def __init__(
        self,
        properties: Mapping[str, Any],
        topic: str,
        *,
        hooks: Hooks | None = None,
        clock: Callable[[], float] = time.monotonic,
        unknown_topic_s: float = 10.0,
        has_checkpoints: bool = True,
    ) -> None:
        """`has_checkpoints`: whether positions come from checkpoints, for the advice if one is outside the log."""
        hooks = hooks or Hooks()
        self.topic = topic
        self._has_checkpoints = has_checkpoints
        self._logger = hooks.logger
        self._clock = clock
        self._properties = consumer_properties(properties)
        self._incremental = assigns_incrementally(self._properties)
        self._failures = Failures()
        self._commits = Commits(clock)
        self._backlog = LeftoverRecords(BATCH_BYTES)
        self._closed = False
        self._records_at_once = 100
        callbacks = {"error_cb": self._on_error, "on_commit": self._on_commit}
        self._client_properties = {**self._properties, **hooks.as_properties(properties), **callbacks}
        self._consumer = create(Consumer, self._client_properties)
        self._admin = Admin(properties, hooks)
        self._first_topic_id: str | None = None
        self._group = GroupOffsets(properties, topic, hooks)
        self._presence = Presence(self._admin, topic, self._properties, clock, unknown_topic_s)
        self._membership = Membership(clock)
        self._assignment = Assignment(
            self._consumer,
            topic,
            self._failures,
            incremental=self._incremental,
            on_given=self._presence.answered,
            on_gone=self._forget,
        )

    def subscribe(self, listener: RebalanceListener) -> None:
        """Joins the group. From now on `poll` reads, and calls the listener at rebalances."""
        self._assignment.listener = listener
        self._assignment.subscribe()

    def __repr__(self) -> str:
        group = self._properties["group.id"]
        return f"Source({self.topic!r}, group {group!r}, partitions {sorted(self.assigned)})"

    # Reading

    def poll(self, max_records: int, timeout_s: float) -> list[PartitionBatch]:
        """Up to `max_records` records, fewer if they are large. Waits up to `timeout_s` for that many.

        The listener is called in here. The client knows no limit in bytes: records beyond BATCH_BYTES wait for later
        polls, which then ask the client for one record only, to keep the membership alive.
        """
        self._check()
        self._renew_if_outside()
        self._assignment.before_poll()
        if self._backlog.partitions - self._assignment.paused:
            messages = self._consumer.consume(1, 0.0)
        else:
            messages = self._consumer.consume(min(max_records, self._records_at_once), timeout_s)
        self._send_commits()
        self._failures.raise_first()
        if self._assignment.must_rejoin:
            self._assignment.must_rejoin = False
            self.rejoin()
        if any(map(Message.error, messages)):  # in C; an error compared with None would raise
            self._see([message for message in messages if message.error() is not None])
            messages = [message for message in messages if message.error() is None]
        if messages:
            self._presence.answered()
        else:
            self._failures.keep(self._presence.probe())
            self._failures.raise_first()
        batches = split(messages, self._assignment.readable())
        batches = self._backlog.bounded(batches, self._assignment.paused)
        if batches:
            mean_bytes = sum(batch.size_bytes for batch in batches) / sum(map(len, batches))
            self._records_at_once = max(int(AIMED_BYTES / max(mean_bytes, 1)), 1)
        return [self._advance(batch) for batch in batches]

    def _advance(self, batch: PartitionBatch) -> PartitionBatch:
        positions = self._assignment.positions
        assert batch.first_offset >= positions[batch.partition], "a partition's records went back"
        positions[batch.partition] = batch.next_offset
        self._assignment.leader_epochs[batch.partition] = batch.leader_epoch
        return batch

    def _forget(self, partition: int) -> None:
        self._commits.forget(partition)
        self._backlog.forget(partition)

    def begin(self, partition: int, start: Start) -> None:
        """Starts to read a partition that was held."""
        if not self._incremental:
            self._backlog.clear()  # an eager client assigns all partitions again, each after its last record handed out
        self._assignment.begin(partition, start)

    def put_back(self, batch: PartitionBatch) -> None:
        """Takes back the last batch of a partition and pauses it; polls after `resume` hand the records out again."""
        self._backlog.put_back(batch)
        self._assignment.positions[batch.partition] = batch.first_offset
        self.pause([batch.partition])

    def pause(self, partitions: Collection[int]) -> None:
        self._assignment.pause(partitions)

    def resume(self, partitions: Collection[int]) -> None:
        self._assignment.resume(partitions)

    def pause_only(self, wanted: Collection[int]) -> None:
        self._assignment.pause_only(set(wanted))

    @property
    def assigned(self) -> frozenset[int]:
        return self._assignment.all

    @property
    def paused(self) -> frozenset[int]:
        return frozenset(self._assignment.paused)

    def rejoin(self) -> None:
        """For a fenced owner: releases all partitions and joins the group again. The next poll calls on_revoke. A
        classic client keeps its member id meanwhile; a client of KIP-848 keeps it for life.
        """
        self._check()
        self._consumer.unsubscribe()
        self._assignment.subscribe()

    @property
    def outside_s(self) -> float | None:
        """How long the client has been outside its group although a broker answers; None for a member."""
        return self._membership.outside_s

    def _renew_if_outside(self) -> None:
        """Replaces a client that stays outside its group. The old one closes in the background, its callbacks ignored.

        The partitions that it still has are lost: it cannot reach the group any more.
        """
        if not self._membership.is_overdue(self._is_inside):
            return
        self._logger.warning(
            "outside the consumer group for %.0f s, replacing the Kafka client (its last error: %s)",
            self.outside_s,
            self.outage_words or "none",
        )
        self._assignment.lose(self._assignment.all)
        threading.Thread(target=self._consumer.close, name="kafka-close", daemon=True).start()
        self._consumer = self._assignment.consumer = create(Consumer, self._client_properties)
        self._assignment.subscribe()

    def _is_inside(self) -> bool:
        """True also while no broker answers: then the client is not at fault."""
        if self.unavailable_s is not None:
            return True
        return self.is_connected() and (bool(self.assigned) or self._membership_of(self.member_id()) is not None)

    # Commits

    def commit(self, offsets: Mapping[int, int], metadata: str = "") -> None:
        """Sends the offsets without waiting. The newest one waits while a partition's last commit has no answer.

        Within on_revoke offsets are sent at once, before the partitions are released.
        """
        for partition in offsets.keys() & self.assigned:
            self._commits.want(partition, Commit(offsets[partition], metadata))
        self._send_commits()

    def _send_commits(self) -> None:
        ready = self._commits.take_ready(self._assignment.leaving)
        if not ready:
            return
        where = [TopicPartition(self.topic, p, *ready[p]) for p in sorted(ready)]
        try:
            self._consumer.commit(offsets=where, asynchronous=True)
        except KafkaException as exception:
            self._on_commit(error_of(exception), where)

    @property
    def acknowledged_commits(self) -> Mapping[int, Commit]:
        """By partition: the newest offset that `commit` sent, if the broker has acknowledged it."""
        return self._commits.acknowledged

    def renew_commits(self, asked: Mapping[int, Commit], found: Mapping[int, Committed | None]) -> list[int]:
        """Commits again what the group has lost since it was acknowledged. Returns the partitions."""
        return self._commits.renew(asked, found)

    def note_commit(self, partition: int, next_offset: int) -> None:
        """Notes an offset that a transaction has committed."""
        if partition in self.assigned:
            self._commits.last[partition] = next_offset

    @property
    def last_committed(self) -> Mapping[int, int]:
        """By partition: the last offset that the broker acknowledged since the partition was assigned."""
        return self._commits.last

    def _on_commit(self, error: KafkaError | None, offsets: list[TopicPartition]) -> None:
        for tp in offsets:
            if failed := error or tp.error:
                self._logger.debug("commit of offset %s of %s/%s failed: %s", tp.offset, tp.topic, tp.partition, failed)
        self._commits.finish(error, offsets, self.assigned)

    # Questions about the topic, the group and the cluster. Any thread may ask; TimeoutError when the time is up.

    def committed(self, partitions: Collection[int], timeout_s: float) -> dict[int, Committed | None]:
        """The group's committed offsets, once no transaction on them is open; None where nothing is committed."""
        return self._group.committed(partitions, timeout_s)

    def first_offsets(self, partitions: Collection[int], timeout_s: float) -> dict[int, int]:
        """Where the logs begin."""
        return self._admin.first_offsets(self.topic, partitions, timeout_s)

    def watermarks(self, partition: int, timeout_s: float) -> tuple[int, int]:
        """The first offset in the log and the one after the last committed record."""
        return self._admin.watermarks(self.topic, partition, timeout_s)

    def end_offsets(self, partitions: Collection[int], timeout_s: float) -> dict[int, int]:
        """Like `watermarks`, for many partitions at once."""
        return self._admin.end_offsets(self.topic, partitions, timeout_s)

    def partition_count(self, timeout_s: float) -> int:
        return self._admin.partition_count(self.topic, timeout_s)

    def cluster_id(self, timeout_s: float) -> str:
        return self._admin.cluster_of(self.topic, timeout_s)

    def topic_id(self, timeout_s: float) -> str | None:
        """The topic's id, asked each time: a recreated topic has another one. None on the built-in broker."""
        found = self._admin.topic_id(self.topic, timeout_s)
        self._first_topic_id = self._first_topic_id or found
        return found

    # Known already, to the thread that owns the source

    @property
    def positions(self) -> dict[int, int]:
        """The next offset to read of each partition that is read."""
        return dict(self._assignment.positions)

    def position(self, partition: int) -> int:
        """The next offset to read. It passes control records, which are never handed out, so the end of the log is
        reached by it. It does not pass records that wait to be handed out.
        """
        if partition in self._backlog:
            return self._assignment.positions[partition]
        (found,) = self._consumer.position(self._assignment.where([partition]))
        handed_out = self._assignment.positions[partition]
        return handed_out if found.offset == OFFSET_INVALID else max(found.offset, handed_out)

    def known_end(self, partition: int) -> int | None:
        """The end offset of the last fetch; None before the first one."""
        (where,) = self._assignment.where([partition])
        _, end = self._consumer.get_watermark_offsets(where, cached=True)
        return end if end >= 0 else None

    def known_lag(self) -> int | None:
        """Records between the positions and the end offsets of the last fetches; None before the first fetch."""
        ends = {partition: self.known_end(partition) for partition in self._assignment.positions}
        known = [max(end - self._assignment.positions[p], 0) for p, end in ends.items() if end is not None]
        return sum(known) if ends and len(known) == len(ends) else None

    def membership(self) -> bytes | None:
        """Our member id and generation, for the offsets of a transaction. None while the client is no member, and after
        its member id changed until the group has assigned partitions to the new id.

        A membership that is blank or has no generation must never be used: the coordinator of a group without members
        takes it for an administrator's, and checks nothing.
        """
        return self._membership_of(self._assignment.member)

    def _membership_of(self, member: str) -> bytes | None:
        found = self._consumer.consumer_group_metadata()
        return found if member and member.encode() in found and _generation(found) >= 0 else None

    def member_id(self) -> str:
        return self._assignment.member_id()

    def has_nothing(self) -> bool:
        """Whether we are a member of the group without a partition: KIP-848's client reports nothing in that case."""
        if self._properties.get("group.protocol") != "consumer" or self._assignment.all:
            return False
        return _generation(self._consumer.consumer_group_metadata()) > 0

    def is_connected(self) -> bool:
        """Whether the client has a connection to any broker. Does not wait: the request times out at once."""
        try:
            self._consumer.list_topics(self.topic, timeout=0)
        except KafkaException as exception:
            return error_of(exception).code() != KafkaError._TRANSPORT
        return True

    # Faults

    @property
    def unavailable_s(self) -> float | None:
        """How long no broker has answered; None while one answers."""
        return self._presence.unavailable_s

    def check_available(self, give_up_s: float) -> None:
        """Raises BrokerRefusedError once no broker has answered for this long."""
        if self.unavailable_s is not None and self.unavailable_s > give_up_s:
            raise BrokerRefusedError(f"no broker has answered for {self.unavailable_s:.0f} s ({self.outage_words})")

    @property
    def outage_words(self) -> str:
        """The client's last error about an unavailable broker."""
        return self._presence.words

    def _on_error(self, error: KafkaError) -> None:
        """The client's error callback. It never raises, since the client calls it."""
        self._failures.keep(self._presence.note(error))

    def _see(self, events: Iterable[Message[Any, Any]]) -> None:
        for event in events:
            error = event.error()
            assert error is not None
            fault = fault_of(error)
            if fault is Fault.OUTSIDE_LOG:
                partition = event.partition()
                if partition is None or not self._assignment.stayed(partition):
                    continue  # the error is about an old position: the present owner has its own
                if self._went_on(partition):
                    self._logger.warning("another worker owns %s/%s now, rejoining the group", self.topic, partition)
                    self._assignment.lose({partition})
                    self.rejoin()
                else:
                    self._failures.keep(self._outside_log(partition, error))
            elif fault is Fault.EXPELLED:
                self._logger.warning("max.poll.interval.ms exceeded, partitions of %s lost", self.topic)
                self._assignment.expel()
            else:
                self._on_error(error)
        self._failures.raise_first()

    def _went_on(self, partition: int) -> bool:
        """Whether the group has committed more than was read here: then the partition is another worker's by now.

        A worker that was paused for longer than its session may ask for removed records before it learns of the loss.
        """
        try:
            committed = self.committed([partition], TOPIC_ID_S)[partition]
        except (BrokerRefusedError, TimeoutError):
            return False
        return committed is not None and committed.offset > self._assignment.positions[partition]

    def _outside_log(self, partition: int, error: KafkaError) -> RefusedStateError:
        place, before = f"{self.topic}/{partition}", self._first_topic_id
        gone = f"offset {self._assignment.positions.get(partition)} of {place} is not in the log ({error.str()})"
        if not self._has_checkpoints:
            return RefusedStateError(
                f"{gone}: its records were removed before they were read; start the worker again: it continues at the"
                " first record that exists"
            )
        try:
            topic_id = self._admin.topic_id(self.topic, TOPIC_ID_S) if before is not None else None
        except (BrokerRefusedError, TimeoutError) as failure:
            return RefusedStateError(
                f"{gone}, and it is not known whether the topic is still the same ({failure}); start the worker again:"
                " it names the command to run"
            )
        if topic_id != before:
            return RefusedStateError(
                f"topic {self.topic} was deleted and created again: the checkpoint of {place} is of topic id {before}, "
                f'the topic\'s is {topic_id}; run "sfd-stream checkpoint reset {place} --to earliest"'
            )
        return RefusedStateError(
            f"{gone}: retention or truncation took rows that were not read; continue without them by"
            f' "sfd-stream checkpoint reset {place} --to earliest --keep-sketch"'
        )

    def _check(self) -> None:
        assert not self._closed, "the source is closed"
        self._failures.raise_first()

    # The end

    def close(self, timeout_s: float) -> bool:
        """Releases all partitions (on_revoke is called), waits for commits, leaves the group. Returns whether in time.

        Raises what on_revoke raised. If the client's own close hangs, it is left to a thread that does not keep the
        process alive.
        """
        if self._closed:
            return True
        deadline = self._clock() + timeout_s
        before, self._assignment.closing = self._failures.first, True
        with self._failures.kept():
            self._consumer.unsubscribe()
        while (self.assigned or self._commits.pending) and self._clock() < deadline and self._failures.first is None:
            self._consumer.consume(1, 0.05)
            self._send_commits()
        self._closed = True
        closing = threading.Thread(target=self._consumer.close, name="kafka-close", daemon=True)
        closing.start()
        closing.join(max(deadline - self._clock(), 0.1))
        if before is None:
            self._failures.raise_first()
        return not closing.is_alive()


def _generation(membership: bytes) -> int:
    """The generation; 0 if it is not known."""
    found = membership.removeprefix(_METADATA_MAGIC)[:4] if membership.startswith(_METADATA_MAGIC) else b""
    return int.from_bytes(found, "little", signed=True)
