"""Fills a topic with rows: every message is confirmed by the broker, or the whole run fails.

messages ──► Filler.send ──► librdkafka's queue ──► broker
                                    │ delivery report
             counters per partition ◄┘
"""

from __future__ import annotations

from collections import Counter
from dataclasses import asdict, dataclass, fields
from functools import partial
from typing import TYPE_CHECKING, Any, Final, Literal

from confluent_kafka import KafkaError, KafkaException, Message

from sfd_stream.errors import BrokerRefusedError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from sfd_stream.kafka.outage import Outage

_POLL_S: Final = 0.1
_SILENT_S: Final = 4.0
"""Messages without a delivery report for this long are reported as an outage of the broker."""

Keys = Literal["round-robin", "hash"]


@dataclass(slots=True)
class Counts:
    """What went into a partition."""

    rows: int = 0
    nnz: int = 0
    messages: int = 0
    bytes: int = 0
    squared_frobenius: float = 0.0

    def add(self, other: Counts) -> None:
        for field in fields(self):
            setattr(self, field.name, getattr(self, field.name) + getattr(other, field.name))


@dataclass(frozen=True, slots=True)
class RowMessage:
    """One message's bytes and what is in them."""

    value: bytes
    rows: int
    nnz: int
    squared_frobenius: float

    def counts(self) -> Counts:
        return Counts(self.rows, self.nnz, 1, len(self.value), self.squared_frobenius)


class Filler:
    """Sends messages over the partitions of a topic and counts what was confirmed.

    `rate` is in rows a second, None for as fast as it goes; `clock` gives seconds.
    """

    def __init__(
        self,
        producer: Any,
        topic: str,
        partitions: int,
        *,
        keys: Keys = "round-robin",
        rate: float | None = None,
        clock: Callable[[], float],
        outage: Outage | None = None,
    ) -> None:
        self.confirmed = {number: Counts() for number in range(partitions)}
        self._producer = producer
        self._topic = topic
        self._partitions = partitions
        self._keys = keys
        self._rate = rate
        self._clock = clock
        self._failures: Counter[str] = Counter()
        self._outage = outage
        self._answered_at = clock()

    def fill(self, messages: Iterable[RowMessage], progress: Callable[[int], None]) -> None:
        """Send all, then wait for every report; `progress` hears how many rows were handed over."""
        started, rows = self._clock(), 0
        for number, message in enumerate(messages):
            self._wait_until(started + rows / self._rate if self._rate else started)
            self._send(number, message)
            self._serve(0)
            rows += message.rows
            progress(rows)
        while len(self._producer):
            self._serve(_POLL_S)
        self._refuse_failures()

    def summary(self) -> dict[str, Any]:
        """The confirmed counts: `{"partitions": {"0": {...}}, "total": {...}}`."""
        total = Counts()
        for counts in self.confirmed.values():
            total.add(counts)
        partitions = {str(number): asdict(self.confirmed[number]) for number in sorted(self.confirmed)}
        return {"topic": self._topic, "partitions": partitions, "total": asdict(total)}

    def _wait_until(self, moment: float) -> None:
        while (left := moment - self._clock()) > 0:
            self._serve(min(left, _POLL_S))

    def _serve(self, wait_s: float) -> None:
        """Takes in delivery reports, and warns while there are none."""
        self._producer.poll(wait_s)
        self._refuse_failures()
        silent = len(self._producer) and self._clock() - self._answered_at >= _SILENT_S
        if silent and self._outage is not None:
            self._outage.unanswered(self._answered_at, "no delivery report")

    def _send(self, number: int, message: RowMessage) -> None:
        place = {"key": str(number).encode()} if self._keys == "hash" else {"partition": number % self._partitions}
        report = partial(self._reported, message.counts())
        if not len(self._producer):
            self._answered_at = self._clock()
        while True:
            try:
                self._producer.produce(self._topic, message.value, on_delivery=report, **place)
            except BufferError:  # the queue is full: let some go first
                self._serve(_POLL_S)
            except KafkaException as error:
                raise BrokerRefusedError(f"message {number} can't be sent: {_reason(error.args[0])}") from error
            else:
                return

    def _reported(self, counts: Counts, error: KafkaError | None, record: Message) -> None:
        self._answered_at = self._clock()
        if self._outage is not None and error is None:
            self._outage.answered()
        if error is None and record.offset() is None:
            self._failures["confirmed without an offset, so it may not be in the log"] += 1
        elif error is None:
            self.confirmed[int(record.partition() or 0)].add(counts)
        else:
            self._failures[_reason(error)] += 1

    def _refuse_failures(self) -> None:
        if self._failures:
            reason, times = self._failures.most_common(1)[0]
            sent = sum(counts.messages for counts in self.confirmed.values())
            raise BrokerRefusedError(
                f"{times} messages to {self._topic} were not delivered: {reason}; {sent} were. The topic"
                " holds a part only: fix the cause, then fill a new topic"
            )


def _reason(error: KafkaError) -> str:
    """What the broker or librdkafka says, with a remedy where the usual one is known."""
    if error.code() in (KafkaError.MSG_SIZE_TOO_LARGE, KafkaError.RECORD_LIST_TOO_LARGE):
        return f"{error.str()} (send fewer rows in a message, or raise kafka.message.max.bytes and the topic's)"
    return error.str()
