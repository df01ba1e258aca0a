"""Partitions that come, are too many, or were begun by another."""

from __future__ import annotations

import pytest

from sfd_stream.cli.build import shape_of
from sfd_stream.worker.partitions import Phase
from tests.support.kafka import Broker
from tests.system.conftest import MakeRun, disk_or_s3_by_protocol, on_disk_and_s3
from tests.system.runs import Rows, assert_counts


@disk_or_s3_by_protocol
def test_partitions_added_while_running_start_at_their_beginning(
    kafka: Broker, make_run: MakeRun, store: str, protocol: str
) -> None:
    rows, topic = Rows.random(4_000, partitions=2), kafka.create_topic()
    kafka.produce(topic, rows.messages(0))
    run = make_run(kafka, topic, store=store, protocol=protocol)
    worker = run.begin(input={"start": "earliest"})
    worker.until(lambda: run.durable_offset(0) == 100, "the first partition")
    kafka.add_partitions(topic, 2)
    kafka.produce(topic, rows.messages(1), partition=1)
    worker.until(lambda: run.durable_offset(1) == 100, "the second")
    worker.stop()
    for partition, matrix in enumerate(rows.matrices):
        assert_counts(run.state(partition), matrix)


@on_disk_and_s3
def test_one_worker_with_all_partitions_stays_within_its_memory_and_leaves_some_unread(
    kafka: Broker, make_run: MakeRun, store: str
) -> None:
    rows, topic = Rows.random(4_000, partitions=4), kafka.create_topic(partitions=4)
    rows.produce(kafka, topic)
    run = make_run(kafka, topic, store=store)
    room = int(2.5 * shape_of(run.settings(), 0).memory_bytes())
    worker = run.begin(worker={"memory_max_bytes": room})
    worker.until(lambda: sum(run.durable_offset(p) == 50 for p in range(4)) == 2, "two of four")
    owned = list(worker.worker.partitions)
    assert [each.phase is Phase.WAITING for each in owned] == [False, False, True, True]
    assert [run.newest(each.number) is None for each in owned] == [False, False, True, True]
    other = run.begin()
    other.until(lambda: all(run.durable_offset(p) == 50 for p in range(4)), "all, with one worker more")
    worker.stop()
    other.stop()
    for partition, matrix in enumerate(rows.matrices):
        assert_counts(run.state(partition), matrix)


def test_until_the_end_partitions_without_room_are_read_one_after_the_other(kafka: Broker, make_run: MakeRun) -> None:
    rows, topic = Rows.random(3_000, partitions=3), kafka.create_topic(partitions=3)
    rows.produce(kafka, topic)
    run = make_run(kafka, topic)
    run.inside(worker={"memory_max_bytes": shape_of(run.settings(), 0).memory_bytes()})
    for partition, matrix in enumerate(rows.matrices):
        assert_counts(run.state(partition), matrix)


@pytest.mark.parametrize("protocol", ["cooperative", "kip-848"])
def test_more_workers_than_partitions_all_end(kafka: Broker, make_run: MakeRun, protocol: str) -> None:
    rows, topic = Rows.random(40_000), kafka.create_topic()
    rows.produce(kafka, topic)
    run = make_run(kafka, topic, protocol=protocol)
    workers = [run.begin(until_end=True) for _ in range(2)]
    assert [worker.end() for worker in workers] == [None, None]
    assert_counts(run.state(0), rows.matrices[0])


@pytest.mark.parametrize("protocol", ["cooperative", "kip-848"])
def test_a_worker_without_partitions_ends_when_the_others_have_done_the_work(
    kafka: Broker, make_run: MakeRun, protocol: str
) -> None:
    rows, topic = Rows.random(2_000), kafka.create_topic()
    rows.produce(kafka, topic)
    run = make_run(kafka, topic, protocol=protocol)
    working = run.begin()
    working.until(lambda: run.durable_offset(0) == 100, "the work")
    idle = run.begin(until_end=True)
    assert idle.end() is None
    working.stop()
    assert_counts(run.state(0), rows.matrices[0])
