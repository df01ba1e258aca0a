"""The output topic: only the epochs of one's own partitions count, and a run goes on above them."""

from __future__ import annotations

import shutil
from pathlib import Path
from urllib.parse import unquote, urlsplit

import pytest

from sfd_stream import SnapshotReader
from sfd_stream.cli import build
from sfd_stream.reader.merged import MergedSketch
from tests.support.kafka import Broker
from tests.system.conftest import MakeRun
from tests.system.runs import Rows, Run
from tests.system.shown import output_topic
from tests.unit.reader.made import (
    CLEANED_SOON,
    holds,
    message,
    publish_quickly,
    records_in,
    rows_of,
    sketch_of,
    snapshot,
)


@pytest.mark.parametrize("delivery", ["idempotent", "transactional"])
def test_readers_follow_a_store_that_was_put_back_to_a_backup(
    kafka: Broker, make_run: MakeRun, tmp_path: Path, delivery: str
) -> None:
    """A backup of the first worker's state is put back after three more owners have published."""
    rows, topic, shows = Rows.random(400, partitions=2), kafka.create_topic(partitions=2), output_topic()
    run = make_run(kafka, topic, changes={"snapshot": {"topic": shows, "delivery": delivery}})
    folder, backup = Path(unquote(urlsplit(run.url).path)), tmp_path / "backup"
    for turn in range(4):
        for partition in range(2):
            kafka.produce(topic, rows.messages(partition)[turn * 2 : (turn + 1) * 2], partition=partition)
        run.inside()
        if turn == 0:
            shutil.copytree(folder, backup)
    shutil.rmtree(folder)
    shutil.copytree(backup, folder)
    with SnapshotReader(kafka.bootstrap, shows, log_level=0) as live:
        before = {part.id.partition: part.id.epoch for part in live.merged().parts}
        for partition in range(2):
            kafka.produce(topic, rows.messages(partition)[8:], partition=partition)
        run.inside()
        for merged in (live.merged(), read_cold(kafka, shows)):
            assert {part.id.partition: part.id.epoch for part in merged.parts} == {p: e + 1 for p, e in before.items()}
            assert holds(rows.matrices, merged.sketch)


@pytest.mark.slow
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
    read, times = build.output_epochs, []
    monkeypatch.setattr(build, "output_epochs", lambda settings: times.append(1) or read(settings))
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
