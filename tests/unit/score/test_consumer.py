"""The scorer without a broker: each row is scored once, and offsets are committed after their scores."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

from confluent_kafka import Message

from sfd_stream.kafka.dead_letters import BadMessageGauge
from sfd_stream.kafka.records import PartitionBatch
from sfd_stream.loop.intake import Intake
from sfd_stream.loop.questions import Questions
from sfd_stream.loop.runtime import Runtime
from sfd_stream.score.bases import Bases
from sfd_stream.score.consumer import ScoreConsumer
from sfd_stream.score.delivery import AtLeastOnce
from sfd_stream.score.watch import ScoreWatch
from sfd_stream.wire.columns import FixedColumns
from tests.support.watched import Clock, settings_of
from tests.system.fakes import Diary, FakeSource, plan_of
from tests.unit.score.test_delivery import FakeSink
from tests.unit.score.test_scoring import D, basis_with, message_of, ordinary


class Topic(FakeSource):
    """Its records are messages with all their fields; what is committed is noted in `log`."""

    topic = "rows"

    def __init__(self, logs: dict[int, list[bytes | None]], log: list[Any]) -> None:
        super().__init__(logs)
        self.log = log

    def poll(self, max_records: int, timeout_s: float) -> list[PartitionBatch]:
        return [
            PartitionBatch(batch.partition, self._messages(batch)) for batch in super().poll(max_records, timeout_s)
        ]

    def _messages(self, batch: PartitionBatch) -> Sequence[Any]:
        return [
            Message(topic="rows", partition=batch.partition, offset=batch.first_offset + n, value=value)
            for n, value in enumerate(batch.values)
        ]

    def commit(self, offsets: Any, metadata: str = "") -> None:
        self.log.append(("commit", dict(offsets), metadata))
        super().commit(offsets, metadata)


def scorer(rows: int, partitions: int = 1) -> tuple[ScoreConsumer, Any, list[Any]]:
    """A scorer that reads the rows to their end; the log has its scores, states and commits in order."""
    settings, log, diary = settings_of(f"sketch.d={D}", "sketch.ell=8", "score.topic=scores"), list[Any](), Diary()
    source: Any = Topic({p: [message_of(row) for row in ordinary(rows)] for p in range(partitions)}, log)
    runtime, bases = Runtime(None), [basis_with()]  # type: ignore[arg-type]
    watch = ScoreWatch("group-score", "rows", Clock(), Clock())
    sink: Any = FakeSink(log)
    consumer = ScoreConsumer(
        settings,
        runtime,
        source,
        None,
        Intake(settings.input, BadMessageGauge(max_share=1.0, window=10, max_consecutive=10), watch),
        Questions(plan_of(), runtime, source, None),
        Bases(lambda: bases.pop() if bases else None, runtime, diary),
        AtLeastOnce(runtime, source, diary, "group-score", "rows", "states", sink),
        lambda _: {},
        FixedColumns(D),
        watch,
        diary,
        until_end=True,
    )
    return consumer, source, log


def offsets_scored(log: list[Any]) -> list[int]:
    return [json.loads(value)["offset"] for topic, _, value in log if topic == "scores"]


def test_each_row_is_scored_once_in_order() -> None:
    consumer, source, log = scorer(rows=60)
    consumer.run()
    assert offsets_scored(log) == list(range(60))
    assert source.committed_offsets == {0: 60}
    assert consumer.watch.rows == 60


def test_an_offset_is_committed_after_all_scores_before_it() -> None:
    consumer, _, log = scorer(rows=60)
    consumer.run()
    scored = 0
    for what, value, _ in log:
        scored += what == "scores"
        if what == "commit":
            assert value[0] <= scored
    assert scored == 60


def test_scoring_continues_at_the_committed_offset() -> None:
    consumer, source, log = scorer(rows=60)
    source.committed_offsets[0] = 45
    consumer.run()
    assert offsets_scored(log) == list(range(45, 60))


def test_an_assigned_partition_is_not_read_before_its_start_is_known_and_a_lost_one_is_forgotten() -> None:
    consumer, _, _ = scorer(rows=1, partitions=2)
    assert consumer.on_assign([0, 1]) == {0: None, 1: None}
    lost = consumer.partitions[0]
    consumer.on_lost([0])
    assert lost.is_released
    assert consumer.partitions.keys() == {1}
