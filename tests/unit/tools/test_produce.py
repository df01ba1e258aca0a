"""Filling a topic: every message is acknowledged and counted, or the run fails."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any

import pytest
from confluent_kafka import KafkaError

from sfd_stream.errors import BrokerRefusedError
from sfd_stream.kafka.outage import Outage
from sfd_stream.tools.produce import Filler, RowMessage

if TYPE_CHECKING:
    from collections.abc import Callable


class FakeRecord:
    def __init__(self, partition: int) -> None:
        self._partition = partition

    def offset(self) -> int:
        return 0

    def partition(self) -> int:
        return self._partition


class FakeProducer:
    """Delivers at each poll what is queued, but nothing for the first `silent_s`; refuses to queue beyond `room`, and
    fails the message `fails`.
    """

    def __init__(self, clock: Clock, room: int = 2, fails: int | None = None, silent_s: float = 0.0) -> None:
        self._silent_s = silent_s
        self.sent: list[tuple[float, int]] = []
        self._clock, self._room, self._fails = clock, room, fails
        self._queue: list[tuple[int, int, Callable[..., None]]] = []
        self._number = 0

    def produce(self, _topic: str, _value: bytes, *, on_delivery: Callable[..., None], partition: int) -> None:
        if len(self._queue) >= self._room:
            raise BufferError
        self._queue.append((self._number, partition, on_delivery))
        self.sent.append((self._clock(), partition))
        self._number += 1

    def poll(self, timeout_s: float) -> None:
        self._clock.now += timeout_s
        if timeout_s and self._clock() >= self._silent_s:
            self._deliver()

    def __len__(self) -> int:
        return len(self._queue)

    def _deliver(self) -> None:
        for number, partition, report in self._queue:
            failed = KafkaError(KafkaError.MSG_SIZE_TOO_LARGE) if number == self._fails else None
            report(failed, FakeRecord(partition))
        self._queue.clear()


class Clock:
    now = 0.0

    def __call__(self) -> float:
        return self.now


def filled(rate: float | None = None, **options: Any) -> tuple[Filler, FakeProducer]:
    clock = Clock()
    producer = FakeProducer(clock, **options)
    filler = Filler(producer, "t", 3, rate=rate, clock=clock)
    filler.fill([RowMessage(b"xx", 10, 4, 0.5)] * 10, lambda _rows: None)
    return filler, producer


def test_a_full_queue_is_waited_for_and_nothing_is_lost() -> None:
    filler, _ = filled()
    assert filler.summary()["total"] == {
        "rows": 100,
        "nnz": 40,
        "messages": 10,
        "bytes": 20,
        "squared_frobenius": 5.0,
    }


def test_one_message_that_is_not_delivered_fails_the_whole_run() -> None:
    for number in range(10):
        with pytest.raises(BrokerRefusedError, match="were not delivered"):
            filled(fails=number)


def test_a_broker_that_confirms_nothing_is_reported_once_in_a_while(caplog: pytest.LogCaptureFixture) -> None:
    clock = Clock()
    outage = Outage({"bootstrap.servers": "b:1"}, logging.getLogger("filler"), clock)
    outage.note(KafkaError(KafkaError._RESOLVE, "no such host"))
    filler = Filler(FakeProducer(clock, silent_s=70.0), "t", 3, clock=clock, outage=outage)
    filler.fill([RowMessage(b"xx", 10, 4, 0.5)] * 10, lambda _rows: None)
    assert [record.getMessage() for record in caplog.records] == [
        f"broker unavailable, will retry: b:1 has not answered for {s} s (_RESOLVE: no such host)" for s in (4, 34, 64)
    ]
    assert filler.summary()["total"]["messages"] == 10


def test_the_rate_is_in_rows_and_is_never_exceeded() -> None:
    _, producer = filled(rate=100.0, room=100)
    assert [moment for moment, _ in producer.sent] == pytest.approx([number * 0.1 for number in range(10)])
