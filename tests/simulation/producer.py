"""confluent_kafka.Producer, as far as the package uses it: idempotent, in order, with transactions."""

from __future__ import annotations

import zlib
from collections import deque
from collections.abc import Callable
from typing import Any

from confluent_kafka import KafkaError, Message, TopicPartition

from tests.simulation.clients import error, failure, process, world
from tests.simulation.network import TRANSACTIONS, Connection
from tests.simulation.primitives import _Waiters
from tests.simulation.scheduler import active

QUEUE_MOST = 1000


class _Sent:
    """A message between `produce` and its delivery report."""

    def __init__(self, topic: str, partition: int, value: Any, key: Any, headers: Any, report: Any) -> None:
        self.topic, self.partition = topic, partition
        self.value, self.key, self.headers = value, key, tuple(headers or ())
        self.report = report
        self.offset: int | None = None
        self.done = False


class Producer:
    def __init__(self, properties: dict[str, Any]) -> None:
        self.world = world()
        self.process = process()
        self._transactional_id: str | None = properties.get("transactional.id")
        self._timeout_s = (
            float(properties.get("message.timeout.ms", properties.get("delivery.timeout.ms", 300_000))) / 1000
        )
        self._transaction_s = float(properties.get("transaction.timeout.ms", 60_000)) / 1000
        self._error_cb: Callable[[KafkaError], None] | None = properties.get("error_cb")
        self._connection = Connection(self.process, "producer", self._lost)
        self._coordinator = Connection(self.process, TRANSACTIONS, self._lost)
        self._open: list[_Sent] = []
        self._queue: deque[Callable[[], None]] = deque()
        self._waiters = _Waiters()
        self._epoch = -1
        self._asked: dict[str, list[Any]] = {}
        """Requests to the coordinator that are not answered yet: asked again, the same one goes on."""
        self._in_transaction = False
        self._fatal: KafkaError | None = None
        self._abortable: KafkaError | None = None
        self.world.network.on_unreachable(self.process, self._unreachable)

    def __len__(self) -> int:
        return len(self._open)

    def _unreachable(self) -> None:
        self._report(KafkaError._ALL_BROKERS_DOWN)

    def _lost(self) -> None:
        self._report(KafkaError._TRANSPORT)

    def _report(self, code: int) -> None:
        if self._error_cb is not None:
            callback = self._error_cb
            self._enqueue(lambda: callback(error(code)))

    def _enqueue(self, op: Callable[[], None]) -> None:
        self._queue.append(op)
        self._waiters.wake_all()

    # Messages

    def produce(
        self,
        topic: str,
        value: Any = None,
        key: Any = None,
        on_delivery: Any = None,
        timestamp: int = 0,
        headers: Any = None,
    ) -> None:
        """`timestamp` is 0, now, for all that workers send; a score has that of its record, which nobody reads here."""
        del timestamp
        active().point()
        if self._fatal is not None:
            raise failure(self._fatal.code(), fatal=True)
        if len(self._open) >= QUEUE_MOST:
            raise BufferError("queue full")
        self.world.on_produce(self.process, topic, key)
        found = self.world.broker.topics.get(topic)
        count = 1 if found is None else len(found.logs)
        partition = zlib.crc32(key or b"") % count
        sent = _Sent(topic, partition, value, key, headers, on_delivery)
        self._open.append(sent)
        self.world.network.send(
            self._connection, lambda reply: self._write(sent, reply), lambda a: self._finish(sent, *a)
        )
        active().call_later(self._timeout_s, lambda: self._finish(sent, KafkaError._MSG_TIMED_OUT, None), self.process)

    def _write(self, sent: _Sent, reply: Any) -> None:
        """At the broker. Sent again, it is written once."""
        away_s = self.world.broker.leaderless_s(sent.topic)
        if away_s > 0:
            if not sent.done and self.process.alive:
                active().call_later(away_s, lambda: self._write(sent, reply), self.process)
        elif sent.topic not in self.world.broker.topics:
            reply((KafkaError.UNKNOWN_TOPIC_OR_PART, None))
        elif sent.offset is not None:
            reply((None, sent.offset))
        elif sent.done:
            pass  # purged by the client before it was sent
        elif self._transactional_id is None:
            given = (sent.value, sent.key, sent.headers)
            sent.offset = self.world.broker.append(sent.topic, sent.partition, self.process.name, *given).offset
            reply((None, sent.offset))
        else:
            given = {"value": sent.value, "key": sent.key, "headers": sent.headers}
            where = (
                self._transactional_id,
                self._epoch,
                self.process.name,
                self._transaction_s,
                sent.topic,
                sent.partition,
            )
            code, sent.offset = self.world.coordinator.produce(*where, **given)
            reply((code, sent.offset))

    def _finish(self, sent: _Sent, code: int | None, offset: int | None) -> None:
        if sent.done:
            return
        sent.done = True
        if code == KafkaError._FENCED:
            self._fatal = error(code, fatal=True)
        why = None if code is None else error(code)
        place = {"topic": sent.topic, "partition": sent.partition}
        message = Message(**place, offset=-1001 if offset is None else offset, key=sent.key, value=sent.value)

        def report() -> None:
            self._open.remove(sent)
            if sent.report is not None:
                sent.report(why, message)

        self._enqueue(report)

    def poll(self, timeout: float = -1) -> int:
        active().point()
        if not self._queue and timeout > 0:
            self._waiters.wait(timeout)
        served = 0
        while self._queue:
            self._queue.popleft()()
            served += 1
        if self._fatal is not None and self._transactional_id is not None:
            raise failure(self._fatal.code(), fatal=True)
        return served

    def flush(self, timeout: float = -1) -> int:
        deadline = active().now + timeout if timeout >= 0 else float("inf")
        while self._open and active().now < deadline:
            if self._queue:
                self._queue.popleft()()
            else:
                self._waiters.wait(min(deadline - active().now, 60.0))
        return len(self._open)

    def purge(self) -> None:
        for sent in list(self._open):
            self._finish(sent, KafkaError._PURGE_QUEUE, None)

    # Transactions

    def init_transactions(self, timeout: float = -1) -> None:
        assert self._transactional_id is not None
        name = self._transactional_id
        self._epoch = self._ask("init", lambda reply: reply((None, self.world.coordinator.init(name))), timeout)

    def begin_transaction(self) -> None:
        if self._fatal is not None:
            raise failure(self._fatal.code(), fatal=True)
        if self._in_transaction:
            if self._abortable is not None:
                raise failure(self._abortable.code(), txn_requires_abort=True)
            raise failure(KafkaError._STATE)
        self._in_transaction, self._abortable = True, None

    def send_offsets_to_transaction(
        self, positions: list[TopicPartition], group_metadata: bytes, timeout: float = -1
    ) -> None:
        offsets = [((each.topic, each.partition), each.offset, each.metadata or "") for each in positions]
        generation = int.from_bytes(group_metadata[7:11], "little", signed=True)
        group, member_id, _ = group_metadata[11:].decode().split("\0")
        given = (self._transactional_id, self._epoch, self.process.name, self._transaction_s)

        def apply(reply: Any) -> None:
            found = self.world.group(group)
            reply((self.world.coordinator.send_offsets(*given, found, (member_id, generation), offsets), None))

        self._ask("offsets", apply, timeout)

    def commit_transaction(self, timeout: float = -1) -> None:
        self._end(True, timeout)

    def abort_transaction(self, timeout: float = -1) -> None:
        self._abortable = None
        self.purge()
        self._end(False, timeout)

    def _end(self, commit: bool, timeout_s: float) -> None:
        if self._abortable is not None and commit:
            raise failure(self._abortable.code(), txn_requires_abort=True)
        if commit and self.flush(timeout_s):
            raise failure(KafkaError._TIMED_OUT, retriable=True)
        name, epoch = self._transactional_id, self._epoch
        assert name is not None
        self._ask(
            f"end {commit}", lambda r: r((self.world.coordinator.end(name, epoch, commit=commit), None)), timeout_s
        )
        self._in_transaction = False

    def _ask(self, what: str, apply: Any, timeout_s: float) -> Any:
        """The same request goes on if it is asked again after a time-out."""
        active().point()
        if self._fatal is not None:
            raise failure(self._fatal.code(), fatal=True)
        if what not in self._asked:
            answers: list[Any] = []
            self._asked[what] = answers

            def answered(answer: Any) -> None:
                answers.append(answer)
                self._waiters.wake_all()

            self.world.network.send(self._coordinator, apply, answered)
        found = self._asked[what]
        deadline = active().now + timeout_s if timeout_s >= 0 else float("inf")
        while not found:
            if active().now >= deadline:
                raise failure(KafkaError._TIMED_OUT, retriable=True)
            self._waiters.wait(min(deadline - active().now, 60.0))
        del self._asked[what]
        code, result = found[0]
        if code == KafkaError._FENCED:
            self._fatal = error(code, fatal=True)
            raise failure(code, fatal=True)
        if code is not None:
            self._abortable = error(code, txn_requires_abort=True)
            raise failure(code, txn_requires_abort=True)
        active().point()
        return result
