"""Messages that are not rows go to the dead-letter topic with their original bytes, so that the stream continues.

Delivery is at least once: after a replay the topic may have a dead letter twice. Both have the same topic id, partition
and offset in their headers. A checkpoint waits until every dead letter below its offset is acknowledged. One that
failed is sent again, so no bad message is lost.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Protocol

from sfd_stream.errors import BrokerRefusedError, TooManyBadMessagesError
from sfd_stream.kafka.errors import CHECK_IT
from sfd_stream.kafka.producer import TOO_LARGE, Ticket
from sfd_stream.kafka.records import Headers, Record

ATTEMPTS = 3  # each of which the client retries by itself for delivery.timeout.ms
_PREFIX = "sfd-"


class Publisher(Protocol):
    """The part of a Sink that is needed here."""

    def publish(
        self, topic: str, key: bytes | None, value: bytes | None, headers: Iterable[tuple[str, bytes | None]]
    ) -> Ticket | None: ...

    def poll(self, timeout_s: float) -> int: ...


@dataclass(slots=True)
class _Letter:
    offset: int
    key: bytes | None
    value: bytes | None
    headers: Headers
    ticket: Ticket | None = None
    attempts: int = 0  # without those that timed out
    since_s: float | None = None  # when the first attempt timed out


class DeadLetters:
    """`send` never waits for the broker. A checkpoint waits until `acknowledged` is true."""

    def __init__(
        self,
        sink: Publisher,
        topic: str,
        *,
        source_topic: str,
        source_topic_id: str | None = None,
        give_up_s: float,
        clock: Callable[[], float] = time.monotonic,
        wall_clock: Callable[[], float] = time.time,
    ) -> None:
        self.topic = topic
        self.source_topic_id = source_topic_id  # of the input topic, once the broker has answered
        self.failure = ""  # why a letter was sent again last; empty if none was
        self._give_up_s = give_up_s
        self._clock = clock
        self._wall_clock = wall_clock
        self._sink = sink
        self._source_topic = source_topic
        self._open: dict[int, deque[_Letter]] = {}

    def send(self, record: Record, reason: str) -> None:
        """Sends a record to the dead-letter topic. `reason`: the decoder's word."""
        ours = (
            ("reason", reason),
            ("topic", self._source_topic),
            ("topic-id", self.source_topic_id or ""),
            ("partition", str(record.partition)),
            ("offset", str(record.offset)),
            ("time", datetime.fromtimestamp(self._wall_clock(), UTC).isoformat()),
        )
        # A dead letter that is read from the dead-letter topic and is bad again keeps the headers of the first time.
        # They come first, under the same names.
        headers = (*record.headers, *((_PREFIX + name, text.encode()) for name, text in ours))
        letter = _Letter(record.offset, record.key, record.value, headers)
        self._open.setdefault(record.partition, deque()).append(letter)
        self._try(letter)

    def acknowledged(self, partition: int, below_offset: int) -> bool:
        """Whether every dead letter of the partition below the offset is acknowledged. Poll the sink before asking
        again.
        """
        letters = self._open.get(partition)
        if letters is None:
            return True
        self._open[partition] = letters = deque(letter for letter in letters if not self._settle(letter))
        return not any(letter.offset < below_offset for letter in letters)

    def forget(self, partition: int) -> None:
        """For on_revoke and on_lost: the next owner reads the same records again."""
        self._open.pop(partition, None)

    def _settle(self, letter: _Letter) -> bool:
        ticket = letter.ticket
        if ticket is not None and ticket.delivered:
            self.failure = ""
            return True
        if ticket is not None and ticket.error == TOO_LARGE:
            self._drop_value(letter)
        elif ticket is not None and ticket.timed_out:
            self._check_patience(letter, ticket)
        elif ticket is not None and ticket.error is not None and letter.attempts >= ATTEMPTS:
            raise BrokerRefusedError(
                f"dead-letter topic {self.topic} does not take the message at offset {letter.offset}"
                f" after {ATTEMPTS} attempts ({ticket.error}): check that it exists and may be written"
            )
        if ticket is None or ticket.done:
            self._try(letter)
        return False

    def _check_patience(self, letter: _Letter, ticket: Ticket) -> None:
        """A time-out is no refusal: the letter is sent again until `give_up_s` has passed."""
        self.failure, now_s = ticket.error or "", self._clock()
        letter.since_s = now_s if letter.since_s is None else letter.since_s
        letter.attempts -= 1
        if now_s - letter.since_s >= self._give_up_s:
            raise BrokerRefusedError(
                f"dead-letter topic {self.topic} did not acknowledge the message at offset {letter.offset}"
                f" for {self._give_up_s:g} s ({ticket.error}); {CHECK_IT}"
            )

    def _drop_value(self, letter: _Letter) -> None:
        if letter.value is None:
            raise BrokerRefusedError(
                f"dead-letter topic {self.topic} does not take the key and headers of the message at offset"
                f" {letter.offset}, even without its value: raise the topic's max.message.bytes"
            )
        size = str(len(letter.value)).encode()
        letter.value, letter.attempts = None, 0
        letter.headers = (*letter.headers, (_PREFIX + "value-dropped", size))

    def _try(self, letter: _Letter) -> None:
        letter.attempts += 1
        letter.ticket = self._sink.publish(self.topic, letter.key, letter.value, letter.headers)
        if letter.ticket is None:  # the queue is full; the next `acknowledged` tries again
            letter.attempts -= 1
            self._sink.poll(0.0)


class BadMessageGauge:
    """Decides when there are too many bad messages. Counts only, no clock.

    One gauge per worker: a faulty producer writes to all partitions, and a worker stops for all of them.

    The share is of the last `window` messages, and is judged only after that many. The run is of consecutive bad
    messages, in the order in which the worker decoded them. Tombstones are neither good nor bad.
    """

    def __init__(self, *, max_share: float, window: int, max_consecutive: int) -> None:
        self._max_bad = max_share * window
        self._max_share = max_share
        self._window = window
        self._max_consecutive = max_consecutive
        self._seen = 0
        self._bad: deque[int] = deque()  # the bad messages of the window, each by the number of those before it
        self._consecutive = 0

    def good(self, count: int) -> None:
        """`count` good messages in a row."""
        if count > 0:
            self._consecutive = 0
            self._seen += count

    def bad(self, reason: str, place: str) -> None:
        """One bad message; raises TooManyBadMessagesError past the share or at the end of a run."""
        self._consecutive += 1
        self._bad.append(self._seen)
        self._seen += 1
        while self._bad[0] < self._seen - self._window:
            self._bad.popleft()
        if self._consecutive >= self._max_consecutive:
            raise TooManyBadMessagesError(
                f"{self._consecutive} bad messages in a row: dead_letters.max_consecutive ="
                f" {self._max_consecutive}; the last is {place} ({reason}): fix the producer or raise it"
            )
        if self._seen >= self._window and len(self._bad) > self._max_bad:
            raise TooManyBadMessagesError(
                f"{len(self._bad)} of the last {self._window} messages are bad, more than dead_letters.max_share ="
                f" {self._max_share:g}; the last is {place} ({reason}): fix the producer or raise it"
            )
