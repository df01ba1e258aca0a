"""Connections to the broker that are reset for seconds: transactional workers go on, and every row is counted once."""

from __future__ import annotations

import time
from collections.abc import Iterator

import pytest

from tests.support.kafka import LocalBroker
from tests.support.kafka_fixtures import behind
from tests.support.proxy import ResettingProxy
from tests.support.slow import smoke_first
from tests.system.conftest import MakeRun
from tests.system.runs import Rows, assert_counts, wait_until
from tests.system.shown import output_topic

pytestmark = pytest.mark.real_kafka

DEFAULTS = {"reconnect.backoff.max.ms": 10_000, "fetch.wait.max.ms": 500, "topic.metadata.refresh.interval.ms": 300_000}
"""librdkafka's own: with quicker reconnects a transaction seldom meets a coordinator that is not connected."""


@pytest.fixture
def proxied() -> Iterator[tuple[LocalBroker, ResettingProxy]]:
    with behind(ResettingProxy) as both:
        yield both


@pytest.mark.parametrize(("protocol", "rounds"), smoke_first([("cooperative", 1), ("cooperative", 3), ("kip-848", 3)]))
def test_transactional_workers_go_on_after_their_connections_were_reset_for_5_s(
    proxied: tuple[LocalBroker, ResettingProxy], make_run: MakeRun, protocol: str, rounds: int
) -> None:
    broker, proxy = proxied
    topic, rows = broker.create_topic(partitions=4), Rows.random(12_000, partitions=4)
    messages = [rows.messages(partition) for partition in range(4)]
    share = len(messages[0]) // (rounds + 1)
    snapshot = {"topic": output_topic(), "delivery": "transactional", "every_s": 0.1}
    run = make_run(broker, topic, protocol=protocol, changes={"snapshot": snapshot, "kafka": DEFAULTS})
    workers = [run.start(), run.start()]

    def produce(turn: int) -> int:
        to = len(messages[0]) if turn == rounds else (turn + 1) * share
        for partition in range(4):
            broker.produce(topic, messages[partition][turn * share : to], partition=partition)
        return to

    for turn in range(rounds + 1):
        to = produce(turn)
        wait_until(
            lambda to=to: all(run.durable_offset(p) == to for p in range(4)), f"all rows of turn {turn}", deadline_s=120
        )
        if turn < rounds:
            proxy.break_connections()
            time.sleep(5)
            proxy.restore()
    assert proxy.resets > 0
    assert all(worker.alive for worker in workers), [worker.log() for worker in workers]
    for partition, matrix in enumerate(rows.matrices):
        assert_counts(run.state(partition), matrix)
