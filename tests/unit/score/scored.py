"""A topic of rows with a sketch of its first ones, and what scorers have written about them."""

from __future__ import annotations

import json
import threading
import uuid
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from sfd_stream.cli.commands.score import consumer_of
from sfd_stream.kafka.admin import GroupOffsets
from sfd_stream.kafka.errors import Hooks
from sfd_stream.kafka.records import Record
from sfd_stream.kafka.topic_reader import Tail
from sfd_stream.score.consumer import ScoreConsumer
from tests.support.kafka import Broker
from tests.system.runs import DEADLINE_S, Rows, Run, WorkerProcess, wait_until

SHORT = {"transaction.timeout.ms": 2000, "message.timeout.ms": 2000}
"""Transactions that nobody ends are ended soon."""


@dataclass
class Scorer:
    """A scorer on a thread of this process: what it raised is kept for the test that waits."""

    consumer: ScoreConsumer
    error: BaseException | None = None
    thread: threading.Thread = field(init=False)

    def __post_init__(self) -> None:
        self.thread = threading.Thread(target=self._work, daemon=True)
        self.thread.start()

    def _work(self) -> None:
        try:
            self.consumer.run()
        except BaseException as error:  # noqa: BLE001 - kept for the test
            self.error = error

    def end(self) -> BaseException | None:
        self.thread.join(DEADLINE_S)
        assert not self.thread.is_alive()
        return self.error

    def stop(self) -> None:
        self.consumer.stop()
        error = self.end()
        if error is not None:
            raise error


@dataclass
class Scoring:
    """One run whose first rows are sketched and published; scorers come and go."""

    run: Run
    topic: str
    """Of the scores."""
    changes: dict[str, dict[str, Any]]

    @classmethod
    def of(cls, run: Run, **score: Any) -> Scoring:
        topic = f"scores-{uuid.uuid4().hex[:12]}"
        snapshot = {"topic": f"sketches-{uuid.uuid4().hex[:12]}", "every_s": 3600.0}
        return cls(run, topic, {"kafka": SHORT, "snapshot": snapshot, "score": {"topic": topic, **score}})

    def sketch(self, **changes: Mapping[str, Any]) -> None:
        """All rows of the topic so far, sketched and published."""
        self.run.inside(**{**self.changes, **changes})

    def settings(self, **changes: Mapping[str, Any]) -> Any:
        return self.run.settings(**_joined(self.changes, changes))

    def inside(self, **changes: Mapping[str, Any]) -> ScoreConsumer:
        """A scorer in this process, run to the topic's end; what it refuses is raised."""
        consumer = consumer_of(self.settings(**changes), until_end=True)
        consumer.run()
        return consumer

    def begin(self, **changes: Mapping[str, Any]) -> Scorer:
        return Scorer(consumer_of(self.settings(**changes)))

    def start(self, **given: Any) -> WorkerProcess:
        """A scorer as a process of its own."""
        changes = {name: given.pop(name) for name in list(given) if isinstance(given[name], Mapping)}
        return self.run.start(program="score", **given, **_joined(self.changes, changes))

    def records(self) -> list[Record]:
        return records_of(self.run.broker, self.topic)

    def scores(self) -> list[dict[str, Any]]:
        return [json.loads(record.value or b"") for record in self.records()]

    def all_scores(self, rows: int) -> list[dict[str, Any]]:
        """Once at least this many are visible: a transaction's end reaches each partition in its own time."""
        wait_until(lambda: len(self.records()) >= rows, f"{rows} scores")
        return self.scores()

    def counts(self) -> Counter[tuple[int, int, int]]:
        """How often each row was scored, by partition, offset and row."""
        return Counter((score["partition"], score["offset"], score["row"]) for score in self.scores())

    def committed(self) -> dict[int, int]:
        group = self.settings().score_group
        properties = {"bootstrap.servers": self.run.broker.bootstrap, "group.id": group, "log_level": 0}
        partitions = range(len(self.run.broker.admin.list_topics(self.run.topic, 10).topics[self.run.topic].partitions))
        found = GroupOffsets(properties, self.run.topic, Hooks()).committed(partitions, 30)
        return {p: -1 if each is None else each.offset for p, each in found.items()}

    def until_scored(self, ends: Mapping[int, int]) -> None:
        wait_until(lambda: self.committed() == dict(ends), f"offsets {dict(ends)}", 120)


def records_of(broker: Broker, topic: str) -> list[Record]:
    """Every message, as one who reads only what is committed sees it."""
    tail = Tail({"bootstrap.servers": broker.bootstrap, "log_level": 0}, topic)
    try:
        return [record for batch in tail.catch_up(30) for record in batch]
    finally:
        tail.close()


def every_row(rows: Rows, first: int = 0) -> set[tuple[int, int, int]]:
    """Partition, offset and row of each row, of records from `first` on."""
    step = rows.rows_per_message or 1
    return {
        (partition, row // step, row % step)
        for partition, matrix in enumerate(rows.matrices)
        for row in range(matrix.shape[0])
        if row // step >= first
    }


def _joined(one: Mapping[str, Mapping[str, Any]], other: Mapping[str, Mapping[str, Any]]) -> dict[str, Any]:
    return {name: {**one.get(name, {}), **other.get(name, {})} for name in {**one, **other}}
