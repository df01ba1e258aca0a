"""Fills a topic with rows. The run fails unless the broker acknowledges every message.

messages ──► Filler.send ──► librdkafka's queue ──► broker
                                    │ delivery report
             counters per partition ◄┘
"""

from __future__ import annotations

from collections import Counter
from dataclasses import KW_ONLY, asdict, dataclass, fields
from functools import partial
from typing import TYPE_CHECKING, Any, Final, Literal

import numpy as np
import scipy.sparse as sp
from confluent_kafka import KafkaError, KafkaException, Message

from sfd_stream.errors import BrokerRefusedError, RowDecodeError, SettingsError
from sfd_stream.wire.formats.from_json import read_json
from sfd_stream.wire.rows.encode import encode_row, encode_rows

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping

    from sfd_stream.kafka.outage import Outage
    from sfd_stream.wire.features import FeatureMap

_POLL_S: Final = 0.1
_SILENT_S: Final = 4.0
"""Messages without a delivery report for this long are reported as an outage of the broker."""

Keys = Literal["round-robin", "hash"]


@dataclass(slots=True)
class Counts:
    """Counts of what was written to a partition."""

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
    """The bytes of one message, and the counts of the rows in it."""

    value: bytes
    rows: int
    nnz: int
    squared_frobenius: float

    def counts(self) -> Counts:
        return Counts(self.rows, self.nnz, 1, len(self.value), self.squared_frobenius)


@dataclass(eq=False)
class Filler:
    """Sends messages to the partitions of a topic and counts those that were acknowledged.

    `rate` is in rows per second; None means without a limit. `clock` returns seconds.
    """

    producer: Any
    topic: str
    partitions: int
    _: KW_ONLY
    clock: Callable[[], float]
    keys: Keys = "round-robin"
    rate: float | None = None
    outage: Outage | None = None

    def __post_init__(self) -> None:
        self.confirmed = {number: Counts() for number in range(self.partitions)}
        self._failures: Counter[str] = Counter()
        self._answered_at = self.clock()

    def fill(self, messages: Iterable[RowMessage], progress: Callable[[int], None]) -> None:
        """Sends all, then waits for every delivery report. `progress` is called with the number of rows queued."""
        started, rows = self.clock(), 0
        for number, message in enumerate(messages):
            self._wait_until(started + rows / self.rate if self.rate else started)
            self._send(number, message)
            self._serve(0)
            rows += message.rows
            progress(rows)
        while len(self.producer):
            self._serve(_POLL_S)
        self._refuse_failures()

    def summary(self) -> dict[str, Any]:
        """The acknowledged counts: `{"partitions": {"0": {...}}, "total": {...}}`."""
        total = Counts()
        for counts in self.confirmed.values():
            total.add(counts)
        partitions = {str(number): asdict(self.confirmed[number]) for number in sorted(self.confirmed)}
        return {"topic": self.topic, "partitions": partitions, "total": asdict(total)}

    def _wait_until(self, moment: float) -> None:
        while (left := moment - self.clock()) > 0:
            self._serve(min(left, _POLL_S))

    def _serve(self, wait_s: float) -> None:
        """Processes delivery reports, and warns while none arrive."""
        self.producer.poll(wait_s)
        self._refuse_failures()
        silent = len(self.producer) and self.clock() - self._answered_at >= _SILENT_S
        if silent and self.outage is not None:
            self.outage.unanswered(self._answered_at, "no delivery report")

    def _send(self, number: int, message: RowMessage) -> None:
        place = {"key": str(number).encode()} if self.keys == "hash" else {"partition": number % self.partitions}
        report = partial(self._reported, message.counts())
        if not len(self.producer):
            self._answered_at = self.clock()
        while True:
            try:
                self.producer.produce(self.topic, message.value, on_delivery=report, **place)
            except BufferError:  # the queue is full: wait until some are sent
                self._serve(_POLL_S)
            except KafkaException as error:
                raise BrokerRefusedError(f"message {number} can't be sent: {_reason(error.args[0])}") from error
            else:
                return

    def _reported(self, counts: Counts, error: KafkaError | None, record: Message) -> None:
        self._answered_at = self.clock()
        if self.outage is not None and error is None:
            self.outage.answered()
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
                f"{times} messages to {self.topic} were not delivered: {reason}; {sent} were. The topic"
                " holds a part only: fix the cause, then fill a new topic"
            )


