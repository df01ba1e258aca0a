"""A cluster whose only broker restarts and is fenced: its metadata lists no broker for a moment.

librdkafka then loses all its brokers, sometimes for good (its issue 5301). A source comes back all the same.
"""

from __future__ import annotations

import contextlib
import os
import random
import threading
import time
from typing import TYPE_CHECKING

import pytest
from confluent_kafka import Consumer, TopicPartition

from sfd_stream.errors import BrokerRefusedError
from sfd_stream.kafka.admin import GroupOffsets
from sfd_stream.kafka.errors import Hooks
from sfd_stream.kafka.records import Start
from sfd_stream.kafka.source import Source
from tests.support.kafka import LocalBroker
from tests.support.kafka_fixtures import PrivateBrokers
from tests.support.slow import smoke_first
from tests.unit.kafka.conftest import Diary

if TYPE_CHECKING:
    from pathlib import Path

LONG = int(os.environ.get("SFD_TEST_FENCES", "2"))
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


def said_by_new_clients(broker: LocalBroker, topic: str, offset: int, group: str) -> list[str]:
    """Whether a client that was not there before reads the record, finds the group's coordinator, and may join."""
    properties = {"bootstrap.servers": broker.bootstrap, "log_level": 2}
    reader = Consumer({**properties, "group.id": "new", "auto.offset.reset": "error"})
    reader.assign([TopicPartition(topic, 0, offset)])
    found = reader.consume(1, 10)
    what = [f"record {offset}: {[message.error() or message.offset() for message in found] or 'not read in 10 s'}"]
    reader.close()
    try:
        what.append(
            f"offsets of {group}: {GroupOffsets({**properties, 'group.id': group}, topic, Hooks()).committed([0], 10)}"
        )
    except (BrokerRefusedError, TimeoutError) as error:
        what.append(f"offsets of {group}: {error}")
    member = Source({**properties, "group.id": "new member", **QUICK}, topic)
    member.subscribe(Diary({0: Start(0)}))
    deadline = time.monotonic() + 20
    while not member.assigned and time.monotonic() < deadline:
        member.poll(1, 0.1)
    what.append(f"a new member has {member!r}")
    member.close(5)
    return what


def story_of(broker: LocalBroker, topic: str, sources: list[Source], ends: list[int], number: int, folder: Path) -> str:
    """What is known about a round that failed. The broker's log is kept."""
    (folder / "broker.log").write_text(broker.log())
    lines = [f"round {number}, {len(sources)} sources; the broker's log is {folder / 'broker.log'}"]
    for source, end in zip(sources, ends, strict=True):
        if end < number:
            state = f"connected {source.is_connected()}, outside {source.outside_s}, away {source.unavailable_s}"
            lines.append(f"{source!r} read up to {end}: at {source.positions}, {state} ({source.outage_words})")
    lines += said_by_new_clients(broker, topic, number - 1, f"g{[end < number for end in ends].index(True)}")
    lines.append(f"end of the log: {broker.end_offset(topic)}")
    return "\n".join(lines)


@pytest.mark.timeout(3600)
@pytest.mark.parametrize(("count", "rounds"), smoke_first([(4, 1), (16, LONG)]))
def test_every_source_reads_again_after_its_only_broker_was_fenced(
    private_broker: PrivateBrokers, tmp_path: Path, count: int, rounds: int
) -> None:
    broker, rng = private_broker(), random.Random(5301)
    topic = broker.create_topic()
    kafka = {"bootstrap.servers": broker.bootstrap, "reconnect.backoff.max.ms": 500, "log_level": 2, **QUICK}
    sources = [Source({**kafka, "group.id": f"g{n}"}, topic) for n in range(count)]
    with contextlib.ExitStack() as closing:
        for source in sources:
            closing.callback(source.close, 10)
            source.subscribe(Diary({0: Start(0)}))
        ends = [0] * count
        for number in range(1, rounds + 1):
            restart_and_fence(broker, rng)
            broker.produce(topic, [b"x"])
            deadline = time.monotonic() + 240
            while min(ends) < number:
                if time.monotonic() > deadline:
                    pytest.fail(story_of(broker, topic, sources, ends, number, tmp_path))
                for n, source in enumerate(sources):
                    for batch in source.poll(100, 0.005):
                        ends[n] = batch.next_offset
