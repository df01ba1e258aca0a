"""Snapshots of exactly the states that checkpoints hold: when they come, what is in them, what fails."""

from __future__ import annotations

import shutil
import signal
import threading
import time
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest
from confluent_kafka.admin import ConfigResource, ResourceType

from sfd_stream.cli import main
from sfd_stream.cli.build import worker_of
from sfd_stream.errors import RefusedStateError
from sfd_stream.reader.reader import SnapshotReader
from sfd_stream.state.manifest import Kind
from sfd_stream.wire.rows.encode import encode_row
from sfd_stream.wire.snapshots import Reference, SnapshotEncoder, decode_message
from tests.support.kafka import Broker
from tests.system.conftest import MakeRun
from tests.system.runs import Companion, Rows, Run, assert_counts
from tests.system.shown import (
    SELDOM,
    all_shown,
    blob_bytes,
    latest,
    order_of,
    output_topic,
    set_config,
    shown_rows,
    snapshot_in,
)

NO_CHECKPOINTS = {"every_rows": 10**9, "every_s": 3600.0}


def config_of(broker: Broker, topic: str) -> dict[str, str]:
    resource = ConfigResource(ResourceType.TOPIC, topic)
    found = broker.admin.describe_configs([resource])[resource].result(30)
    return {name: entry.value for name, entry in found.items()}


# What is in them


def test_what_is_published_is_what_the_checkpoint_holds(kafka: Broker, make_run: MakeRun) -> None:
    rows, topic, shows = Rows.random(2_000, partitions=2), kafka.create_topic(partitions=3), output_topic()
    rows.produce(kafka, topic)
    run = make_run(kafka, topic, changes={"snapshot": {"topic": shows}})
    run.inside()
    for partition, matrix in enumerate(rows.matrices):
        state, manifest = run.state(partition), run.newest(partition)
        shown = all_shown(kafka, shows, partition)[-1]
        snapshot = decode_message(shown.value)
        assert not isinstance(snapshot, Reference)
        assert_counts(state, matrix)
        assert snapshot.sketch == state.sketch()
        assert (snapshot.next_offset, snapshot.partitions) == (state.next_offset, 3)
        assert manifest is not None
        assert manifest.due is not None
        assert shown.order == order_of(manifest.state_id) == order_of(manifest.due.id) == snapshot.id.order
        assert shown.value == blob_bytes(run, shown)
        assert shown.record.key == f"{run.group}/{topic}/{partition}".encode()
        assert shown.id == snapshot.id
        assert snapshot.id.cluster == manifest.binding.cluster_id
    assert shown_rows(run, shows) == {0: 1000, 1: 1000, 2: 0}, "an empty partition is one of three, too"


def test_the_topic_is_made_compacted_with_room_for_the_largest(kafka: Broker, make_run: MakeRun) -> None:
    shows = output_topic()
    run = make_run(kafka, kafka.create_topic(), changes={"kafka": {"message.max.bytes": 3_000_000}})
    run.inside(snapshot={"topic": shows, "inline_max_bytes": 2_000_000})
    config = config_of(kafka, shows)
    assert config["cleanup.policy"] == "compact"
    assert 2_000_000 < int(config["max.message.bytes"]) < 2_200_000


@pytest.mark.parametrize("columns", ["growing", "hashed"])
def test_columns_that_grow_or_have_names_are_shown_as_they_are(kafka: Broker, make_run: MakeRun, columns: str) -> None:
    topic, shows = kafka.create_topic(), output_topic()
    features: list[Any] = ["red", "blue"] if columns == "hashed" else [3, 2000]
    kafka.produce(topic, [encode_row(features, [1.0, 2.0], packed=False)] * 20)
    sketch = {"d": 64} if columns == "hashed" else {"d": None}
    run = make_run(kafka, topic, changes={"input": {"columns": columns}, "sketch": sketch})
    run.inside(snapshot={"topic": shows})
    (snapshot,) = latest(run, shows)
    assert (snapshot.columns, snapshot.sketch.rows, snapshot.sketch.squared_frobenius) == (columns, 20, 100.0)
    if columns == "hashed":
        assert sorted(snapshot.names.values()) == ["blue", "red"]
    else:
        assert snapshot.sketch.d > 2000


def test_above_the_limit_the_message_refers_to_the_blob_and_retention_leaves_it(
    kafka: Broker, make_run: MakeRun
) -> None:
    rows, topic, shows = Rows.random(1_600), kafka.create_topic(), output_topic()
    messages = rows.messages(0)
    changes = {"snapshot": {"topic": shows, "inline_max_bytes": 500, "every_s": None, "every_rows": 1000}}
    run = make_run(kafka, topic, changes=changes)
    worker = run.begin(checkpoint={"every_s": 0.05, "keep": 1})
    kafka.produce(topic, messages[:50])
    worker.until(lambda: any(shown_rows(run, shows).values()), "the snapshot")
    before = run.newest(0)
    assert before is not None
    for end in range(55, 81, 5):
        kafka.produce(topic, messages[end - 5 : end])
        worker.until(lambda end=end: run.durable_offset(0) == end, "a checkpoint")
    worker.until(lambda: run.manifests(0)[0].number > before.number, "that old states are removed")
    shown = all_shown(kafka, shows)[-1]
    found = decode_message(shown.value)
    assert isinstance(found, Reference)
    assert (found.size, found.store) == (len(blob_bytes(run, shown)), run.url)
    assert snapshot_in(run, shown).sketch.rows == 1000
    assert shown_rows(run, shows) == {0: 1000}, "a cold reader finds what the newest message refers to"
    worker.stop()


