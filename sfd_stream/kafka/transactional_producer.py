"""Messages and offsets in one transaction: a `read_committed` reader gets all of it, once, or nothing.

    offsets (the group's coordinator refuses who is no member of this generation) ──► messages ──► commit

The offsets go first: a zombie is refused before it has written anything. A transaction that did not succeed for certain
is aborted. If the abort is not certain either, a new producer of the same id is created: its first request makes the
coordinator finish or abort the old transaction. The next transaction also gets a new producer after a step that had to
be repeated, or after a lost connection (the client then repeats requests): the first request may still arrive, and
librdkafka has no KIP-890 (its issue 5423), by which the broker would know that it is not of the next transaction. The
epoch of the new producer keeps it out.

librdkafka's send_offsets_to_transaction ignores its time limit when the coordinator's connection breaks (its issue
5456), and blocks for ever. Each step therefore runs on a thread of its own. A step that is overdue is abandoned,
together with its thread and its producer. Calls block. One thread owns the sink.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Executor, Future, wait
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from confluent_kafka import KafkaError, KafkaException, Message, Producer, TopicPartition

from sfd_stream.errors import BrokerRefusedError
from sfd_stream.kafka.errors import Hooks, create, described, error_of, lasts, refusal
from sfd_stream.kafka.producer import TOO_LARGE, is_too_large
from sfd_stream.kafka.properties import producer_properties
from sfd_stream.threads import on_thread

TIMEOUT_MS = 10_000
"""Maximum time that a transaction is open. A killed worker's transaction delays the next owner by this time."""

DISCONNECTED = frozenset({KafkaError._TRANSPORT, KafkaError._TIMED_OUT, KafkaError._ALL_BROKERS_DOWN})
"""The codes by which the client reports a connection that the broker closed, or that it closed itself after silence."""

_TURN_S, _LOOK_S = 5.0, 0.1
_OVERDUE_S = 5.0
"""A step that takes this much longer than its time limit will not return."""


class Offset(NamedTuple):
    """Where reading resumes in a partition of the input; `metadata` comes back with the committed offset."""

    topic: str
    partition: int
    offset: int
    metadata: str


class Outgoing(NamedTuple):
    topic: str
    key: bytes | None
    value: bytes
    headers: tuple[tuple[str, bytes], ...] = ()
    timestamp_ms: int | None = None
    """None: the time at which it is sent."""


class NotCommittedError(Exception):
    """Nothing of the transaction is visible, now or later. If not `certain`, it may be visible: ask for the result."""

    def __init__(self, reason: str, *, certain: bool) -> None:
        super().__init__(reason)
        self.reason = reason
        self.certain = certain


