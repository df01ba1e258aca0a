"""kill -9 at each named point of the protocol, and at random moments, under load: every row counts exactly once.

Two workers are kept alive; each is told where to die, and is followed by one that is told to die elsewhere. Rows keep
coming, so that there is always something to lose; a third worker joins and leaves. At the end the store holds what an
undisturbed run of the same rows makes of them, bit for bit.
"""

from __future__ import annotations

import random
import signal
import time
from collections import deque
from dataclasses import dataclass, field

import pytest

from tests.support.kafka import Broker
from tests.support.slow import smoke_first
from tests.system.conftest import MakeRun, disk_or_s3_by_protocol
from tests.system.killable import POINTS
from tests.system.runs import Rows, Run, WorkerProcess, assert_counts, assert_same

SLOTS = 2
FEED_EVERY_S = 0.25
TRICKLE, BURST, ALL = 0.001, 0.1, 1.0
DEADLINE_S = 150.0
RANDOM = "at random"
RANDOMS = 4


@dataclass
class Massacre:
    """Workers that die at the points given, one after the other, `SLOTS` at a time."""

    run: Run
    points: deque[tuple[str, int]]
    feed: list[list[bytes]]
    """Each partition's messages: they trickle in until the last death, so that there is always something to do."""
    chance: random.Random
    alive: list[WorkerProcess] = field(default_factory=list)
    dead: list[WorkerProcess] = field(default_factory=list)

    def until_all_are_dead(self) -> None:
        deadline = time.monotonic() + DEADLINE_S
        while self.points or self.alive:
            while self.points and len(self.alive) < SLOTS:
                self.alive.append(self._start(*self.points.popleft()))
            self.produce(TRICKLE)
            time.sleep(FEED_EVERY_S)
            for worker in [worker for worker in self.alive if not worker.alive]:
                self.alive.remove(worker)
                self.dead.append(worker)
            assert time.monotonic() < deadline, [(worker.marker, worker.log()) for worker in self.alive]

    def _start(self, point: str, nth: int) -> WorkerProcess:
        if point != RANDOM:
            return self.run.start(die_at=point, nth=nth)
        worker = self.run.start()
        worker.until_logged("restored")
        self.produce(BURST)
        time.sleep(self.chance.uniform(0, 0.7))
        worker.kill()
        return worker

    def produce(self, share: float) -> None:
        for partition, messages in enumerate(self.feed):
            count = max(1, int(share * len(messages)))
            self.run.broker.produce(self.run.topic, messages[:count], partition=partition)
            del messages[:count]

    def assert_points_were_reached(self) -> None:
        for worker in self.dead:
            assert worker.wait() == -signal.SIGKILL, worker.log()
            assert worker.marker is None or worker.marker.exists(), worker.log()


def kill_all(run: Run, rows: Rows, points: list[tuple[str, int]], seed: int) -> list[WorkerProcess]:
    """A third worker joins after half of the deaths, and leaves after all of them."""
    feed = [rows.messages(partition) for partition in range(len(rows.matrices))]
    massacre = Massacre(run, deque(points[: len(points) // 2]), feed, random.Random(seed))
    massacre.produce(BURST)
    massacre.until_all_are_dead()
    third = run.start()
    massacre.points.extend(points[len(points) // 2 :])
    massacre.until_all_are_dead()
    massacre.produce(ALL)
    third.signal(signal.SIGTERM)
    assert third.wait() == 0, third.log()
    assert third.events("checkpoint restored"), third.log()
    massacre.assert_points_were_reached()
    run.to_the_end()
    return massacre.dead


def assert_as_undisturbed(run: Run, undisturbed: Run, rows: Rows) -> None:
    undisturbed.to_the_end()
    for partition, matrix in enumerate(rows.matrices):
        state = run.state(partition)
        assert_counts(state, matrix)
        assert_same(state, undisturbed.state(partition))
        assert state.builder.shrinks > 5


def order(seed: int) -> list[tuple[str, int]]:
    """Every point once, at its first or second passing, and some moments that nobody chose."""
    chance = random.Random(seed)
    found = [(point, chance.randint(1, 2)) for point in POINTS] + [(RANDOM, 0)] * RANDOMS
    chance.shuffle(found)
    return found


@disk_or_s3_by_protocol
@pytest.mark.parametrize("deaths", smoke_first([4, len(POINTS) + RANDOMS]))
def test_killed_at_every_point_each_row_counts_once(
    kafka: Broker, make_run: MakeRun, store: str, protocol: str, deaths: int
) -> None:
    topic = kafka.create_topic(partitions=4)
    snapshots = {"topic": kafka.create_topic(config={"cleanup.policy": "compact"}), "every_s": 0.2}
    run = make_run(kafka, topic, store=store, protocol=protocol, changes={"snapshot": snapshots})
    rows = Rows.random(max(10_000 * deaths, 80_000), partitions=4)
    dead = kill_all(run, rows, order(seed=1)[:deaths], seed=1)
    assert len(dead) == deaths
    assert_as_undisturbed(run, make_run(kafka, topic), rows)