# When they come


def test_a_snapshot_is_due_by_time_and_makes_a_checkpoint_due(kafka: Broker, make_run: MakeRun) -> None:
    rows, topic, shows = Rows.random(400), kafka.create_topic(), output_topic()
    rows.produce(kafka, topic)
    run = make_run(kafka, topic, changes={"checkpoint": NO_CHECKPOINTS})
    worker = run.begin(snapshot={"topic": shows, "every_s": 0.2})
    worker.until(lambda: run.durable_offset(0) == 20, "a checkpoint")
    worker.until(lambda: shown_rows(run, shows) == {0: 400}, "its snapshot")
    worker.stop()


def test_a_snapshot_is_due_by_rows_and_not_before(kafka: Broker, make_run: MakeRun) -> None:
    rows, topic, shows = Rows.random(1_000), kafka.create_topic(), output_topic()
    messages = rows.messages(0)
    run = make_run(kafka, topic, changes={"checkpoint": NO_CHECKPOINTS | {"keep": 100}})
    worker = run.begin(snapshot={"topic": shows, "every_s": None, "every_rows": 500})
    for end in (25, 50):
        kafka.produce(topic, messages[end - 25 : end])
        worker.until(lambda end=end: run.durable_offset(0) == end, "a checkpoint")
    worker.until(lambda: shown_rows(run, shows) == {0: 1000}, "its snapshot")
    worker.stop()
    offsets = [decode_message(shown.value).next_offset for shown in all_shown(kafka, shows)]  # type: ignore[union-attr]
    assert [offset for offset in offsets if offset] == [25, 50]


def test_a_checkpoint_without_a_due_snapshot_publishes_none(kafka: Broker, make_run: MakeRun) -> None:
    rows, topic, shows = Rows.random(600), kafka.create_topic(), output_topic()
    messages = rows.messages(0)
    run = make_run(kafka, topic, changes={"checkpoint": {"every_s": 0.05, "keep": 1000}})
    worker = run.begin(snapshot={"topic": shows, "every_s": None, "every_rows": 300})
    for end in range(5, 31, 5):
        kafka.produce(topic, messages[end - 5 : end])
        worker.until(lambda end=end: run.durable_offset(0) == end, "a checkpoint")
    worker.stop()
    made = [m for m in run.manifests(0) if m.kind is Kind.CHECKPOINT]
    dues = [order_of(m.due.id) for m in made if m.due is not None and m.due.id == m.state_id]
    assert [shown.order for shown in all_shown(kafka, shows)] == dues
    assert 0 < len(dues) < len(made)


def test_on_an_idle_topic_the_newest_is_published_again_under_its_own_id(kafka: Broker, make_run: MakeRun) -> None:
    rows, topic, shows = Rows.random(400), kafka.create_topic(), output_topic()
    rows.produce(kafka, topic)
    run = make_run(kafka, topic)
    worker = run.begin(snapshot={"topic": shows, "every_s": 0.1, "republish_s": 0.3})
    worker.until(lambda: shown_rows(run, shows) == {0: 400}, "the snapshot")
    newest, before = run.newest(0), len(all_shown(kafka, shows))
    worker.until(lambda: len(all_shown(kafka, shows)) >= before + 3, "it again")
    worker.stop()
    last = all_shown(kafka, shows)[-3:]
    assert len({(shown.order, shown.value) for shown in last}) == 1
    assert run.newest(0) == newest, "nothing is written for it"


def test_what_a_stopped_worker_did_not_show_its_successor_shows_though_nothing_comes(
    kafka: Broker, make_run: MakeRun
) -> None:
    rows, topic, shows = Rows.random(800), kafka.create_topic(), output_topic()
    messages = rows.messages(0)
    kafka.produce(topic, messages[:20])
    run = make_run(kafka, topic)
    run.inside(snapshot={"topic": shows})
    kafka.produce(topic, messages[20:])
    worker = run.start(checkpoint=NO_CHECKPOINTS, snapshot={"topic": shows, **SELDOM})
    worker.until_logged("restored")
    time.sleep(1)  # it has read by now, and nothing is due for an hour
    worker.signal(signal.SIGTERM)
    assert worker.wait() == 0, worker.log()
    assert run.durable_offset(0) > 20
    assert shown_rows(run, shows) == {0: 400}, "a last checkpoint has no time for a snapshot"
    successor = run.begin(snapshot={"topic": shows, "every_s": 0.2})
    successor.until(lambda: shown_rows(run, shows) == {0: 20 * run.durable_offset(0)}, "what is durable")
    successor.stop()


