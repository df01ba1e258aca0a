"""Brokers and stores that go away for a while: the worker goes on, up to a limit, then waits; nothing is lost."""

from __future__ import annotations

import threading
import time
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import KafkaError, KafkaException

from sfd_stream.errors import BrokerRefusedError, StoreUnavailableError
from sfd_stream.kafka.topics import ensure_topic
from sfd_stream.tools import topics
from tests.support.kafka import Broker
from tests.support.kafka_fixtures import PrivateBrokers
from tests.support.seaweed import SeaweedServer
from tests.system.conftest import MakeRun
from tests.system.runs import Rows, assert_counts, assert_same
from tests.system.shown import output_topic

S3 = [pytest.mark.real_s3, pytest.mark.xdist_group("s3")]


def test_a_broker_killed_in_mid_stream_is_waited_for(private_broker: PrivateBrokers, make_run: MakeRun) -> None:
    broker = private_broker()
    topic = broker.create_topic(partitions=2, config={"flush.messages": "1"})
    rows = Rows.random(20_000, partitions=2)
    messages = [rows.messages(partition) for partition in range(2)]
    for partition in range(2):
        broker.produce(topic, messages[partition][:250], partition=partition)
    run = make_run(broker, topic)
    worker = run.begin()
    worker.until(lambda: all(run.durable_offset(p) == 250 for p in range(2)), "the first half")
    broker.kill()
    worker.until(lambda: worker.source.unavailable_s is not None, "that it is noticed")
    broker.restart()
    for partition in range(2):
        broker.produce(topic, messages[partition][250:], partition=partition)
    worker.until(lambda: all(run.durable_offset(p) == 500 for p in range(2)), "the second half")
    worker.stop()
    for partition, matrix in enumerate(rows.matrices):
        assert_counts(run.state(partition), matrix)


@pytest.mark.slow
def test_a_broker_away_for_too_long_is_given_up(private_broker: PrivateBrokers, make_run: MakeRun) -> None:
    broker = private_broker()
    topic = broker.create_topic()
    rows = Rows.random(1_000)
    rows.produce(broker, topic)
    run = make_run(broker, topic)
    worker = run.begin(checkpoint={"give_up_s": 2})
    worker.until(lambda: run.durable_offset(0) == 50, "reading")
    broker.kill()
    error = worker.end()
    assert isinstance(error, BrokerRefusedError), error
    assert "no broker has answered for" in str(error)


def test_a_broker_unavailable_while_the_output_topic_is_created_is_waited_for(
    kafka: Broker, make_run: MakeRun, monkeypatch: pytest.MonkeyPatch
) -> None:
    topic, rows = kafka.create_topic(), Rows.random(1_000)
    rows.produce(kafka, topic)
    run, real, failures = make_run(kafka, topic, changes={"snapshot": {"topic": output_topic()}}), ensure_topic, [3]

    def flaky(admin: Any, *args: Any, **named: Any) -> int:
        if failures[0]:
            failures[0] -= 1
            monkeypatch.setattr(admin, "list_topics", no_answer)
            return real(admin, *args, **{**named, "timeout_s": 0.1})
        return real(admin, *args, **named)

    monkeypatch.setattr(topics, "ensure_topic", flaky)
    run.inside()
    assert failures == [0]
    assert_counts(run.state(0), rows.matrices[0])


def no_answer(*_: Any, **__: Any) -> Any:
    raise KafkaException(KafkaError(KafkaError._TRANSPORT))


@pytest.fixture
def own_s3(tmp_path: Path) -> SeaweedServer:
    with SeaweedServer.start(tmp_path / "seaweed") as server:
        yield server