def _reason(error: KafkaError) -> str:
    """The error text of the broker or librdkafka, with the usual remedy if one is known."""
    if error.code() in (KafkaError.MSG_SIZE_TOO_LARGE, KafkaError.RECORD_LIST_TOO_LARGE):
        return f"{error.str()} (send fewer rows in a message, or raise kafka.message.max.bytes and the topic's)"
    return error.str()


Format = Literal["list", "packed", "blocks"]


def matrix_messages(blocks: Iterable[Any], *, form: Format, rows_per_message: int) -> Iterator[RowMessage]:
    """One message per row (list, packed), or one per `rows_per_message` rows (blocks)."""
    if form == "blocks":
        for matrix in _regrouped(blocks, rows_per_message):
            values = encode_rows(_narrowed(matrix), packed=True, rows_per_message=rows_per_message)
            yield from _counted(values, matrix, rows_per_message)
    else:
        for matrix in blocks:
            yield from _counted(encode_rows(_narrowed(matrix), packed=form == "packed"), matrix, 1)


def bag_messages(bags: Iterable[Mapping[str, int]]) -> Iterator[RowMessage]:
    """One message in the list format per bag, with its words as features, for hashed columns."""
    for bag in bags:
        counts = list(bag.values())
        value = encode_row(list(bag), counts, packed=False)
        yield RowMessage(value, 1, len(counts), float(sum(count * count for count in counts)))


def json_messages(lines: Iterable[bytes], mapping: FeatureMap) -> Iterator[RowMessage]:
    """One message per line, unchanged, counted as a worker with this mapping counts it. A bad record is an error."""
    for number, line in enumerate(lines, start=1):
        try:
            rows = [mapping.features_of(record) for record in mapping.records_of(read_json(line))]
        except RowDecodeError as error:
            raise SettingsError(f"record {number} is bad ({error.reason}): {error}") from None
        added: list[Counter[str]] = [Counter() for _ in rows]
        for row, total in zip(rows, added, strict=True):
            for name, value in row:
                total[name] += value  # type: ignore[assignment]  # a Counter of floats
        values = [value for total in added for value in total.values() if value]
        yield RowMessage(line, len(rows), len(values), float(sum(value * value for value in values)))


def _counted(values: Iterable[bytes], matrix: Any, step: int) -> Iterator[RowMessage]:
    """Each message with the counts of its `step` rows."""
    squares = _row_squares(matrix)
    for value, start in zip(values, range(0, matrix.shape[0], step), strict=True):
        stop = min(start + step, matrix.shape[0])
        nnz = int(matrix.indptr[stop] - matrix.indptr[start])
        yield RowMessage(value, stop - start, nnz, float(squares[start:stop].sum()))


def _regrouped(blocks: Iterable[Any], rows_per_message: int) -> Iterator[Any]:
    """Blocks whose rows are a multiple of `rows_per_message`, except the last one."""
    rest = None
    for block in blocks:
        whole = block if rest is None else _stacked(rest, block)
        cut = whole.shape[0] - whole.shape[0] % rows_per_message
        if cut:
            yield whole[:cut]
        rest = whole[cut:] if cut < whole.shape[0] else None
    if rest is not None:
        yield rest


def _stacked(above: Any, below: Any) -> Any:
    """One block of both. Blocks from files without a width are as wide as their largest index, so widths may differ."""
    width = max(above.shape[1], below.shape[1])
    above.resize(above.shape[0], width)
    below.resize(below.shape[0], width)
    return sp.vstack([above, below], format="csr")


def _narrowed(matrix: Any) -> Any:
    """The matrix as float32 if no value changes. Counts and signs then take half the bytes."""
    narrow = matrix.astype(np.float32)
    return narrow if np.array_equal(narrow.data, matrix.data) else matrix


def _row_squares(matrix: Any) -> Any:
    """The squared norm of each row."""
    return matrix.power(2).sum(axis=1)
