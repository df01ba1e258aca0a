"""The transaction coordinator: who may write under a transactional id, and what becomes visible at once."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from confluent_kafka import KafkaError

from tests.simulation.broker import Broker, Log, LogRecord
from tests.simulation.groups import OK, UNKNOWN, Group, Place
from tests.simulation.scheduler import Scheduler


@dataclass
class Transaction:
    who: str
    records: list[tuple[str, int, Log, LogRecord]] = field(default_factory=list)
    offsets: dict[Place, tuple[int, str]] = field(default_factory=dict)
    group: Group | None = None


@dataclass
class _Id:
    epoch: int = -1
    open: Transaction | None = None
    round: int = 0


class Coordinator:
    """Answers are None for success, else the code of an error."""

    def __init__(self, scheduler: Scheduler, broker: Broker) -> None:
        self._scheduler = scheduler
        self._broker = broker
        self._ids: dict[str, _Id] = {}

    def init(self, name: str) -> int:
        """A new epoch: what the last producer of this id left open is aborted, and that producer is fenced."""
        found = self._ids.setdefault(name, _Id())
        self._end(found, commit=False)
        found.epoch += 1
        return found.epoch

    def begin(self, name: str, epoch: int, who: str, timeout_s: float) -> Transaction | None:
        """The open transaction, begun now if there is none; None if the producer is fenced."""
        found = self._ids.get(name)
        if found is None or found.epoch != epoch:
            return None
        if found.open is None:
            found.open = Transaction(who)
            found.round += 1
            this = found.round
            self._scheduler.call_later(timeout_s, lambda: self._time_out(found, this))
        return found.open

    def produce(
        self, name: str, epoch: int, who: str, timeout_s: float, topic: str, partition: int, **record: Any
    ) -> Any:
        """The offset, or the code of an error."""
        transaction = self.begin(name, epoch, who, timeout_s)
        if transaction is None:
            return KafkaError._FENCED, None
        log = self._broker.topics[topic].logs[partition]
        written = log.append(self._scheduler.now, **record, transaction=transaction)
        transaction.records.append((topic, partition, log, written))
        return None, written.offset

    def send_offsets(
        self, name: str, epoch: int, who: str, timeout_s: float, group: Group, member: tuple[str, int], offsets: Any
    ) -> int | None:
        transaction = self.begin(name, epoch, who, timeout_s)
        if transaction is None:
            return KafkaError._FENCED
        status = group.check(*member)
        if status != OK:
            return KafkaError.UNKNOWN_MEMBER_ID if status == UNKNOWN else KafkaError.ILLEGAL_GENERATION
        transaction.group = group
        for place, offset, metadata in offsets:
            transaction.offsets[place] = (offset, metadata)
            group.pending[place] = transaction
        return None

    def end(self, name: str, epoch: int, *, commit: bool) -> int | None:
        found = self._ids.get(name)
        if found is None or found.epoch != epoch:
            return KafkaError._FENCED
        self._end(found, commit=commit)
        return None

    def _time_out(self, found: _Id, this: int) -> None:
        if found.open is not None and found.round == this:
            self._end(found, commit=False)
            found.epoch += 1  # the producer that was too slow is fenced

    def _end(self, found: _Id, *, commit: bool) -> None:
        transaction, found.open = found.open, None
        if transaction is None:
            return
        logs: dict[int, Log] = {}
        for _, _, log, record in transaction.records:
            record.transaction, record.aborted = None, not commit
            logs[id(log)] = log
        for log in logs.values():
            log.append(self._scheduler.now, None, control=True)
        if transaction.group is not None:
            for place in transaction.offsets:
                transaction.group.pending.pop(place, None)
        if commit:
            for topic, partition, _, record in transaction.records:
                self._broker.on_append(topic, partition, record, transaction.who)
            for place, (offset, metadata) in transaction.offsets.items():
                assert transaction.group is not None
                transaction.group.store(place, offset, metadata, transaction.who)