@pytest.mark.real_s3
def test_a_store_away_is_read_ahead_of_up_to_a_limit_and_nothing_is_lost(
    kafka: Broker, make_run: MakeRun, own_s3: SeaweedServer
) -> None:
    topic, rows = kafka.create_topic(), Rows.random(60_000)
    messages = rows.messages(0)
    kafka.produce(topic, messages[:100])
    options = own_s3.options(timeout_s="2", retry_s="1", connect_timeout_s="1", max_retries="1")
    run = make_run(kafka, topic, url=own_s3.new_url(), options=options)
    worker = run.begin()
    worker.until(lambda: run.durable_offset(0) == 100, "the first rows")
    own_s3.kill()
    kafka.produce(topic, messages[100:])
    owned = worker.worker.partitions.get(0)
    assert owned is not None
    worker.until(lambda: owned.store_behind, "the pause")
    state = owned.live.state
    assert state is not None
    worker.until(lambda: state.next_offset > 100, "going on without the store")
    assert state.next_offset < 1500, "but not for ever"
    own_s3.restart()
    worker.until(lambda: run.durable_offset(0) == len(messages), "the rest")
    worker.stop()
    assert_counts(run.state(0), rows.matrices[0])
    undisturbed = make_run(kafka, topic)
    undisturbed.inside()
    assert_same(run.state(0), undisturbed.state(0))


@pytest.mark.real_s3
def test_a_store_away_for_too_long_ends_it(kafka: Broker, make_run: MakeRun, own_s3: SeaweedServer) -> None:
    topic = kafka.create_topic()
    options = own_s3.options(timeout_s="1", retry_s="0", connect_timeout_s="1", max_retries="0")
    run = make_run(kafka, topic, url=own_s3.new_url(), options=options)
    worker = run.begin(checkpoint={"give_up_s": 2, "revoke_budget_s": 1})
    worker.until(lambda: run.newest(0) is not None, "a claim")
    own_s3.kill()
    Rows.random(1_000).produce(kafka, topic)
    error = worker.end()
    assert isinstance(error, StoreUnavailableError), error
    assert error.exit_code == 5


def test_a_slow_store_holds_up_neither_polling_nor_a_revoke_beyond_its_budget(kafka: Broker, make_run: MakeRun) -> None:
    topic = kafka.create_topic()
    rows = Rows.random(2_000)
    rows.produce(kafka, topic)
    run = make_run(kafka, topic)
    gate = threading.Event()

    def reach(point: str) -> None:
        if point == "before-blobs":
            gate.wait(30)

    worker = run.begin(reach=reach, checkpoint={"revoke_budget_s": 0.5, "every_s": 0.1})
    worker.until(lambda: worker.worker.progress.rows == 2_000, "reading")
    turns = [0]
    turn = worker.worker.turn

    def counted() -> None:
        turns[0] += 1
        turn()

    worker.worker.turn = counted  # type: ignore[method-assign]
    worker.until(lambda: turns[0] > 5, "polling while a checkpoint hangs")
    began = time.monotonic()
    worker.stop()
    assert time.monotonic() - began < 15
    newest = run.newest(0)
    assert newest is not None
    assert newest.next_offset == 0, "let go: nothing became durable"
    gate.set()
    run.inside()
    assert_counts(run.state(0), rows.matrices[0])


def test_a_partition_that_was_paused_for_its_store_and_lost_is_read_when_it_comes_back(
    kafka: Broker, make_run: MakeRun
) -> None:
    """The client keeps a partition's pause: forgotten by us, it would be silent for ever."""
    topic, rows = kafka.create_topic(partitions=2), Rows.random(4_000, partitions=2)
    rows.produce(kafka, topic)
    run = make_run(kafka, topic)
    gate = threading.Event()

    def reach(point: str) -> None:
        if point == "before-blobs":
            gate.wait(60)

    quick = {"every_rows": 100, "every_s": 0.1, "revoke_budget_s": 0.5}
    worker = run.begin(reach=reach, checkpoint=quick, worker={"batch_records": 5})
    worker.until(lambda: worker.source.paused == {0, 1}, "that it waits for the store")
    other = run.begin(checkpoint=quick)
    other.until(lambda: len(other.source.assigned) == 1, "that one goes to another worker")
    other.stop()
    worker.until(lambda: worker.source.assigned == {0, 1}, "that it comes back")
    gate.set()
    worker.until(lambda: [run.durable_offset(p) for p in range(2)] == rows.ends(), "all rows")
    worker.stop()
    for partition, matrix in enumerate(rows.matrices):
        assert_counts(run.state(partition), matrix)
