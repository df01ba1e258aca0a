"""A scorer on a real broker: each row is scored once, by a basis that has not counted it or says that it has."""

from __future__ import annotations

import signal
import threading
import time

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition

from sfd_stream.cli.commands.score import consumer_of, read_states
from sfd_stream.errors import BrokerRefusedError, RefusedStateError, TooManyBadMessagesError
from sfd_stream.score.consumer import ROWS_MAX
from tests.support.kafka import Broker
from tests.support.slow import smoke_first
from tests.system.conftest import MakeRun
from tests.system.fakes import Diary
from tests.system.runs import Rows, wait_until
from tests.unit.score.scored import Scorer, Scoring, every_row, records_of

DELIVERIES = ["transactional", "at-least-once"]


@pytest.mark.parametrize("delivery", DELIVERIES)
def test_each_row_is_scored_once_and_names_its_origin_and_basis(
    kafka: Broker, make_run: MakeRun, delivery: str
) -> None:
    topic, rows = kafka.create_topic(partitions=2), Rows.random(1_000, partitions=2)
    scoring = Scoring.of(make_run(kafka, topic), delivery=delivery)
    rows.produce(kafka, topic)
    scoring.sketch()
    more = Rows.random(600, partitions=2, seed=1)
    more.produce(kafka, topic)
    watch = scoring.inside().watch
    assert watch.rows == watch.written == 1_600
    scores, counts = scoring.all_scores(1_600), scoring.counts()
    assert set(counts.values()) == {1}
    assert {place for place in counts if place[1] < 25} == every_row(rows)
    assert len(counts) == 1_600
    assert {score["basis"]["id"] for score in scores} == {scores[0]["basis"]["id"]}
    assert all(score["basis"]["counted"] == (score["offset"] < 25) for score in scores)
    assert scoring.committed() == {0: 40, 1: 40}
    assert scoring.inside().watch.rows == 0, "nothing is scored twice"


def test_before_the_first_snapshot_nothing_is_scored_and_nothing_is_lost(kafka: Broker, make_run: MakeRun) -> None:
    """Also with input.start latest: what comes after the first start is scored, also across a restart."""
    topic, rows = kafka.create_topic(), Rows.random(400)
    messages = rows.messages(0)
    scoring = Scoring.of(make_run(kafka, topic, changes={"input": {"start": "latest"}}))
    kafka.produce(topic, messages[:5])
    first = scoring.begin()
    wait_until(lambda: scoring.committed() == {0: 5}, "the first offset")
    kafka.produce(topic, messages[5:10])
    wait_until(lambda: first.consumer.watch.doing == "waiting for a basis to score rows by", "the status")
    assert not first.consumer.watch.ready
    first.stop()
    assert scoring.committed() == {0: 5}
    second = scoring.begin()
    scoring.sketch(input={"start": "earliest"})
    kafka.produce(topic, messages[10:])
    scoring.until_scored({0: 20})
    second.stop()
    assert {place[1] for place in scoring.counts()} == set(range(5, 20))
    assert {score["basis"]["counted"] for score in scoring.scores() if score["offset"] >= 10} == {False}


