"""Messages out: idempotent, acknowledged by all in-sync replicas. Each has a ticket with its result.

Only `flush` blocks. The delivery report fills a ticket; `poll` and `flush` process the reports. Messages of a partition
arrive in the order of `publish`, and the client's retries duplicate none. They are not batched unless asked for: they
are few, and the broker judges each by itself. One thread owns a sink.
"""

from __future__ import annotations

import functools
from collections.abc import Iterable, Mapping
from typing import Any

from confluent_kafka import KafkaError, KafkaException, Message, Producer

from sfd_stream.errors import BrokerRefusedError
from sfd_stream.kafka.errors import Fault, Hooks, address, create, described, error_of, fault_of, refusal
from sfd_stream.kafka.properties import producer_properties

TOO_LARGE = "too large"
# The broker took the message for a duplicate. On a partition without history (a new topic) it also reports this for
# a first message that it had refused while a later one was accepted: reported as a success, but in no log. So the
# message is sent again.
UNCONFIRMED = "unconfirmed"
_TIME_OUTS = {
    KafkaError._MSG_TIMED_OUT,
    KafkaError._TIMED_OUT,
    KafkaError._TIMED_OUT_QUEUE,
    KafkaError.REQUEST_TIMED_OUT,
    KafkaError._TRANSPORT,
}
_TOO_LARGE = {KafkaError.MSG_SIZE_TOO_LARGE, KafkaError.RECORD_LIST_TOO_LARGE, KafkaError.INVALID_MSG_SIZE}


def is_too_large(error: KafkaError) -> bool:
    return error.code() in _TOO_LARGE


class Ticket:
    """The result of one message: not `done` yet, or delivered at (partition, offset), or failed with `error`."""

    __slots__ = ("error", "offset", "partition", "timed_out")

    def __init__(self) -> None:
        self.partition: int | None = None
        self.offset: int | None = None
        self.error: str | None = None  # TOO_LARGE, UNCONFIRMED, or the client's name and words
        self.timed_out = False  # no broker has refused it, so it may be sent again

    @property
    def done(self) -> bool:
        return self.delivered or self.error is not None

    @property
    def delivered(self) -> bool:
        return self.offset is not None

    def __repr__(self) -> str:
        state = f"at {self.partition}/{self.offset}" if self.delivered else self.error or "on its way"
        return f"Ticket({state})"


class Sink:
    def __init__(self, properties: Mapping[str, Any], *, hooks: Hooks | None = None, batched: bool = False) -> None:
        """`batched` is for many small messages: a message that is too large may be refused together with others."""
        hooks = hooks or Hooks()
        self._properties = producer_properties(properties)
        self._failure: BrokerRefusedError | None = None
        callbacks = {"error_cb": self._on_error, **hooks.as_properties(properties)}
        # The broker refuses a batch as a whole: small messages would be called too large together with one that
        # is too large.
        alone = {} if batched else {"batch.num.messages": 1}
        self._producer = create(Producer, {**self._properties, **alone, **callbacks})

    def __repr__(self) -> str:
        return f"Sink({address(self._properties)!r}, {len(self)} unacknowledged)"

    def __len__(self) -> int:
        """Messages without a delivery report."""
        return len(self._producer)

    def publish(
        self,
        topic: str,
        key: bytes | None,
        value: bytes | None,
        headers: Iterable[tuple[str, bytes | None]] = (),
        timestamp_ms: int | None = None,
    ) -> Ticket | None:
        """Queues a message. None: the queue is full, so poll and publish again."""
        self._raise_failure()
        ticket = Ticket()
        report = functools.partial(self._on_delivery, ticket)
        try:
            self._producer.produce(
                topic, value, key, on_delivery=report, timestamp=timestamp_ms or 0, headers=list(headers)
            )
        except BufferError:
            return None
        except KafkaException as exception:
            self._fill(ticket, error_of(exception))
            self._raise_failure()
        return ticket

    def poll(self, timeout_s: float = 0.0) -> int:
        """Processes delivery reports; returns the number of events."""
        try:
            events = self._producer.poll(timeout_s)
        except KafkaException as exception:
            raise refusal(error_of(exception), self._properties) from None
        self._raise_failure()
        return events

    def flush(self, timeout_s: float) -> bool:
        """Waits until every ticket is done; returns whether all were done in time."""
        try:
            left = self._producer.flush(timeout_s)
        except (KafkaException, SystemError) as exception:  # a fenced producer raises SystemError with the cause in it
            cause = exception if isinstance(exception, KafkaException) else exception.__cause__
            if not isinstance(cause, KafkaException):
                raise
            raise refusal(error_of(cause), self._properties) from None
        self._raise_failure()
        return left == 0

    def close(self, timeout_s: float) -> bool:
        """Flushes, then drops what is not delivered: those tickets fail. Returns whether all were delivered."""
        done = self._producer.flush(timeout_s) == 0
        if not done:
            self._producer.purge()
            self._producer.flush(1.0)
        return done

    def _on_delivery(self, ticket: Ticket, error: KafkaError | None, message: Message[Any, Any]) -> None:
        if error is not None:
            self._fill(ticket, error)
        elif message.offset() is None:
            ticket.error = UNCONFIRMED
        else:
            ticket.partition, ticket.offset = message.partition(), message.offset()

    def _fill(self, ticket: Ticket, error: KafkaError) -> None:
        if is_too_large(error):
            ticket.error = TOO_LARGE
            return
        ticket.error = described(error, self._properties)
        ticket.timed_out = error.code() in _TIME_OUTS
        self._on_error(error)

    def _on_error(self, error: KafkaError) -> None:
        if fault_of(error) is Fault.REFUSED:
            self._failure = self._failure or refusal(error, self._properties)

    def _raise_failure(self) -> None:
        if self._failure is not None:
            raise self._failure
