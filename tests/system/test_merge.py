"""The merger on real Kafka: the newest of every part, once, in one published sketch; a tree of them; one replica."""

from __future__ import annotations

import subprocess
import sys
import time
from typing import TYPE_CHECKING, Any

import pytest
import structlog

from sfd_stream import SnapshotReader
from sfd_stream.errors import BrokerRefusedError, BrokerUnavailableError, FencedError
from sfd_stream.kafka.producer import Sink
from sfd_stream.merge import MergePlan, Merger
from sfd_stream.observe.merge_status import MergeWatch
from sfd_stream.threads import DaemonExecutor
from tests.unit.reader.made import holds, message, publish, rows_of, sketch_of, snapshot

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from tests.support.kafka import Broker
    from tests.support.kafka_fixtures import PrivateBrokers


class Clock:
    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def make(kafka: Broker) -> Iterator[Callable[..., Merger]]:
    readers: list[SnapshotReader] = []

    def reader(topic: str) -> SnapshotReader:
        readers.append(SnapshotReader(kafka.bootstrap, topic))
        return readers[-1]

    def merger(inputs: list[str], topic: str, clock: Any = time.monotonic, **plan: Any) -> Merger:
        return Merger(
            MergePlan(**{"group": "merge", "topic": topic, "every_s": 0.3, "republish_s": 600.0} | plan),
            [reader(name) for name in inputs],
            reader(topic),
            Sink({"bootstrap.servers": kafka.bootstrap}),
            DaemonExecutor(1, "merge"),
            MergeWatch("merge", topic, clock, lambda: 2000.0),
            clock=clock,
            wall_clock=lambda: 2000.0,
            log=structlog.get_logger(),
        )

    yield merger
    for one in readers:
        one.close()


def read(kafka: Broker, topic: str) -> Any:
    with SnapshotReader(kafka.bootstrap, topic, wall_clock=lambda: 2000.0) as reader:
        return reader.merged()


def test_a_replaced_part_is_really_gone_and_a_stale_one_never_comes(kafka: Broker, make: Callable[..., Merger]) -> None:
    topic, out = kafka.create_topic(), kafka.create_topic()
    publish(kafka, topic, [message(snapshot(sketch_of(rows_of(p)), p, partitions=2, epoch=2)) for p in (0, 1)])
    merger = make([topic], out)
    merger.start()
    merger.turn()
    assert holds([rows_of(0), rows_of(1)], read(kafka, out).sketch)
    newer = message(snapshot(sketch_of(rows_of(7, n=9)), 0, partitions=2, epoch=3))
    stale = message(snapshot(sketch_of(rows_of(8, n=11)), 1, partitions=2, epoch=1, number=99))
    publish(kafka, topic, [newer, stale])
    while merger.published < 2:
        merger.turn()
    found = read(kafka, out)
    assert holds([rows_of(7, n=9), rows_of(1)], found.sketch)
    assert [(part.id.partition, part.id.epoch) for part in found.parts] == [(0, 3), (1, 2)]
    assert found.complete


def test_merges_form_a_tree_that_still_tells_what_is_missing(kafka: Broker, make: Callable[..., Merger]) -> None:
    regions = {name: kafka.create_topic() for name in ("east", "west")}
    middles = {name: kafka.create_topic() for name in regions}
    world = kafka.create_topic()
    matrices = {(name, p): rows_of(10 * p + len(name) * (name == "east"), d=8 + p) for name in regions for p in (0, 1)}
    for name, topic in regions.items():
        made = [
            snapshot(
                sketch_of(matrices[name, p]), p, cluster=name, partitions=3 if name == "east" else 2, columns="growing"
            )
            for p in (0, 1)
        ]
        publish(kafka, topic, map(message, made))
        regional = make([topic], middles[name])
        regional.start()
        regional.turn()
    top = make(list(middles.values()), world, ell=7)
    top.start()
    top.turn()
    found = read(kafka, world)
    assert holds(list(matrices.values()), found.sketch)
    assert found.sketch.ell == 7
    assert found.missing == ("east:rows/2",)
    assert set(found.ages_s.values()) == {1000.0}


def test_after_a_restart_it_goes_on_above_its_own_newest_message(kafka: Broker, make: Callable[..., Merger]) -> None:
    topic, out = kafka.create_topic(), kafka.create_topic()
    publish(kafka, topic, [message(snapshot(sketch_of(rows_of(0))))])
    for epoch in (1, 2, 3):
        merger = make([topic], out)
        merger.start()
        merger.turn()
        assert merger.last is not None
        assert merger.last.order == (epoch, 1)
    assert holds([rows_of(0)], read(kafka, out).sketch)