class TransactionalSink:
    """`commit` runs one whole transaction. `give_up_s`: maximum time; after it the outcome is unknown.

    `batched` is for many small messages: a message that is too large may be refused together with others.
    """

    def __init__(
        self,
        properties: Mapping[str, Any],
        transactional_id: str,
        *,
        give_up_s: float,
        batched: bool = False,
        reach: Callable[[str], None] = lambda _: None,
        hooks: Hooks | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        own: dict[str, Any] = {"transactional.id": transactional_id}
        if not batched:
            own["batch.num.messages"] = 1
        times = {"transaction.timeout.ms": TIMEOUT_MS}
        if "delivery.timeout.ms" not in properties:  # the other name of the next one
            times["message.timeout.ms"] = int(properties.get("transaction.timeout.ms", TIMEOUT_MS))
        self._properties = {**times, **producer_properties(properties), **own}
        self._hooks = hooks or Hooks()
        self._reach = reach
        self._give_up_s = give_up_s
        self._clock = clock
        self._failure: BrokerRefusedError | None = None
        self._producer: Producer | None = self._make()  # created now: wrong settings are reported at once
        self._begun = False
        self._disconnected = False
        """Whether the producer has lost a connection since it was created."""

    def commit(self, offsets: Sequence[Offset], group: bytes, messages: Sequence[Outgoing]) -> None:
        """Commits all of it, or raises NotCommittedError; `group` is the consumer's own metadata.

        Raises BrokerRefusedError if trying again does not help.
        """
        try:
            self._transact(offsets, group, messages)
        except (NotCommittedError, BrokerRefusedError) as error:
            # Its frames refer to a producer that is not used again: with them it would live as long as the error.
            error.__context__ = None
            raise error.with_traceback(None) from None

    def _transact(self, offsets: Sequence[Offset], group: bytes, messages: Sequence[Outgoing]) -> None:
        deadline = self._clock() + self._give_up_s
        try:
            producer = self._ready(deadline)
            self._reach("before-transaction")
            producer.begin_transaction()
            where = [TopicPartition(o.topic, o.partition, o.offset, o.metadata) for o in offsets]
            repeated = self._insist(lambda left_s: producer.send_offsets_to_transaction(where, group, left_s), deadline)
            self._reach("after-offsets")
            self._send(producer, messages, deadline)
            self._reach("before-end")
            repeated = self._insist(producer.commit_transaction, deadline) or repeated
        except KafkaException as exception:
            raise self._not_committed(error_of(exception)) from None
        except NotCommittedError as error:
            raise NotCommittedError(error.reason, certain=self._abort()) from None
        if repeated or self._has_disconnected(producer):
            self._producer = None

    def close(self) -> None:
        """The coordinator aborts a transaction that is open, after its time limit."""
        self._producer = None

    def _ready(self, deadline: float) -> Producer:
        """A producer. The last transaction of the one before it is committed or aborted by then."""
        if self._producer is None:
            self._producer, self._begun, self._disconnected = self._make(), False, False
        if not self._begun:
            self._insist(self._producer.init_transactions, deadline)
            self._begun = True
        return self._producer

    def _make(self) -> Producer:
        callbacks = {"error_cb": self._on_error, **self._hooks.as_properties(self._properties)}
        return create(Producer, {**self._properties, **callbacks})

    def _send(self, producer: Producer, messages: Sequence[Outgoing], deadline: float) -> None:
        """Returns when each message is acknowledged. Reports come by `poll`: only it raises fatal errors cleanly."""
        failures: list[KafkaError] = []
        for message in messages:
            self._produce(producer, message, failures)
        while len(producer) and not failures and self._clock() < deadline:
            producer.poll(_LOOK_S)
        if not failures:
            return
        failure = self._cause(producer, failures[0])
        if lasts(failure):
            self._failure = self._failure or refusal(failure, self._properties)
        words = TOO_LARGE if is_too_large(failure) else described(failure, self._properties)
        raise NotCommittedError(words, certain=False)

    def _produce(self, producer: Producer, message: Outgoing, failures: list[KafkaError]) -> None:
        def report(error: KafkaError | None, _: Message[Any, Any]) -> None:
            if error is not None:
                failures.append(error)

        headers: list[tuple[str, str | bytes | None]] = list(message.headers)
        while not failures:
            try:
                producer.produce(
                    message.topic,
                    message.value,
                    message.key,
                    on_delivery=report,
                    timestamp=message.timestamp_ms or 0,
                    headers=headers,
                )
            except BufferError:
                producer.poll(_LOOK_S)
            except KafkaException as exception:
                failures.append(error_of(exception))
            else:
                return

    def _cause(self, producer: Producer, error: KafkaError) -> KafkaError:
        """The first error of the open transaction. What the client reports of messages may only follow from it: purged,
        or in one batch with a record that the broker refused.
        """
        try:
            producer.begin_transaction()  # raises the error of the open one, or _STATE if that has none
        except KafkaException as exception:
            first = error_of(exception)
            return error if first.code() == KafkaError._STATE else first
        return error

    def _insist(self, step: Callable[[float], Any], deadline: float) -> bool:
        """Repeats a step that timed out or failed temporarily, as librdkafka allows. Returns whether it did."""
        repeated = False
        while True:
            try:
                self._bounded(step)
            except KafkaException as exception:
                if not error_of(exception).retriable() or self._clock() >= deadline:
                    raise
                repeated = True
            else:
                return repeated

    def _bounded(self, step: Callable[[float], Any]) -> None:
        """Raises NotCommittedError if the step is overdue. Its thread keeps its producer; the next one fences it."""
        done = on_thread("transaction-step", step, _TURN_S)
        if not wait([done], _TURN_S + _OVERDUE_S).done:
            self._producer = None
            raise NotCommittedError(f"the client did not return within {_TURN_S + _OVERDUE_S:g} s", certain=False)
        try:
            done.result()
        finally:
            del done  # an error refers to this frame: a cycle that would keep the producer

    def _not_committed(self, error: KafkaError) -> Exception:
        certain = error.txn_requires_abort() and self._abort()
        self._producer = None
        if self._failure is not None:
            return self._failure
        if lasts(error):
            return refusal(error, self._properties)
        return NotCommittedError(described(error, self._properties), certain=certain)

    def _abort(self) -> bool:
        """Returns whether it is certain that nothing will be visible. The producer is not used again in any case: its
        abort may purge messages of the next transaction from its queues.
        """
        producer, self._producer = self._producer, None
        if producer is None:
            return False
        try:
            self._insist(producer.abort_transaction, self._clock() + TIMEOUT_MS / 1000)
        except (KafkaException, NotCommittedError):
            return False
        if self._failure is not None:
            raise self._failure
        return True

    def _has_disconnected(self, producer: Producer) -> bool:
        """Polls first: the client reports a lost connection before it repeats requests that had no answer."""
        try:
            producer.poll(0)
        except KafkaException:  # fenced after its commit
            return True
        return self._disconnected

    def _on_error(self, error: KafkaError) -> None:
        self._disconnected |= error.code() in DISCONNECTED
        if lasts(error):  # a fence or another fatal error only leads to a new producer
            self._failure = self._failure or refusal(error, self._properties)


@dataclass(frozen=True, eq=False)
class _Parcel:
    offset: Offset
    membership: bytes
    message: Outgoing | None
    done: Future[None] = field(default_factory=Future)


class SharedTransactions:
    """One transaction at a time, on a thread of its own. Offsets that wait at the same time share a transaction.

    The thread that owns it calls everything here.
    """

    def __init__(self, sink: TransactionalSink, executor: Executor, on_end: Callable[[Future[None]], None]) -> None:
        """`on_end` is called after each transaction, on its thread. `serve` may begin the next one then."""
        self._sink = sink
        self._executor = executor
        self._on_end = on_end
        self._waiting: list[_Parcel] = []
        self._last: Future[None] | None = None
        self._carried: set[int] = set()  # the partitions of the transaction that was begun last

    def send(self, offset: Offset, membership: bytes, message: Outgoing | None) -> Future[None]:
        """The result of the transaction. A future that is cancelled while it waits for its turn is not sent."""
        parcel = _Parcel(offset, membership, message)
        self._waiting.append(parcel)
        self.serve()
        return parcel.done

    def last(self, partition: int) -> Future[None] | None:
        """The transaction that was begun last, if it has the partition. It raises nothing."""
        return self._last if partition in self._carried else None

    def serve(self) -> None:
        """Begins the next transaction if none is open, for all that waits with the same membership."""
        self._waiting = [parcel for parcel in self._waiting if not parcel.done.cancelled()]
        if not self._waiting or (self._last is not None and not self._last.done()):
            return
        membership = self._waiting[0].membership
        together = [parcel for parcel in self._waiting if parcel.membership == membership]
        self._waiting = [parcel for parcel in self._waiting if parcel.membership != membership]
        self._carried = {parcel.offset.partition for parcel in together}
        for parcel in together:
            parcel.done.set_running_or_notify_cancel()  # it can't be cancelled any more
        self._last = self._executor.submit(self._commit, together)
        self._last.add_done_callback(self._on_end)

    def _commit(self, together: Sequence[_Parcel]) -> None:
        """On the thread. If a transaction of several parcels is certainly refused, each gets its own."""
        messages = [parcel.message for parcel in together if parcel.message is not None]
        try:
            self._sink.commit([parcel.offset for parcel in together], together[0].membership, messages)
        except BaseException as error:  # noqa: BLE001 - it belongs to those that wait
            if isinstance(error, NotCommittedError) and error.certain and len(together) > 1:
                for parcel in together:
                    self._commit([parcel])
            else:
                for parcel in together:
                    parcel.done.set_exception(error)
        else:
            for parcel in together:
                parcel.done.set_result(None)

    def close(self) -> None:
        self._sink.close()