# What fails


def test_a_failed_publication_stays_due_and_the_stream_goes_on(kafka: Broker, make_run: MakeRun) -> None:
    rows, topic = Rows.random(2_000), kafka.create_topic()
    shows = kafka.create_topic(config={"cleanup.policy": "compact", "max.message.bytes": "1000"})
    rows.produce(kafka, topic)
    run = make_run(kafka, topic)
    worker = run.begin(snapshot={"topic": shows, "every_s": 0.2})
    worker.until(lambda: run.durable_offset(0) == 100, "the stream")
    owned = worker.worker.partitions.get(0)
    assert owned is not None
    worker.until(lambda: len({m.due.id for m in run.manifests(0) if m.due is not None}) > 1, "trying again")
    assert owned.chain.has_pending_snapshot
    assert not [shown for shown in all_shown(kafka, shows) if snapshot_in(run, shown).sketch.rows]
    set_config(kafka, shows, {"max.message.bytes": "2000000"})
    worker.until(lambda: shown_rows(run, shows) == {0: 2000}, "what was due")
    worker.stop()


def test_until_the_end_a_failed_publication_is_waited_for(kafka: Broker, make_run: MakeRun) -> None:
    rows, topic = Rows.random(1_000), kafka.create_topic()
    shows = kafka.create_topic(config={"max.message.bytes": "1000"})
    rows.produce(kafka, topic)
    run = make_run(kafka, topic)
    worker = run.begin(until_end=True, snapshot={"topic": shows, "every_s": 0.3})
    worker.until(lambda: run.durable_offset(0) == 50 and run.newest(0).due, "the end")
    set_config(kafka, shows, {"max.message.bytes": "2000000"})
    assert worker.end() is None
    assert shown_rows(run, shows) == {0: 1000}


class Blocked(SnapshotEncoder):
    """A snapshot that takes as long as the test likes."""

    begun = threading.Event()
    gate = threading.Event()

    def encode(self, *given: Any, **named: Any) -> bytes:
        self.begun.set()
        self.gate.wait(30)
        return super().encode(*given, **named)


def test_a_slow_snapshot_holds_up_neither_the_loop_nor_the_sketch(kafka: Broker, make_run: MakeRun) -> None:
    rows, topic, shows = Rows.random(2_000), kafka.create_topic(), output_topic()
    messages = rows.messages(0)
    kafka.produce(topic, messages[:5])
    run = make_run(kafka, topic)
    settings = run.settings(snapshot={"topic": shows, "every_s": 0.1})
    worker, source = worker_of(settings, until_end=False)
    worker.delivery.encoder = Blocked(**vars(worker.delivery.encoder))  # type: ignore[misc]
    companion = Companion(worker, source)
    run.companions.append(companion)
    try:
        companion.until(Blocked.begun.is_set, "a snapshot in the making")
        kafka.produce(topic, messages[5:])
        companion.until(lambda: next(iter(worker.partitions)).live.facts.next_offset == 100, "reading and sketching")
        assert not all_shown(kafka, shows)
    finally:
        Blocked.gate.set()
    companion.until(lambda: shown_rows(run, shows) == {0: 2000}, "all of it")
    companion.stop()


# A state begun again


def settings_file(run: Run, folder: Path, shows: str) -> Path:
    """The run's settings as a person writes them."""
    path = folder / "settings.yaml"
    path.write_text(
        f"kafka: {{bootstrap.servers: '{run.broker.bootstrap}', group.id: {run.group}, log_level: 0}}\n"
        f"input: {{topic: {run.topic}}}\nsketch: {{d: 100, ell: 10, buffer_max_bytes: 60000}}\n"
        f"checkpoint: {{url: '{run.url}'}}\nsnapshot: {{topic: {shows}}}\n"
    )
    return path


@pytest.mark.parametrize("how", ["reset", "new group"])
def test_after_the_store_was_lost_readers_take_the_new_state_for_newer(
    kafka: Broker, make_run: MakeRun, tmp_path: Path, how: str
) -> None:
    rows, topic, shows = Rows.random(400), kafka.create_topic(), output_topic()
    rows.produce(kafka, topic)
    run = make_run(kafka, topic, changes={"snapshot": {"topic": shows}})
    for _ in range(3):
        run.inside()  # claims raise the epoch
    with SnapshotReader(kafka.bootstrap, shows, log_level=0) as reader:
        (before,) = reader.latest()
        shutil.rmtree(urlsplit(run.url).path)
        if how == "reset":
            with pytest.raises(RefusedStateError, match="checkpoint reset"):
                run.inside()
            file = settings_file(run, tmp_path, shows)
            assert main(["checkpoint", "reset", "0", "--to", "earliest", "--yes", "--config", str(file)]) == 0
        else:
            kafka.admin.delete_consumer_groups([run.group])[run.group].result(30)
        rows.produce(kafka, topic)
        run.inside()
        (after,) = reader.latest()
        assert after.id.order > before.id.order
        assert after.sketch.rows == 800
