"""`run --until-end` beside other workers: it ends only when what they did is published too."""

from __future__ import annotations

import time

import pytest

from sfd_stream.errors import RefusedStateError
from tests.support.kafka import Broker
from tests.support.slow import smoke_first
from tests.system.conftest import MakeRun
from tests.system.runs import Rows, assert_counts
from tests.system.shown import SELDOM, output_topic, shown_rows

both_deliveries = pytest.mark.parametrize("delivery", smoke_first(["transactional", "idempotent"]))


@both_deliveries
def test_the_last_state_of_a_worker_that_was_stopped_is_published_before_the_end(
    kafka: Broker, make_run: MakeRun, delivery: str
) -> None:
    """The one that is stopped has committed all rows in a checkpoint without a snapshot."""
    topic, shows, all_rows = kafka.create_topic(), output_topic(), Rows.random(1_000)
    all_rows.produce(kafka, topic)
    run = make_run(kafka, topic, changes={"snapshot": {"topic": shows, "delivery": delivery, **SELDOM}})
    first = run.begin()
    first.until(lambda: first.source.last_committed.get(0) == 50, "the commit")
    second = run.begin(until_end=True)
    second.until(lambda: second.worker.partitions.joined, "the second in the group")
    time.sleep(1.0)  # in which it finds all rows committed by another
    first.stop()
    assert second.end() is None
    assert shown_rows(run, shows) == {0: 1_000}
    assert_counts(run.state(0), all_rows.matrices[0])


@both_deliveries
def test_a_worker_ends_beside_one_that_goes_on_and_has_published_everything(
    kafka: Broker, make_run: MakeRun, delivery: str
) -> None:
    topic, shows = kafka.create_topic(), output_topic()
    Rows.random(1_000).produce(kafka, topic)
    often = {"topic": shows, "delivery": delivery, "every_s": 0.3}
    run = make_run(kafka, topic, changes={"snapshot": often})
    first = run.begin()
    first.until(lambda: first.source.last_committed.get(0) == 50, "the commit")
    assert run.begin(until_end=True).end() is None
    assert shown_rows(run, shows) == {0: 1_000}
    first.stop()


@both_deliveries
def test_a_worker_does_not_wait_for_ever_for_one_that_goes_on_and_does_not_publish(
    kafka: Broker, make_run: MakeRun, delivery: str
) -> None:
    topic, shows = kafka.create_topic(), output_topic()
    Rows.random(1_000).produce(kafka, topic)
    by_rows = {"topic": shows, "delivery": delivery, "every_s": None, "every_rows": 1_000_000}
    run = make_run(kafka, topic, changes={"snapshot": by_rows})
    first = run.begin()
    first.until(lambda: first.source.last_committed.get(0) == 50, "the commit")
    error = run.begin(until_end=True, checkpoint={"give_up_s": 2}).end()
    assert isinstance(error, RefusedStateError), error
    assert f"has committed all rows of {topic}/0, but has not published" in str(error)
    assert "snapshot.every_s (here: None)" in str(error)
    first.stop()


@both_deliveries
def test_partitions_of_others_need_not_be_published_at_the_same_moment(
    kafka: Broker, make_run: MakeRun, delivery: str
) -> None:
    """A partition that was found published counts, whatever its owner has committed since."""
    topic, shows = kafka.create_topic(partitions=3), output_topic()
    Rows.random(2_700, partitions=3).produce(kafka, topic)
    by_rows = {"topic": shows, "delivery": delivery, "every_s": None, "every_rows": 1_000}
    run, more = make_run(kafka, topic, changes={"snapshot": by_rows}), Rows.random(120).messages(0)
    first = run.begin()
    first.until(lambda: all(first.source.last_committed.get(p) == 45 for p in range(3)), "the commits")
    second = run.begin(until_end=True)
    second.until(lambda: len(second.source.assigned) == 1 and len(first.source.assigned) == 2, "one for the second")
    for partition in sorted(first.source.assigned):
        kafka.produce(topic, more[:5], partition=partition)
        first.until(lambda p=partition: shown_rows(run, shows).get(p) == 1_000, "its snapshot")
        time.sleep(1.0)  # in which the second worker finds it published
        kafka.produce(topic, more[5:], partition=partition)
        first.until(lambda p=partition: first.source.last_committed.get(p) == 51, "a commit without a snapshot")
    assert second.end() is None
    first.stop()
