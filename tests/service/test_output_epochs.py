"""The output topic is read once for all partitions that came together, and anew for those that come later."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import pytest

from sfd_stream import SnapshotReader
from sfd_stream.cli import wiring
from sfd_stream.reader.merged import MergedSketch
from sfd_stream.service.claims import OutputEpochs
from tests.parts.kafka import Broker
from tests.parts.watched import Clock
from tests.reader.made import (
    CLEANED_SOON,
    holds,
    message,
    publish_quickly,
    records_in,
    rows_of,
    sketch_of,
    snapshot,
)
from tests.service.conftest import MakeRun
from tests.service.runs import Rows, Run
from tests.service.shown import output_topic


def test_it_is_read_once_for_an_assignment_and_again_for_the_next() -> None:
    clock, readings = Clock(10.0), [{0: 3, 1: 4}, {0: 5}]
    epochs = OutputEpochs(lambda: readings.pop(0), clock)
    with ThreadPoolExecutor(8) as threads:
        assert list(threads.map(lambda partition: epochs.of(partition, 10.0), (0, 1, 2))) == [3, 4, None]
    clock.now = 20.0
    assert epochs.of(0, 15.0) == 5
    assert readings == []


def test_a_reading_that_fails_is_no_answer() -> None:
    answers = [TimeoutError("away"), {0: 7}]

    def read() -> dict[int, int]:
        answer = answers.pop(0)
        if isinstance(answer, Exception):
            raise answer
        return answer

    epochs = OutputEpochs(read, Clock())
    with pytest.raises(TimeoutError, match="away"):
        epochs.of(0, 0.0)
    assert epochs.of(0, 0.0) == 7


def test_a_run_of_64_partitions_over_a_long_past_is_read_cold_as_one_sketch_within_its_bound(
    kafka: Broker, make_run: MakeRun, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of 10,000 past snapshots of the same group, by a state that was lost. They are small: a message is what costs.

    The worker reads them once, for all its partitions, and goes on above them.
    """
    rows, topic, shows = Rows.random(64 * 40, partitions=64), kafka.create_topic(partitions=64), output_topic()
    rows.produce(kafka, topic)
    run = make_run(kafka, topic, changes={"snapshot": {"topic": shows}})
    kafka.create_topic(partitions=4, config=CLEANED_SOON, name=shows)
    publish_past(kafka, run, 10_000)
    read, times = wiring.output_epochs, []
    monkeypatch.setattr(wiring, "output_epochs", lambda settings: times.append(1) or read(settings))
    run.inside()
    assert times == [1]
    merged = read_cold(kafka, shows)
    assert merged.complete
    assert {part.id.partition: part.id.epoch for part in merged.parts} == dict.fromkeys(range(64), 2)
    assert holds(rows.matrices, merged.sketch)
    kafka._wait_for(lambda: records_in(kafka, shows) < 1000, "compaction")
    assert read_cold(kafka, shows).sketch == merged.sketch


def publish_past(kafka: Broker, run: Run, count: int) -> None:
    """As the run's group would have, number by number; `count` of them, or a few more."""
    small, numbers = sketch_of(rows_of(0, n=2, d=2), 2), range(1, count // 64 + 2)
    ids = {"cluster": kafka.admin.list_topics(timeout=10).cluster_id, "group": run.group, "topic": run.topic}
    past = (snapshot(small, p, partitions=64, number=number, **ids) for number in numbers for p in range(64))
    publish_quickly(kafka, run.settings().snapshot.topic or "", map(message, past))


def read_cold(kafka: Broker, topic: str) -> MergedSketch:
    with SnapshotReader(kafka.bootstrap, topic, log_level=0) as reader:
        return reader.merged()
