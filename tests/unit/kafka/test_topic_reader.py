"""Reading a topic to its end: for as long as it goes on, and no longer."""

from __future__ import annotations

import gc
import weakref
from types import SimpleNamespace
from typing import Any

import pytest
from confluent_kafka import OFFSET_BEGINNING, OFFSET_INVALID

from sfd_stream.errors import BrokerRefusedError, BrokerUnavailableError
from sfd_stream.kafka import topic_reader as module
from sfd_stream.kafka.topic_reader import Tail


class SlowBroker:
    """One partition from offset 100 to 120 that gives a record every 20 s, up to `gives` of them."""

    def __init__(self, gives: int, passes: int = 0) -> None:
        self.now = 0.0
        self.gives = gives
        self.passes = passes  # control records: the position moves, and nobody sees them
        self.next = 100
        self.stuck = False  # the client in use gets nothing more
        self.clients: list[list[tuple[int, int]]] = []  # what each of them was assigned

    def consumer(self, _: Any) -> Any:
        assigned: list[tuple[int, int]] = []
        self.clients.append(assigned)
        self.stuck = False
        return SimpleNamespace(
            consume=self._consume,
            position=self._position,
            incremental_assign=lambda places: assigned.extend((p.partition, p.offset) for p in places),
            close=lambda: None,
        )

    def admin(self, *_: Any, **__: Any) -> Any:
        found = SimpleNamespace(error=None, partitions={0: None})
        metadata = SimpleNamespace(cluster_id="c", topics={"t": found})
        asked = {"metadata": lambda *_: metadata, "marks": lambda *_: {0: (100, 120)}}
        asked["known_ends"] = lambda *_: {("t", 0): 120}
        return SimpleNamespace(**asked, ask=lambda question, left_s: question(left_s), outage=SimpleNamespace(words=""))

    def _position(self, _: Any) -> list[Any]:
        return [SimpleNamespace(offset=self.next if self.next > 100 else OFFSET_INVALID)]

    def _consume(self, *_: Any) -> list[Any]:
        self.now += 20.0
        if self.next < 100 + self.passes:
            self.next += 1
            return []
        if self.stuck or self.next >= 100 + self.gives:
            return []
        self.next += 1
        told = {"partition": 0, "offset": self.next - 1, "error": None, "timestamp": (0, 0), "value": b"", "key": b""}
        return [SimpleNamespace(**{name: lambda v=v: v for name, v in told.items()}, headers=lambda: None)]


@pytest.fixture
def tail_of(monkeypatch: pytest.MonkeyPatch) -> Any:
    def make(broker: SlowBroker) -> Tail:
        monkeypatch.setattr(module, "Consumer", broker.consumer)
        monkeypatch.setattr(module, "Admin", broker.admin)
        return Tail({"bootstrap.servers": "b:1"}, "t", clock=lambda: broker.now)

    return make


@pytest.mark.parametrize(("passes", "seen"), [(0, 20), (10, 10)])
def test_a_topic_that_takes_longer_than_the_limit_is_read_as_long_as_it_goes_on(
    tail_of: Any, passes: int, seen: int
) -> None:
    broker = SlowBroker(20, passes)
    assert sum(len(batch) for batch in tail_of(broker).catch_up(30.0)) == seen
    assert broker.now == 400.0


def test_a_reading_that_stalls_ends_and_says_how_far_it_came(tail_of: Any) -> None:
    broker = SlowBroker(7)
    with pytest.raises(BrokerRefusedError, match=r"did not answer in 30 s: read 7 of 20 records of t"):
        list(tail_of(broker).catch_up(30.0))
    assert broker.now == 180.0


def test_a_client_that_gets_nothing_is_replaced_and_reads_on_where_it_was(tail_of: Any) -> None:
    """`sfd-stream merge`, started in an outage, got no records for 3.5 minutes (campaign, seed 12 with --fencing)."""
    broker = SlowBroker(20)
    tail, seen = tail_of(broker), 0
    with pytest.raises(BrokerUnavailableError, match="read 5 of 20"):  # noqa: PT012 - the loop is what raises
        for batch in tail.catch_up(30.0):
            seen += len(batch)
            broker.stuck = seen == 5
    seen += sum(len(batch) for batch in tail.catch_up(30.0))  # a merger that starts tries again
    assert seen == 20
    assert broker.clients == [[(0, OFFSET_BEGINNING)], [(0, 105)]]


def test_a_live_reader_whose_client_gets_nothing_replaces_it(tail_of: Any) -> None:
    broker = SlowBroker(20)
    tail = tail_of(broker)
    tail._assigned(30.0)
    seen = sum(len(tail.poll(0.1)) for _ in range(5))
    broker.stuck = True
    for _ in range(30):
        seen += len(tail.poll(0.1))
    assert seen == 20
    assert broker.clients == [[(0, OFFSET_BEGINNING)], [(0, 105)]]


def test_a_live_reader_keeps_a_client_that_has_read_everything(tail_of: Any) -> None:
    broker = SlowBroker(20)
    tail = tail_of(broker)
    tail._assigned(30.0)
    assert sum(len(tail.poll(0.1)) for _ in range(60)) == 20
    assert len(broker.clients) == 1


def test_a_closed_reader_keeps_no_client(tail_of: Any) -> None:
    """Each has some ten threads. A reader is in a cycle, and Python's collector runs seldom in a program."""

    class Client:
        pass

    tail = tail_of(SlowBroker(20))
    tail._admin = Client()
    client = weakref.ref(tail._admin)
    gc.disable()
    try:
        tail.close()
        assert client() is None
    finally:
        gc.enable()
