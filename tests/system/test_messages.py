"""Messages that are not rows: put aside and counted, or the worker stops, and nothing is lost either way."""

from __future__ import annotations

import time
from typing import Any

import pytest
from confluent_kafka import OFFSET_BEGINNING, Consumer, Producer, TopicPartition

from sfd_stream.errors import TooManyBadMessagesError
from tests.support.kafka import Broker
from tests.system.conftest import MakeRun, on_disk_and_s3
from tests.system.runs import Rows, Run, assert_counts

BAD = b"\xc1 not msgpack"


def read_all(broker: Broker, topic: str, count: int) -> list[Any]:
    consumer = Consumer({"bootstrap.servers": broker.bootstrap, "group.id": "reader", "enable.auto.commit": False})
    try:
        consumer.assign([TopicPartition(topic, 0, OFFSET_BEGINNING)])
        found: list[Any] = []
        deadline = time.monotonic() + 20
        while len(found) < count and time.monotonic() < deadline:
            found += [message for message in consumer.consume(100, 0.2) if message.error() is None]
        return found
    finally:
        consumer.close()


def single_rows(count: int) -> Rows:
    return Rows.random(count, rows_per_message=None)


def poisoned(broker: Broker, rows: Rows, at: int, bad: int = 1) -> str:
    """A topic with `bad` bad messages after the first `at` good ones."""
    topic = broker.create_topic()
    messages = rows.messages(0)
    broker.produce(topic, messages[:at])
    broker.produce(topic, [BAD] * bad, key=b"k", headers=[("from", b"there"), ("none", None)])
    broker.produce(topic, messages[at:])
    return topic


@on_disk_and_s3
def test_a_bad_message_goes_to_the_dead_letters_whole_and_the_stream_goes_on(
    kafka: Broker, make_run: MakeRun, store: str
) -> None:
    rows, dead = single_rows(1000), kafka.create_topic()
    run = make_run(kafka, poisoned(kafka, rows, at=300), store=store, changes={"dead_letters": {"topic": dead}})
    run.inside()
    state = run.state(0)
    assert_counts(state, rows.matrices[0])
    assert (state.bad, state.tombstones, state.next_offset) == (1, 0, 1001)
    (letter,) = read_all(kafka, dead, 1)
    headers = letter.headers()
    assert (letter.value(), letter.key(), headers[:2]) == (BAD, b"k", [("from", b"there"), ("none", None)])
    told = dict(headers[2:])
    assert (told["sfd-topic"], told["sfd-partition"], told["sfd-offset"]) == (run.topic.encode(), b"0", b"300")
    assert told["sfd-reason"]
    assert told["sfd-topic-id"]


def test_without_a_dead_letter_topic_the_first_bad_message_stops_it_and_nothing_is_lost(
    kafka: Broker, make_run: MakeRun
) -> None:
    rows = single_rows(1000)
    run = make_run(kafka, poisoned(kafka, rows, at=300), changes={"worker": {"batch_records": 50}})
    with pytest.raises(TooManyBadMessagesError, match=r"/0 offset 300 is not rows .*dead_letters\.topic") as caught:
        run.inside()
    assert caught.value.exit_code == 4
    assert 0 < run.durable_offset(0) <= 300, "what was whole before it is kept, and nothing is passed"
    run.inside(dead_letters={"topic": kafka.create_topic()})
    assert_counts(run.state(0), rows.matrices[0])


def test_too_many_in_a_row_stop_it_and_a_raised_limit_loses_nothing(kafka: Broker, make_run: MakeRun) -> None:
    rows, dead = single_rows(500), kafka.create_topic()
    run = make_run(kafka, poisoned(kafka, rows, at=100, bad=20), changes={"worker": {"batch_records": 30}})
    with pytest.raises(TooManyBadMessagesError, match="10 bad messages in a row"):
        run.inside(dead_letters={"topic": dead, "max_consecutive": 10})
    assert run.durable_offset(0) <= 109, "no offset is passed whose message is not safe"
    run.inside(dead_letters={"topic": dead, "max_consecutive": 21})
    state = run.state(0)
    assert_counts(state, rows.matrices[0])
    assert state.bad == 20
    offsets = {dict(letter.headers())["sfd-offset"] for letter in read_all(kafka, dead, 30)}
    assert offsets == {str(offset).encode() for offset in range(100, 120)}, "at least once each"


def test_tombstones_are_counted_and_are_neither_good_nor_bad(kafka: Broker, make_run: MakeRun) -> None:
    rows, topic = single_rows(60), kafka.create_topic()
    messages = rows.messages(0)
    kafka.produce(topic, [*messages[:30], None, BAD, None, BAD, None, *messages[30:]])
    run = make_run(kafka, topic, changes={"dead_letters": {"topic": kafka.create_topic(), "max_consecutive": 2}})
    with pytest.raises(TooManyBadMessagesError, match="2 bad messages in a row"):
        run.inside()
    run.inside(dead_letters={"topic": kafka.create_topic(), "max_consecutive": 3})
    state = run.state(0)
    assert_counts(state, rows.matrices[0])
    assert (state.bad, state.tombstones) == (2, 3)


def test_only_bad_messages_move_the_offset_too(kafka: Broker, make_run: MakeRun) -> None:
    topic = kafka.create_topic()
    kafka.produce(topic, [BAD, None])
    run = make_run(kafka, topic, changes={"dead_letters": {"topic": kafka.create_topic()}})
    run.inside()
    assert run.durable_offset(0) == 2
    assert (run.state(0).bad, run.state(0).tombstones) == (1, 1)


def test_an_empty_topic_has_its_end_at_once(kafka: Broker, make_run: MakeRun) -> None:
    run = make_run(kafka, kafka.create_topic(partitions=2))
    run.inside()
    assert [run.state(p).rows for p in range(2)] == [0, 0]
    run.inside()


def test_a_transaction_s_control_records_at_the_end_are_passed(kafka: Broker, make_run: MakeRun) -> None:
    rows, topic = single_rows(50), kafka.create_topic(partitions=2)
    producer = Producer({"bootstrap.servers": kafka.bootstrap, "transactional.id": topic, "log_level": 0})
    producer.init_transactions(30)
    for commit in (False, True):
        producer.begin_transaction()
        for value in rows.messages(0):
            producer.produce(topic, value, partition=0)
        producer.flush(30)
        producer.commit_transaction(30) if commit else producer.abort_transaction(30)
    run = make_run(kafka, topic, changes={"kafka": {"isolation.level": "read_committed"}})
    run.inside()
    assert_counts(run.state(0), rows.matrices[0])
    assert run.durable_offset(0) == 102, "two markers, of which the last is behind all records"
    assert _committed(run) == {0: 102, 1: 0}


def _committed(run: Run) -> dict[int, int]:
    consumer = Consumer({"bootstrap.servers": run.broker.bootstrap, "group.id": run.group})
    try:
        found = consumer.committed([TopicPartition(run.topic, p) for p in range(2)], 10)
        return {tp.partition: tp.offset for tp in found}
    finally:
        consumer.close()