def test_a_second_replica_fences_the_first(kafka: Broker, make: Callable[..., Merger]) -> None:
    topic, out = kafka.create_topic(), kafka.create_topic()
    publish(kafka, topic, [message(snapshot(sketch_of(rows_of(0))))])
    first, second = make([topic], out), make([topic], out)
    for merger in (first, second):
        merger.start()
        merger.turn()
    first.own.refresh()
    with pytest.raises(FencedError, match=r"another merger publishes merge/.*/0 \(2, 1\)"):
        first.turn()
    second.turn()


def test_it_waits_for_a_first_part_and_is_silent_when_nothing_changes(
    kafka: Broker, make: Callable[..., Merger]
) -> None:
    topic, out, clock = kafka.create_topic(), kafka.create_topic(), Clock()
    merger = make([topic], out, clock, republish_s=50.0)
    merger.start()
    merger.turn()
    assert merger.published == 0
    publish(kafka, topic, [message(snapshot(sketch_of(rows_of(0))))])
    while not merger.published:
        merger.turn()
    sent = end_of(kafka, out)
    merger.turn()
    assert end_of(kafka, out) == sent
    clock.now = 51.0
    merger.turn()  # the very same bytes again, for cold readers that a stale message misled
    assert end_of(kafka, out) == sent + 1
    assert merger.published == 1


def end_of(kafka: Broker, topic: str) -> int:
    from confluent_kafka import Consumer, TopicPartition

    consumer = Consumer({"bootstrap.servers": kafka.bootstrap, "group.id": "x"})
    try:
        return int(consumer.get_watermark_offsets(TopicPartition(topic, 0), 10)[1])
    finally:
        consumer.close()


def test_a_merge_too_large_for_its_topic_says_what_to_raise(kafka: Broker, make: Callable[..., Merger]) -> None:
    topic, out = kafka.create_topic(), kafka.create_topic(config={"max.message.bytes": "500"})
    publish(kafka, topic, [message(snapshot(sketch_of(rows_of(0))))])
    merger = make([topic], out)
    merger.start()
    with pytest.raises(BrokerRefusedError, match=r"larger than topic .* takes: raise kafka.message.max.bytes"):
        merger.turn()


@pytest.mark.parametrize("give_up_s", [600.0, 0.0])
def test_a_broker_unavailable_while_a_merge_starts_is_waited_for(
    kafka: Broker, make: Callable[..., Merger], monkeypatch: pytest.MonkeyPatch, give_up_s: float
) -> None:
    topic, out = kafka.create_topic(), kafka.create_topic()
    publish(kafka, topic, [message(snapshot(sketch_of(rows_of(0)), 0))])
    merger, real, failures = make([topic], out, give_up_s=give_up_s), SnapshotReader.refresh, [2]

    def flaky(reader: SnapshotReader, *args: Any) -> bool:
        if failures[0]:
            failures[0] -= 1
            raise BrokerUnavailableError("no answer")
        return real(reader, *args)

    monkeypatch.setattr(SnapshotReader, "refresh", flaky)
    if not give_up_s:
        with pytest.raises(BrokerUnavailableError):
            merger.start()
        return
    merger.start()
    merger.turn()
    assert holds([rows_of(0)], read(kafka, out).sketch)


@pytest.mark.slow
def test_a_merge_survives_a_broker_that_is_down_for_20_s_while_it_starts(
    private_broker: PrivateBrokers, tmp_path: Path
) -> None:
    broker = private_broker()
    topic, out = broker.create_topic(config={"flush.messages": "1"}), broker.create_topic()
    publish(broker, topic, [message(snapshot(sketch_of(rows_of(0)), 0))])
    broker.kill()
    command = [sys.executable, "-m", "sfd_stream.cli", "merge", "--broker", broker.bootstrap]
    given = ("kafka.group.id=merge", f"merge.topics={topic}", f"merge.topic={out}", "http.port=0")
    command += [part for setting in given for part in ("--set", setting)]
    with (tmp_path / "log").open("wb") as log:
        process = subprocess.Popen(command, stderr=log)
    try:
        time.sleep(20)
        assert process.poll() is None, (tmp_path / "log").read_text()
        broker.restart()
        with SnapshotReader(broker.bootstrap, out, wall_clock=lambda: 2000.0) as reader:
            assert holds([rows_of(0)], next(reader.watch(every_s=0.2)).sketch)
        process.terminate()
        assert process.wait(60) == 0
    finally:
        process.kill()
        process.wait()
