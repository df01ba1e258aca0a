"""What the contract tests share: a listener that writes down what it was told, and sources that are
closed.
"""

from __future__ import annotations

import time
import uuid
from typing import TYPE_CHECKING, Any

import pytest

from sfd_stream.kafka import admin as admin_module
from sfd_stream.kafka import source as source_module
from sfd_stream.kafka.records import Start
from sfd_stream.kafka.source import Source
from tests.unit.kafka.scripted import TOPIC, ScriptedConsumer

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterator, Mapping

    from sfd_stream.kafka.records import PartitionBatch
    from tests.support.kafka import Broker

DEADLINE_S = 40.0
PROTOCOLS: dict[str, dict[str, Any]] = {
    "cooperative": {"session.timeout.ms": 6000, "heartbeat.interval.ms": 200},
    "eager": {
        "partition.assignment.strategy": "range",
        "session.timeout.ms": 6000,
        "heartbeat.interval.ms": 200,
    },
    "kip-848": {"group.protocol": "consumer"},
}


class Diary:
    """A listener that begins each partition at `starts` (or 0) and remembers everything."""

    def __init__(self, starts: Mapping[int, Start | None] | None = None) -> None:
        self.starts = dict(starts or {})
        self.events: list[tuple[str, tuple[int, ...]]] = []
        self.owned: set[int] = set()
        self.in_revoke: Callable[[Collection[int]], None] = lambda _: None

    def on_assign(self, partitions: Collection[int]) -> dict[int, Start | None]:
        self.events.append(("assign", tuple(partitions)))
        self.owned |= set(partitions)
        return {p: self.starts.get(p, Start(0)) for p in partitions}

    def on_revoke(self, partitions: Collection[int]) -> None:
        self.events.append(("revoke", tuple(partitions)))
        self.in_revoke(partitions)
        self.owned -= set(partitions)

    def on_lost(self, partitions: Collection[int]) -> None:
        self.events.append(("lost", tuple(partitions)))
        self.owned -= set(partitions)


class Reader:
    """A source with all that it gave, by partition, and ways to wait for things."""

    def __init__(self, source: Source, diary: Diary) -> None:
        self.source = source
        self.diary = diary
        self.seen: dict[int, list[tuple[int, bytes | None]]] = {}

    def poll(self, timeout_s: float = 0.1, max_records: int = 500) -> list[PartitionBatch]:
        batches = self.source.poll(max_records, timeout_s)
        for batch in batches:
            pairs = zip(batch.offsets, batch.values, strict=True)
            self.seen.setdefault(batch.partition, []).extend(pairs)
        return batches

    @property
    def count(self) -> int:
        return sum(map(len, self.seen.values()))

    def until(self, condition: Callable[[], bool], what: str = "it", others: Collection[Reader] = ()) -> None:
        deadline = time.monotonic() + DEADLINE_S
        while not condition():
            assert time.monotonic() < deadline, f"{what} did not happen: {self.diary.events}, {self.count} records"
            for reader in (self, *others):
                reader.poll(0.1 if not others else 0.05)

    def offsets(self, partition: int) -> list[int]:
        return [offset for offset, _ in self.seen.get(partition, [])]


@pytest.fixture
def group() -> str:
    return f"g-{uuid.uuid4().hex[:12]}"


@pytest.fixture
def read(group: str) -> Iterator[Callable[..., Reader]]:
    """`read(broker, topic, starts, **properties)` gives a reader whose source is closed at the test's end."""
    sources: list[Source] = []

    def make(
        broker: Broker,
        topic: str,
        starts: Mapping[int, Start | None] | None = None,
        *,
        protocol: str = "cooperative",
        properties: Mapping[str, Any] | None = None,
        diary: Diary | None = None,
        **options: Any,
    ) -> Reader:
        diary = diary or Diary(starts)
        settings = {"bootstrap.servers": broker.bootstrap, "group.id": group, **PROTOCOLS[protocol]}
        sources.append(Source({**settings, **(properties or {})}, topic, **options))
        sources[-1].subscribe(diary)
        return Reader(sources[-1], diary)

    yield make
    for source in sources:
        source.close(10)


class Played:
    """A Source on a scripted client."""

    def __init__(self, protocol: str = "cooperative") -> None:
        self.diary = Diary()
        self.now_s = 0.0
        settings = {"bootstrap.servers": "b:1", "group.id": "g", **PROTOCOLS[protocol]}
        self.source = Source(settings, TOPIC, clock=lambda: self.now_s)
        self.source.subscribe(self.diary)

    @property
    def client(self) -> Any:
        return self.source._consumer

    def poll_for(self, seconds: int) -> None:
        for _ in range(seconds):
            self.now_s += 1.0
            self.poll()

    def poll(self, act: Any = lambda: None) -> dict[int, list[int]]:
        """The offsets that one poll gave, by partition."""
        self.client.script.append(act)
        return {batch.partition: batch.offsets for batch in self.source.poll(100, 0)}


@pytest.fixture
def play(monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.setattr(source_module, "Consumer", ScriptedConsumer)
    monkeypatch.setattr(admin_module, "Consumer", ScriptedConsumer)
    monkeypatch.setattr(source_module, "Admin", lambda *_, **__: None)
    return Played
