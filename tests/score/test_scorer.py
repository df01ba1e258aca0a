"""A scorer on a real broker: each row is scored once, by a basis that has not counted it or says that it has."""

from __future__ import annotations

import pytest

from tests.parts.kafka import Broker
from tests.score.scored import Scoring, every_row
from tests.service.conftest import MakeRun
from tests.service.runs import Rows

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
