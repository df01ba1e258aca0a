"""Brokers that stall or die again and again: what a worker reports as done is done, and no worker dies with them."""

from __future__ import annotations

import os
import random
import signal
import threading
import time

import pytest

from tests.support.kafka import LocalBroker
from tests.support.kafka_fixtures import PrivateBrokers
from tests.system.conftest import MakeRun
from tests.system.runs import Rows, Run, assert_counts, wait_until
from tests.system.shown import output_topic

LONG = int(os.environ.get("SFD_TEST_FAULTS", "6"))
"""docs/reliability.md has the record of 30."""

SHORT_AND_LONG = [
    pytest.param(2, id="short"),
    pytest.param(LONG, id="long", marks=[pytest.mark.slow, pytest.mark.timeout(1800)]),
]


def stall(broker: LocalBroker, after_s: float, for_s: float) -> None:
    time.sleep(after_s)
    broker.pause()
    time.sleep(for_s)
    broker.resume()


@pytest.mark.parametrize("runs", SHORT_AND_LONG)
def test_a_run_to_the_end_that_exits_with_0_has_read_everything_while_the_broker_stalls(
    private_broker: PrivateBrokers, make_run: MakeRun, runs: int
) -> None:
    broker, rng = private_broker(), random.Random(21)
    topic, rows = broker.create_topic(partitions=3), Rows.random(3_000, partitions=3)
    rows.produce(broker, topic)
    for _ in range(runs):
        run = make_run(broker, topic)
        times = rng.uniform(0.0, 1.5), rng.uniform(0.5, 3.0)
        stalling = threading.Thread(target=stall, args=(broker, *times))
        worker = run.start(until_end=True)
        stalling.start()
        code = worker.wait(120)
        stalling.join()
        assert code == 0, f"stalled after and for {times}:\n{worker.log()}"
        for partition, matrix in enumerate(rows.matrices):
            assert run.durable_offset(partition) == rows.ends()[partition], f"stalled after and for {times}"
            assert_counts(run.state(partition), matrix)


def until_durable(run: Run, offset: int) -> None:
    wait_until(
        lambda: all(run.durable_offset(p) == offset for p in range(4)), f"offset {offset} in all partitions", 120
    )


@pytest.mark.slow
@pytest.mark.parametrize("cycles", SHORT_AND_LONG)
def test_two_workers_survive_a_broker_that_is_killed_again_and_again(
    private_broker: PrivateBrokers, make_run: MakeRun, cycles: int
) -> None:
    broker, rng = private_broker(), random.Random(22)
    topic, rows = broker.create_topic(partitions=4), Rows.random(400 * (cycles + 1), partitions=4, rows_per_message=1)
    messages, size = [rows.messages(partition) for partition in range(4)], 100
    shown = {"topic": output_topic(), "delivery": "transactional", "every_s": 0.3}
    run = make_run(broker, topic, changes={"snapshot": shown, "checkpoint": {"give_up_s": 300}})
    workers = [run.start() for _ in range(2)]
    for cycle in range(cycles + 1):
        for partition in range(4):
            broker.produce(topic, messages[partition][cycle * size : (cycle + 1) * size], partition=partition)
        if cycle == cycles:
            break
        if rng.random() < 0.5:  # else it dies while the workers join, claim or catch up
            until_durable(run, (cycle + 1) * size)
        time.sleep(rng.uniform(0.0, 1.0))
        broker.kill()
        time.sleep(rng.uniform(0.0, 4.0))
        broker.restart()
        assert [worker.alive for worker in workers] == [True, True], [
            worker.wait(1) for worker in workers if not worker.alive
        ]
    until_durable(run, len(messages[0]))
    for worker in workers:
        worker.signal(signal.SIGTERM)
    assert [worker.wait() for worker in workers] == [0, 0], [worker.log()[-2000:] for worker in workers]
    for partition, matrix in enumerate(rows.matrices):
        assert_counts(run.state(partition), matrix)