def test_a_claim_that_waits_for_an_open_transaction_is_logged_until_it_ends(
    kafka: Broker, make_run: MakeRun, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sfd_stream.loop.jobs.STUCK_S", 0.5)
    topic, rows = kafka.create_topic(), Rows.random(200)
    rows.produce(kafka, topic)
    scoring = Scoring.of(make_run(kafka, topic))
    scoring.sketch()
    member = Consumer({"bootstrap.servers": kafka.bootstrap, "group.id": scoring.settings().score_group})
    other = Producer({"bootstrap.servers": kafka.bootstrap, "transactional.id": f"other-{topic}"})
    other.init_transactions(30)
    other.begin_transaction()
    other.send_offsets_to_transaction([TopicPartition(topic, 0, 5)], member.consumer_group_metadata(), 30)
    member.close()
    consumer, diary = consumer_of(scoring.settings()), Diary()
    consumer.log = diary
    scorer = Scorer(consumer)
    event = "claim of partitions does not progress"
    wait_until(lambda: [line for line in diary.of(event) if line["reason"] != "no answer yet"], event)
    assert {(line["step"], *line["partitions"]) for line in diary.of(event)} == {("committed offsets", 0)}
    other.abort_transaction(30)
    scoring.until_scored({0: 10})
    scorer.stop()


def test_a_new_snapshot_becomes_the_basis_of_later_rows(kafka: Broker, make_run: MakeRun) -> None:
    topic, rows = kafka.create_topic(), Rows.random(600)
    messages = rows.messages(0)
    scoring = Scoring.of(make_run(kafka, topic))
    kafka.produce(topic, messages[:10])
    scoring.sketch()
    scorer = scoring.begin()
    kafka.produce(topic, messages[10:20])
    scoring.until_scored({0: 20})
    before = scorer.consumer.bases.newest
    scoring.sketch()
    wait_until(lambda: scorer.consumer.bases.newest is not before, "a new basis")
    kafka.produce(topic, messages[20:])
    scoring.until_scored({0: 30})
    scorer.stop()
    scores = scoring.all_scores(600)
    bases = [{score["basis"]["id"] for score in scores if low <= score["offset"] < low + 10} for low in (10, 20)]
    assert [len(found) for found in bases] == [1, 1]
    assert bases[0] != bases[1]
    assert not any(score["basis"]["counted"] for score in scores if score["offset"] >= 10)
    assert scores[-1]["earlier_rows"] >= 200, "both bases have one histogram"


@pytest.mark.parametrize("delivery", DELIVERIES)
@pytest.mark.parametrize("protocol", ["cooperative", "kip-848"])
def test_while_scorers_come_and_go_each_row_is_scored(
    kafka: Broker, make_run: MakeRun, delivery: str, protocol: str
) -> None:
    topic, rows = kafka.create_topic(partitions=2), Rows.random(2_000, partitions=2, rows_per_message=10)
    run = make_run(kafka, topic, protocol=protocol)
    scoring = Scoring.of(run, delivery=delivery)
    feed = [rows.messages(partition) for partition in range(2)]
    scorers: list[Scorer] = []
    for step in range(10):
        for partition in range(2):
            kafka.produce(topic, feed[partition][10 * step : 10 * step + 10], partition=partition)
        if step == 0:
            scoring.sketch()
        if step in (0, 3):
            scorers.append(scoring.begin())
        if step == 6:
            scorers.pop(0).stop()
    scoring.until_scored({0: 100, 1: 100})
    scorers[0].stop()
    scoring.all_scores(2_000)
    counts = scoring.counts()
    assert set(counts) == every_row(rows)
    assert set(counts.values()) == {1}, "given up in time, nothing is scored twice"


@pytest.mark.parametrize("protocol", ["cooperative", "kip-848"])
@pytest.mark.parametrize("point", smoke_first(["after-offsets", "before-transaction", "before-end"]))
def test_a_scorer_that_slept_writes_nothing_that_others_have_written(
    kafka: Broker, make_run: MakeRun, protocol: str, point: str
) -> None:
    topic, rows = kafka.create_topic(), Rows.random(400)
    messages = rows.messages(0)
    run = make_run(kafka, topic, protocol=protocol)
    scoring = Scoring.of(run)
    if protocol == "kip-848":
        kafka.set_group(scoring.settings().score_group, {"consumer.session.timeout.ms": "1500"})
    kafka.produce(topic, messages[:10])
    scoring.sketch()
    zombie = scoring.start(stop_at=point)
    assert zombie.marker is not None
    wait_until(zombie.marker.exists, "its sleep")
    other = scoring.start()
    kafka.produce(topic, messages[10:15])
    scoring.until_scored({0: 15})
    zombie.signal(signal.SIGCONT)
    kafka.produce(topic, messages[15:])
    scoring.until_scored({0: 20})
    for scorer in (zombie, other):
        scorer.signal(signal.SIGTERM)
        assert scorer.wait() == 0, scorer.log()
    scoring.all_scores(400)
    assert scoring.counts() == dict.fromkeys(every_row(rows), 1)


def test_bad_messages_go_to_the_dead_letter_topic_and_the_stream_goes_on(kafka: Broker, make_run: MakeRun) -> None:
    topic, letters, rows = kafka.create_topic(), kafka.create_topic(), Rows.random(100)
    scoring = Scoring.of(make_run(kafka, topic, changes={"dead_letters": {"topic": letters}}))
    kafka.produce(topic, [*rows.messages(0), b"no rows", None, *rows.messages(0)])
    scoring.sketch()
    scoring.inside()
    assert len(scoring.all_scores(200)) == 200
    found = records_of(kafka, letters)
    assert [record.value for record in found] == [b"no rows"] * 2, "one by the worker, one by the scorer"
    assert scoring.committed() == {0: 12}


def test_without_a_dead_letter_topic_a_bad_message_ends_it_before_its_batch(kafka: Broker, make_run: MakeRun) -> None:
    topic, rows = kafka.create_topic(), Rows.random(100)
    scoring = Scoring.of(make_run(kafka, topic))
    rows.produce(kafka, topic)
    scoring.sketch()
    kafka.produce(topic, [b"no rows"])
    with pytest.raises(TooManyBadMessagesError, match=f"{topic}/0 offset 5"):
        scoring.inside()


def test_rows_of_another_width_or_seed_are_refused(kafka: Broker, make_run: MakeRun) -> None:
    topic, rows = kafka.create_topic(), Rows.random(100)
    scoring = Scoring.of(make_run(kafka, topic))
    rows.produce(kafka, topic)
    scoring.sketch()
    with pytest.raises(RefusedStateError, match=r"sketch\.d is 100 there and 120 here"):
        scoring.inside(sketch={"d": 120})
    assert scoring.records() == []


@pytest.mark.slow
def test_records_that_retention_removed_are_logged_and_passed(kafka: Broker, make_run: MakeRun) -> None:
    topic, rows = kafka.create_topic(), Rows.random(400)
    messages = rows.messages(0)
    scoring = Scoring.of(make_run(kafka, topic))
    kafka.produce(topic, messages[:5])
    scoring.sketch()
    kafka.produce(topic, messages[5:8])
    scoring.inside()
    kafka.produce(topic, messages[8:])
    kafka.delete_records(topic, 0, 10)
    scoring.inside()
    scoring.all_scores(360)
    assert {place[1] for place in scoring.counts()} == {*range(8), *range(10, 20)}
    wait_until(lambda: read_states(scoring.settings(), 30)[0].next_offset == 20, "its state")
    assert read_states(scoring.settings(), 30)[0].histogram.rows == (3 + 10) * 20, "with the rows before the gap"


def test_a_topic_that_was_created_again_is_scored_from_its_beginning(kafka: Broker, make_run: MakeRun) -> None:
    """The broker forgets the offsets of a deleted topic; a state that belongs to none of them is not used."""
    topic, rows = kafka.create_topic(), Rows.random(100)
    scoring = Scoring.of(make_run(kafka, topic))
    rows.produce(kafka, topic)
    scoring.sketch()
    scoring.inside()
    scoring.all_scores(100)
    kafka.delete_topic(topic)
    kafka.create_topic(name=topic)
    rows.produce(kafka, topic)
    rows.produce(kafka, topic)
    scoring.inside()
    scoring.all_scores(300)
    wait_until(lambda: read_states(scoring.settings(), 30)[0].next_offset == 10, "its state")
    assert read_states(scoring.settings(), 30)[0].histogram.rows == 100, "rows that the basis has not counted"


def test_a_committed_offset_beyond_the_end_is_refused_with_advice(kafka: Broker, make_run: MakeRun) -> None:
    topic, rows = kafka.create_topic(), Rows.random(100)
    scoring = Scoring.of(make_run(kafka, topic))
    rows.produce(kafka, topic)
    scoring.sketch()
    member = Consumer({"bootstrap.servers": kafka.bootstrap, "group.id": scoring.settings().score_group})
    member.commit(offsets=[TopicPartition(topic, 0, 999)], asynchronous=False)
    member.close()
    with pytest.raises(RefusedStateError, match=r"999 .* beyond its end 5.*--reset-offsets"):
        scoring.inside()


@pytest.mark.parametrize("delivery", DELIVERIES)
def test_a_timestamp_that_the_topic_of_scores_does_not_accept_ends_it_with_advice(
    kafka: Broker, make_run: MakeRun, delivery: str
) -> None:
    """Brokers refuse timestamps of more than an hour ahead, unless the topic allows them, as this input topic does.

    So many rows that the client learns of the first refusal while it is still given messages.
    """
    topic = kafka.create_topic(config={"message.timestamp.after.max.ms": str(2**63 - 1)})
    rows, scoring = Rows.random(12_000, rows_per_message=100), Scoring.of(make_run(kafka, topic), delivery=delivery)
    first, *later = rows.messages(0)
    kafka.produce(topic, [first])
    scoring.sketch()
    producer, tomorrow_ms = Producer({"bootstrap.servers": kafka.bootstrap}), int((time.time() + 86_400) * 1_000)
    for message in later:
        producer.produce(topic, message, partition=0, timestamp=tomorrow_ms)
    assert producer.flush(30) == 0
    with pytest.raises(BrokerRefusedError, match=r"raise the topic's message\.timestamp\.after\.max\.ms"):
        scoring.inside()


@pytest.mark.parametrize("delivery", DELIVERIES)
def test_rows_without_a_key_for_a_compacted_topic_of_scores_end_it_with_advice(
    kafka: Broker, make_run: MakeRun, delivery: str
) -> None:
    topic, rows = kafka.create_topic(), Rows.random(100)
    scoring = Scoring.of(make_run(kafka, topic), delivery=delivery)
    kafka.create_topic(name=scoring.topic, config={"cleanup.policy": "compact"})
    rows.produce(kafka, topic)
    scoring.sketch()
    with pytest.raises(BrokerRefusedError, match="do not compact it"):
        scoring.inside()


@pytest.mark.slow
def test_the_lag_of_a_scorer_that_delivers_nothing_grows_also_once_it_has_paused_reading(
    kafka: Broker, make_run: MakeRun
) -> None:
    topic, rows = kafka.create_topic(), Rows.random(3 * ROWS_MAX, rows_per_message=1_000)
    messages = rows.messages(0)
    scoring = Scoring.of(make_run(kafka, topic))
    kafka.produce(topic, messages[:1])
    scoring.sketch()
    again = threading.Event()

    def reach(point: str) -> None:
        if point == "before-publish":
            again.wait()

    scorer = Scorer(consumer_of(scoring.settings(), reach=reach))
    kafka.produce(topic, messages)
    wait_until(lambda: scorer.consumer.source.paused == {0}, "a pause")
    kafka.produce(topic, messages)
    wait_until(lambda: scorer.consumer.watch.status.lag == {0: 1 + 2 * len(messages)}, "the lag")
    again.set()
    wait_until(lambda: scorer.consumer.watch.status.lag == {0: 0}, "its end")
    scorer.stop()


def test_what_a_transaction_leaves_in_the_log_is_no_lag(kafka: Broker, make_run: MakeRun) -> None:
    topic, rows = kafka.create_topic(), Rows.random(100)
    scoring = Scoring.of(make_run(kafka, topic))
    producer = Producer({"bootstrap.servers": kafka.bootstrap, "transactional.id": f"rows of {topic}"})
    producer.init_transactions(30)
    producer.begin_transaction()
    for message in rows.messages(0):
        producer.produce(topic, message, partition=0)
    producer.commit_transaction(30)
    scoring.sketch()
    scorer = scoring.begin()
    wait_until(lambda: scorer.consumer.watch.status.lag == {0: 0}, "no lag behind the mark of the transaction")
    assert scorer.consumer.watch.rows == 100
    scorer.stop()
