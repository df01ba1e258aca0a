"""Scorers die by kill -9 at every point of a round, and at random moments, while rows come and partitions move.

Every input row has its score: exactly one for `read_committed` readers in transactional delivery, at least one
otherwise. `SFD_KILLS=100 pytest tests/unit/score/test_kills.py` is the long form.
"""

from __future__ import annotations

import os
import random
import signal
import time
from collections import deque

import pytest

from sfd_stream.cli.commands.score import read_states
from tests.support.kafka import Broker
from tests.support.slow import smoke_first
from tests.system.conftest import MakeRun
from tests.system.killable import SCORE_POINTS
from tests.system.runs import Rows, WorkerProcess, wait_until
from tests.unit.score.scored import Scoring, every_row

PARTITIONS = 3
ROWS_PER_MESSAGE = 5
FEED_EVERY_S = 0.2
SHORT_KILLS = 3
KILLS = int(os.environ.get("SFD_KILLS", "0"))
RANDOM = "at random"
DEADLINE_S = 480.0


def deaths(delivery: str, kills: int, chance: random.Random) -> deque[tuple[str, int]]:
    """Points with the number of the passing at which a scorer dies; a quarter dies at no chosen point."""
    points = [*SCORE_POINTS[delivery], RANDOM, RANDOM]
    found = [(points[kill % len(points)], chance.randint(1, 3)) for kill in range(kills)]
    chance.shuffle(found)
    return deque((point, 1 if point == "after-claim" else nth) for point, nth in found)


def kill_all(scoring: Scoring, feed: list[list[bytes]], points: deque[tuple[str, int]], chance: random.Random) -> None:
    """Two scorers at a time, so that each death moves partitions; rows trickle in until the last one."""
    alive: list[WorkerProcess] = []
    deadline, step = time.monotonic() + DEADLINE_S, max(len(feed[0]) // (6 * len(points)), 1)
    while points or alive:
        while points and len(alive) < 2:
            point, nth = points.popleft()
            alive.append(scoring.start() if point == RANDOM else scoring.start(die_at=point, nth=nth))
        for partition, messages in enumerate(feed):
            if messages:
                scoring.run.broker.produce(scoring.run.topic, messages[:step], partition=partition)
                del messages[:step]
            else:
                scoring.run.broker.produce(scoring.run.topic, [None], partition=partition)
        time.sleep(FEED_EVERY_S)
        for scorer in list(alive):
            if scorer.marker is None and chance.random() < FEED_EVERY_S / 2:
                scorer.signal(signal.SIGKILL)
            if not scorer.alive:
                assert scorer.wait() == -signal.SIGKILL, scorer.log()
                alive.remove(scorer)
        assert time.monotonic() < deadline, [(scorer.marker, scorer.log()) for scorer in alive]
    for partition, messages in enumerate(feed):
        scoring.run.broker.produce(scoring.run.topic, messages, partition=partition)


@pytest.mark.parametrize("delivery", smoke_first(["transactional", "at-least-once"]))
@pytest.mark.parametrize("kills", [KILLS] if KILLS else smoke_first([SHORT_KILLS, 20]))
def test_killed_anywhere_every_row_has_its_score(kafka: Broker, make_run: MakeRun, delivery: str, kills: int) -> None:
    chance = random.Random(kills)
    topic = kafka.create_topic(partitions=PARTITIONS)
    scoring = Scoring.of(make_run(kafka, topic), delivery=delivery)
    rows = Rows.random(PARTITIONS * 400 * kills, partitions=PARTITIONS, rows_per_message=ROWS_PER_MESSAGE)
    feed = [rows.messages(partition) for partition in range(PARTITIONS)]
    for partition, messages in enumerate(feed):
        kafka.produce(topic, messages[:20], partition=partition)
        del messages[:20]
    scoring.sketch()
    kill_all(scoring, feed, deaths(delivery, kills, chance), chance)
    last = scoring.start(until_end=True)
    assert last.wait(120) == 0, last.log()
    scored = sum(matrix.shape[0] for matrix in rows.matrices)
    wait_until(lambda: len(scoring.counts()) >= scored, "every score")
    counts = scoring.counts()
    wanted = {(partition, row) for partition, _, row in every_row(rows)}
    assert {(partition, row) for partition, _, row in counts} == wanted
    assert len(counts) == scored
    if delivery == "transactional":
        assert set(counts.values()) == {1}
    states = read_states(scoring.settings(), 30)
    new = {partition: matrix.shape[0] - 20 * ROWS_PER_MESSAGE for partition, matrix in enumerate(rows.matrices)}
    assert {partition: state.histogram.rows for partition, state in states.items()} == new, "each counts once"
