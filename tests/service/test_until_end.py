"""`run --until-end` beside other workers: it ends only when what they did is published too."""

from __future__ import annotations

import time

import pytest

from tests.parts.kafka import Broker
from tests.service.conftest import MakeRun
from tests.service.runs import Rows, assert_counts
from tests.service.shown import SELDOM, output_topic, shown_rows

both_deliveries = pytest.mark.parametrize("delivery", ["idempotent", "transactional"])


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
