"""A cluster whose only broker restarts and is fenced: its metadata lists no broker for a moment.

librdkafka then loses all its brokers, sometimes for good (its issue 5301). A source comes back all the same.
"""

from __future__ import annotations

import os
import random
import threading
import time

import pytest

from sfd_stream.kafka.records import Start
from sfd_stream.kafka.source import Source
from tests.support.kafka import LocalBroker
from tests.support.kafka_fixtures import PrivateBrokers
from tests.unit.kafka.conftest import Diary

ROUNDS, SOURCES = int(os.environ.get("SFD_TEST_FENCES", "2")), 16
"""docs/reliability.md has the record of a long run."""

QUICK = {"session.timeout.ms": 1500, "heartbeat.interval.ms": 300, "topic.metadata.refresh.interval.ms": 100}


def restart_and_fence(broker: LocalBroker, rng: random.Random) -> None:
    """A broker that is paused for longer than its session with the controller (1 s here) is fenced when it goes on."""

    def fence() -> None:
        time.sleep(rng.uniform(1.0, 2.5))
        for _ in range(2):
            broker.pause()
            time.sleep(rng.uniform(1.05, 1.4))
            broker.resume()
            time.sleep(rng.uniform(0.1, 0.6))

    broker.kill()
    time.sleep(rng.uniform(0.0, 2.0))
    fencing = threading.Thread(target=fence)
    fencing.start()
    try:
        broker.restart()
    finally:
        fencing.join()


@pytest.mark.slow
@pytest.mark.timeout(3600)
def test_every_source_reads_again_after_its_only_broker_was_fenced(private_broker: PrivateBrokers) -> None:
    broker, rng = private_broker(), random.Random(5301)
    topic = broker.create_topic()
    kafka = {"bootstrap.servers": broker.bootstrap, "reconnect.backoff.max.ms": 500, "log_level": 2, **QUICK}
    sources = [Source({**kafka, "group.id": f"g{n}"}, topic) for n in range(SOURCES)]
    for source in sources:
        source.subscribe(Diary({0: Start(0)}))
    ends = [0] * SOURCES
    for number in range(1, ROUNDS + 1):
        restart_and_fence(broker, rng)
        broker.produce(topic, [b"x"])
        deadline = time.monotonic() + 240
        while min(ends) < number:
            late = [n for n, end in enumerate(ends) if end < number]
            assert time.monotonic() < deadline, f"round {number}: {late} of {SOURCES} read nothing again"
            for n, source in enumerate(sources):
                for batch in source.poll(100, 0.005):
                    ends[n] = batch.next_offset
    for source in sources:
        source.close(10)
