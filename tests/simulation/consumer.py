"""confluent_kafka.Consumer, as far as the package uses it, with the habits of librdkafka that were seen."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from confluent_kafka import (
    OFFSET_BEGINNING,
    OFFSET_END,
    OFFSET_INVALID,
    KafkaError,
    KafkaException,
    Message,
    TopicPartition,
)

from tests.simulation.clients import blocking, error, failed, failure, process, world
from tests.simulation.groups import ILLEGAL, LOADING, OK, Group
from tests.simulation.membership import Membership
from tests.simulation.network import Connection
from tests.simulation.primitives import _Waiters
from tests.simulation.scheduler import active

COMMIT_TRIES = 6
FETCH_MOST = 16
QUEUED_MOST = 64


@dataclass
class Toppar:
    """A partition as the client knows it. It outlives its assignment, and so does its pause."""

    topic: str
    number: int
    assigned: bool = False
    paused: bool = False
    version: int = 0
    """Raised whenever what was fetched so far must not be handed out."""
    fetch_offset: int = 0
    next_offset: int = 0
    """Of what is handed out next."""
    position: int = OFFSET_INVALID
    fetching: bool = False
    queued: int = 0
    end: int = OFFSET_INVALID
    eof_at: int = OFFSET_INVALID
    leader_epoch: int | None = None
    """Of what was read last: the broker is asked whether it still holds that (KIP-320)."""


class Consumer:
    def __init__(self, properties: dict[str, Any]) -> None:
        self.world = world()
        self.process = process()
        self.who = self.process.name
        session_ms = self.world.session_s * 1000 if self.world.kip_848 else 45_000
        self.session_s = float(properties.get("session.timeout.ms", session_ms)) / 1000
        self.heartbeat_s = min(float(properties.get("heartbeat.interval.ms", 3000)) / 1000, self.session_s / 3)
        self.max_poll_s = float(properties.get("max.poll.interval.ms", 300_000)) / 1000
        self._properties = properties
        self._coordinator = Connection(self.process, "coordinator")
        self._leader = Connection(self.process, "leader")
        self._toppars: dict[tuple[str, int], Toppar] = {}
        self._queue: deque[Any] = deque()
        self._waiters = _Waiters()
        self._closed = False
        self._lost_brokers = False
        self._polling = False
        self._polled_s = active().now
        self._group: Group = self.world.group(str(properties["group.id"]))
        self._membership = Membership(self, self._group, self._coordinator, self.world.draws_silent_loss)
        self._error_cb: Callable[[KafkaError], None] | None = properties.get("error_cb")
        self._on_commit: Callable[..., None] | None = properties.get("on_commit")
        self._eof = bool(properties.get("enable.partition.eof", False))
        self.world.network.on_unreachable(self.process, self._unreachable)
        self.world.consumers.append(self)

    # For the membership

    def note(self, what: str) -> None:
        self.world.history.note(self.who, what)

    def later(self, delay_s: float, call: Callable[[], None]) -> None:
        active().call_later(delay_s, lambda: None if self._closed else call(), self.process)

    def enqueue(self, op: Any) -> None:
        self._queue.append(op)
        self._waiters.wake_all()

    def rebalance(self, callback: Any, partitions: list[int], *, assigns: bool) -> None:
        """Runs the application's callback in the task that polls."""
        self._answered = False
        topic = self._membership.topic
        callback(self, [TopicPartition(topic, partition) for partition in partitions])
        self.world.on_rebalanced(self.process, partitions, assigns)
        if not self._answered:
            active().fail(AssertionError("a rebalance callback returned without assigning: default offsets are read"))

    def _unreachable(self) -> None:
        if self._error_cb is not None and not self._closed:
            callback = self._error_cb
            self.enqueue(lambda: callback(error(KafkaError._ALL_BROKERS_DOWN, "all brokers are down")))

    def lose_brokers(self) -> None:
        """It gets no records any more, and reports no error (librdkafka's issue 5301). A new client does."""
        self.note("loses its brokers")
        self._lost_brokers = True
        for toppar in self._toppars.values():
            toppar.version += 1  # what is on its way does not arrive

    @property
    def in_group(self) -> bool:
        return self._membership.subscribed

    # Groups

    def subscribe(self, topics: list[str], on_assign: Any = None, on_revoke: Any = None, on_lost: Any = None) -> None:
        self._check()
        self._membership.subscribe(topics[0], on_assign, on_revoke, on_lost)
        self._watch_polls()

    def unsubscribe(self) -> None:
        self._check()
        active().point()
        self._membership.unsubscribe()

    def memberid(self) -> str:
        return self._membership.id

    def list_topics(self, topic: str, timeout: float) -> None:
        """Asked without waiting: the real client says whether it is connected, and answers nothing."""
        raise KafkaException(KafkaError(KafkaError._TIMED_OUT))

    def consumer_group_metadata(self) -> bytes:
        generation = self._membership.generation.to_bytes(4, "little", signed=True)
        return b"CGMDv2:" + generation + f"{self._properties['group.id']}\0{self.memberid()}\0".encode()

    def _watch_polls(self) -> None:
        def look() -> None:
            if not self._membership.subscribed:
                return
            late_s = 0.0 if self._polling else active().now - self._polled_s
            if late_s >= self.max_poll_s and self._membership.member_id is not None:
                self.note("exceeds max.poll.interval.ms")
                self.enqueue(Message(topic=self._membership.topic, error=error(KafkaError._MAX_POLL_EXCEEDED)))
                self._membership.leave()
                self._membership.lose()
            self.later(max(self.max_poll_s - late_s, 1.0), look)

        self.later(self.max_poll_s, look)

    # Reading

    def consume(self, num_messages: int = 1, timeout: float = -1) -> list[Message]:
        self._check()
        scheduler = active()
        scheduler.point()
        self._polling = True
        deadline = scheduler.now + timeout if timeout >= 0 else float("inf")
        found: list[Message] = []
        while len(found) < num_messages:
            if self._queue:
                self._serve(found)
            elif scheduler.now >= deadline:
                break
            else:
                self._waiters.wait(min(deadline - scheduler.now, 1e6))
        self._polling, self._polled_s = False, scheduler.now
        scheduler.point()
        return found

    def poll(self, timeout: float = -1) -> Message | None:
        found = self.consume(1, timeout)
        return found[0] if found else None

    def _serve(self, found: list[Message]) -> None:
        op = self._queue.popleft()
        if callable(op):
            op()
            return
        if isinstance(op, Message):
            found.append(op)
            return
        toppar, version, message, next_offset = op
        if version != toppar.version:
            return
        if message is not None:
            toppar.queued -= message.error() is None
            found.append(message)
        if next_offset is not None:
            toppar.position = toppar.next_offset = next_offset
        self._fetch(toppar)

    def _fetch(self, toppar: Toppar) -> None:
        if not toppar.assigned or toppar.paused or toppar.fetching or toppar.queued >= QUEUED_MOST:
            return
        if self._closed or self._lost_brokers:
            return
        toppar.fetching = True
        version, offset, most = toppar.version, toppar.fetch_offset, self.world.draws_fetch(FETCH_MOST)
        epoch = toppar.leader_epoch

        def apply(reply: Any) -> None:
            log = self.world.broker.log(toppar.topic, toppar.number)
            away_s = self.world.broker.leaderless_s(toppar.topic)
            if away_s > 0:
                active().call_later(away_s, lambda: apply(reply) if version == toppar.version else None)
                return
            if log is None:
                reply((KafkaError.UNKNOWN_TOPIC_OR_PART, [], offset, 0))
                return
            start = log.start if offset == OFFSET_BEGINNING else log.stable_end if offset == OFFSET_END else offset
            if start < log.start or start > log.end or log.has_lost(start, epoch):
                reply((KafkaError.OFFSET_OUT_OF_RANGE, [], log.start, 0))
            elif start < log.stable_end or (self._eof and toppar.eof_at != start):
                reply((None, *log.fetch(start, most), log.stable_end))
            else:
                log.when_changed(lambda: apply(reply) if version == toppar.version else None)

        def answered(answer: Any) -> None:
            if version == toppar.version:
                toppar.fetching = False
                self._fetched(toppar, *answer)

        self.world.network.send(self._leader, apply, answered)

    def _fetched(self, toppar: Toppar, code: int | None, records: list[Any], next_offset: int, end: int) -> None:
        place = {"topic": toppar.topic, "partition": toppar.number}
        if code == KafkaError.OFFSET_OUT_OF_RANGE:
            if self._properties.get("auto.offset.reset") == "error":
                self.enqueue(Message(**place, error=error(KafkaError._AUTO_OFFSET_RESET, "no such offset")))
                return
            toppar.fetch_offset = toppar.next_offset = next_offset
            self._fetch(toppar)
            return
        if code is not None:
            self.enqueue(Message(**place, error=error(code, "unknown topic")))
            self.later(1.0, lambda: self._fetch(toppar))
            return
        for record in records:
            message = Message(
                **place,
                offset=record.offset,
                key=record.key,
                value=record.value,
                headers=list(record.headers),
                timestamp=(1, record.timestamp_ms),
                leader_epoch=record.leader_epoch,
            )
            self._queue.append((toppar, toppar.version, message, record.offset + 1))
        toppar.queued += len(records)
        toppar.fetch_offset, toppar.end = next_offset, end
        toppar.leader_epoch = records[-1].leader_epoch if records else toppar.leader_epoch
        if not records or records[-1].offset + 1 < next_offset:  # control records are passed without a message
            self._queue.append((toppar, toppar.version, None, next_offset))
        if self._eof and next_offset == end and toppar.eof_at != end:
            toppar.eof_at = end
            event = Message(**place, offset=end, error=error(KafkaError._PARTITION_EOF))
            self._queue.append((toppar, toppar.version, event, None))
        self._waiters.wake_all()
        self._fetch(toppar)

    # Assigning and pausing

    def _toppar(self, place: TopicPartition) -> Toppar:
        return self._toppars.setdefault((place.topic, place.partition), Toppar(place.topic, place.partition))

    def assignment(self) -> list[TopicPartition]:
        return [TopicPartition(each.topic, each.number) for each in self._toppars.values() if each.assigned]

    def stuck(self) -> list[str]:
        """For reports: partitions that are assigned and paused."""
        held = [each for each in self._toppars.values() if each.assigned and each.paused and self.process.alive]
        return [f"{self.who} has {each.topic}/{each.number} assigned and paused" for each in held]

    def incremental_assign(self, places: list[TopicPartition]) -> None:
        self._check()
        active().point()
        self._answered = True
        if any(self._toppar(place).assigned for place in places):
            raise failure(KafkaError._CONFLICT, "partition is already assigned")
        for place in places:
            self._start(self._toppar(place), place.offset, place.leader_epoch)

    def incremental_unassign(self, places: list[TopicPartition]) -> None:
        self._check()
        active().point()
        self._answered = True
        if not all(self._toppar(place).assigned for place in places):
            raise failure(KafkaError._INVALID_ARG, "partition is not assigned")
        for place in places:
            self._stop(self._toppar(place))

    def assign(self, places: list[TopicPartition]) -> None:
        self.unassign()
        for place in places:
            self._start(self._toppar(place), place.offset, place.leader_epoch)

    def unassign(self) -> None:
        self._check()
        active().point()
        self._answered = True
        for toppar in self._toppars.values():
            if toppar.assigned:
                self._stop(toppar)

    def _start(self, toppar: Toppar, offset: int, leader_epoch: int | None) -> None:
        self._outdate(toppar)
        toppar.leader_epoch = leader_epoch
        toppar.assigned, toppar.position = True, OFFSET_INVALID
        toppar.fetch_offset = toppar.next_offset = offset
        toppar.eof_at = toppar.end = OFFSET_INVALID
        self.note(f"reads {toppar.topic}/{toppar.number} from {offset}{' (paused)' if toppar.paused else ''}")
        self._fetch(toppar)

    def _stop(self, toppar: Toppar) -> None:
        self._outdate(toppar)
        toppar.assigned = False

    def _outdate(self, toppar: Toppar) -> None:
        toppar.version += 1
        toppar.fetching, toppar.queued = False, 0

    def pause(self, places: list[TopicPartition]) -> None:
        self._check()
        for place in places:
            toppar = self._toppar(place)
            if not toppar.paused:
                toppar.paused = True
                self._outdate(toppar)
                toppar.fetch_offset = toppar.next_offset
        if places:
            self.note(f"pauses {[place.partition for place in places]}")

    def resume(self, places: list[TopicPartition]) -> None:
        self._check()
        for place in places:
            toppar = self._toppar(place)
            toppar.paused = False
            self._fetch(toppar)
        if places:
            self.note(f"resumes {[place.partition for place in places]}")

    def position(self, places: list[TopicPartition]) -> list[TopicPartition]:
        self._check()
        return [TopicPartition(place.topic, place.partition, self._toppar(place).position) for place in places]

    def get_watermark_offsets(
        self, place: TopicPartition, timeout: float = -1, cached: bool = False
    ) -> tuple[int, int]:
        if cached:
            return (0, self._toppar(place).end)

        def apply(reply: Any) -> None:
            log, away_s = (
                self.world.broker.log(place.topic, place.partition),
                self.world.broker.leaderless_s(place.topic),
            )
            if away_s > 0:
                active().call_later(away_s, lambda: apply(reply))
            else:
                reply(None if log is None else (log.start, log.stable_end))

        found = blocking(self._leader, apply, timeout)
        if found is None:
            raise failure(KafkaError._UNKNOWN_PARTITION)
        return found  # type: ignore[no-any-return]

    # Commits

    def commit(self, offsets: list[TopicPartition], asynchronous: bool = True) -> None:
        self._check()
        assert asynchronous, "the package commits without waiting"
        active().point()
        who = self._membership
        member_id, generation = who.member_id or "", who.generation
        wanted = [((each.topic, each.partition), each.offset, each.metadata or "") for each in offsets]
        tries = 0
        self.note(f"commits { {place[1]: offset for place, offset, _ in wanted} }")

        def send() -> None:
            apply: Any = lambda reply: reply(self._group.commit(member_id, generation, wanted))  # noqa: E731
            self.world.network.send(self._coordinator, apply, answered)

        def answered(status: str) -> None:
            nonlocal tries
            tries += 1
            if status == LOADING and tries < COMMIT_TRIES:  # to a back-off queue: later commits do not wait for it
                self.later(self.world.draws_backoff(), send)
                return
            codes = {OK: None, LOADING: KafkaError.COORDINATOR_LOAD_IN_PROGRESS, ILLEGAL: KafkaError.ILLEGAL_GENERATION}
            code = codes.get(status, KafkaError.UNKNOWN_MEMBER_ID)
            why = None if code is None else error(code)
            places = offsets if why is None else [failed(each, why) for each in offsets]
            if self._on_commit is not None:
                callback = self._on_commit
                self.enqueue(lambda: callback(why, places))

        send()

    def committed(self, places: list[TopicPartition], timeout: float = -1) -> list[TopicPartition]:
        self._check()
        asked = [(place.topic, place.partition) for place in places]
        stable = self._properties.get("isolation.level", "read_committed") == "read_committed"
        found = committed_of(self._group, self._coordinator, asked, timeout, stable=stable)
        return [TopicPartition(t, p, OFFSET_INVALID) if c is None else TopicPartition(t, p, c.offset, c.metadata)
                for (t, p), c in zip(asked, found, strict=True)]  # fmt: skip

    # The end

    def close(self) -> None:
        if self._closed:
            raise RuntimeError("Consumer closed")
        active().point()
        self._membership.unsubscribe()
        found: list[Message] = []
        deadline = active().now + 30.0
        while not self._membership.idle and active().now < deadline:
            if self._queue:
                self._serve(found)
            else:
                self._waiters.wait(0.1)
        self._closed = True
        for toppar in self._toppars.values():
            self._stop(toppar)

    def _check(self) -> None:
        if self._closed:
            raise RuntimeError("Consumer closed")


def committed_of(
    group: Group, connection: Connection, places: list[tuple[str, int]], timeout_s: float, *, stable: bool
) -> list[Any]:
    """What the group has committed. `stable`: not answered while a transaction on it is open."""

    def apply(reply: Any) -> None:
        open_ = [place for place in places if place in group.pending] if stable else []
        if open_ or active().now < group.loading_until:
            active().call_later(0.1, lambda: apply(reply))
        else:
            reply([group.offsets.get(place) for place in places])

    return blocking(connection, apply, timeout_s)  # type: ignore[no-any-return]
