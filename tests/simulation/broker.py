"""Topics and their logs, as a broker keeps them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from tests.simulation.scheduler import Scheduler

CLUSTER_ID = "simulated"


@dataclass(slots=True)
class LogRecord:
    offset: int
    key: bytes | None
    value: bytes | None
    headers: tuple[tuple[str, bytes | None], ...]
    timestamp_ms: int
    leader_epoch: int = 0
    control: bool = False
    aborted: bool = False
    transaction: Any = None
    """The open transaction that it belongs to, if any."""


@dataclass
class Log:
    records: list[LogRecord] = field(default_factory=list)
    start: int = 0
    base: int = 0
    """The offset of the first record in `records`."""
    leader_epoch: int = 0
    epoch_ends: dict[int, int] = field(default_factory=dict)
    """By leader epoch that is over: where its records end."""
    _waiting: list[Callable[[], None]] = field(default_factory=list)

    @property
    def end(self) -> int:
        return self.base + len(self.records)

    @property
    def stable_end(self) -> int:
        """Where the first open transaction begins; readers of committed records see nothing after it."""
        return next((record.offset for record in self.records if record.transaction is not None), self.end)

    def append(
        self,
        now_s: float,
        value: bytes | None,
        key: bytes | None = None,
        headers: tuple[tuple[str, bytes | None], ...] = (),
        *,
        control: bool = False,
        transaction: Any = None,
    ) -> LogRecord:
        record = LogRecord(self.end, key, value, headers, int(now_s * 1000), self.leader_epoch, control)
        record.transaction = transaction
        self.records.append(record)
        if transaction is None:
            self.changed()
        return record

    def fetch(self, offset: int, most: int) -> tuple[list[LogRecord], int]:
        """Committed data from `offset` on, and where to go on. The offset must be in the log."""
        found: list[LogRecord] = []
        end = self.stable_end
        while offset < end and len(found) < most:
            record = self.records[offset - self.base]
            if not record.control and not record.aborted:
                found.append(record)
            offset += 1
        return found, offset

    def visible(self) -> list[LogRecord]:
        return self.fetch(self.base, len(self.records))[0] if self.records else []

    def when_changed(self, call: Callable[[], None]) -> None:
        self._waiting.append(call)

    def changed(self) -> None:
        waiting, self._waiting = self._waiting, []
        for call in waiting:
            call()

    def truncate(self, end: int) -> None:
        """An election of a leader that does not have the last records: they are lost, others take their offsets."""
        del self.records[max(end - self.base, 0) :]
        for epoch in range(self.leader_epoch + 1):
            self.epoch_ends[epoch] = min(self.epoch_ends.get(epoch, end), end)
        self.leader_epoch += 1
        self.changed()

    def has_lost(self, offset: int, leader_epoch: int | None) -> bool:
        """Whether what was read up to `offset` in that epoch is not what the log holds."""
        return leader_epoch is not None and offset > self.epoch_ends.get(leader_epoch, offset)

    def remove_before(self, offset: int) -> None:
        """Retention: what is below the offset is gone."""
        self.start = max(self.start, min(offset, self.end))


@dataclass
class Topic:
    name: str
    id: str
    logs: list[Log]


class Broker:
    def __init__(self, scheduler: Scheduler) -> None:
        self.topics: dict[str, Topic] = {}
        self.on_append: Callable[[str, int, LogRecord, str], None] = lambda *_: None
        """Called with topic, partition, record and who wrote it, when a record becomes visible."""
        self.leaderless_until: dict[str, float] = {}
        """By topic: until when it has no leader."""
        self._scheduler = scheduler
        self._made = 0

    def create(self, name: str, partitions: int) -> Topic:
        self._made += 1
        self.topics[name] = Topic(name, f"topic-{self._made}", [Log() for _ in range(partitions)])
        return self.topics[name]

    def leaderless_s(self, topic: str) -> float:
        """For how long the topic will have no leader; 0 if it has one."""
        return max(self.leaderless_until.get(topic, 0.0) - self._scheduler.now, 0.0)

    def log(self, topic: str, partition: int) -> Log | None:
        found = self.topics.get(topic)
        return found.logs[partition] if found is not None and partition < len(found.logs) else None

    def append(
        self,
        topic: str,
        partition: int,
        who: str,
        value: bytes | None,
        key: bytes | None = None,
        headers: tuple[tuple[str, bytes | None], ...] = (),
    ) -> LogRecord:
        log = self.topics[topic].logs[partition]
        record = log.append(self._scheduler.now, value, key, headers)
        self.on_append(topic, partition, record, who)
        return record
