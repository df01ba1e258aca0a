"""The worker in its container, on a real Kafka: rows in, checkpoints out, killed, resumed, stopped."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Mapping
from pathlib import Path

import numpy as np
import pytest
import scipy.sparse as sp
from confluent_kafka import Consumer, TopicPartition

from sfd_stream import SnapshotReader
from sfd_stream.cli.build import shape_of, store_of
from sfd_stream.config import load
from sfd_stream.tools.inspect import PartitionSummary, summarise
from sfd_stream.wire.rows.encode import encode_rows
from tests.deploy.chart import render, values_file
from tests.deploy.image.containers import LOCKED_DOWN, Container
from tests.support.engine import Engine
from tests.support.kafka import LocalBroker, free_ports

pytestmark = pytest.mark.image

PARTITIONS, ROWS, D = 2, 4_000, 100
SELDOM = {
    f"SFD_{section}__{name}": value
    for section in ("CHECKPOINT", "SNAPSHOT")
    for name, value in (("EVERY_ROWS", "1000000000"), ("EVERY_S", "3600"))
}


def environment_for(broker: LocalBroker, topic: str, url: str) -> dict[str, str]:
    return {
        "SFD_KAFKA__BOOTSTRAP_SERVERS": broker.bootstrap,
        "SFD_KAFKA__GROUP_ID": f"g-{uuid.uuid4().hex[:8]}",
        "SFD_KAFKA__SESSION_TIMEOUT_MS": "6000",
        "SFD_INPUT__TOPIC": topic,
        "SFD_SKETCH__D": str(D),
        "SFD_SKETCH__ELL": "10",
        "SFD_CHECKPOINT__URL": url,
        "SFD_CHECKPOINT__EVERY_ROWS": "500",
        "SFD_SNAPSHOT__TOPIC": f"{topic}-sketches",
        "SFD_SNAPSHOT__EVERY_ROWS": "1000",
        "SFD_HTTP__PORT": "0",
    }


def fill(broker: LocalBroker, topic: str, seed: int) -> float:
    """The same number of rows for every partition; returns their squared Frobenius norm."""
    total = 0.0
    for partition in range(PARTITIONS):
        rows = sp.random_array((ROWS, D), density=0.05, rng=np.random.default_rng([seed, partition]), format="csr")
        rows.data = np.round(rows.data * 8)  # whole numbers: their squares add up exactly
        rows.eliminate_zeros()
        broker.produce(topic, list(encode_rows(rows)), partition=partition)
        total += float(np.sum(rows.data**2))
    return total


def summary_of(environment: Mapping[str, str], folder: Path) -> Callable[[], dict[int, PartitionSummary]]:
    settings = load(None, environ={**environment, "SFD_CHECKPOINT__URL": folder.as_uri()}).settings
    return lambda: summarise(store_of(settings), settings.group, settings.input.topic, lambda p: shape_of(settings, p))


def committed(broker: LocalBroker, environment: Mapping[str, str], topic: str) -> list[int]:
    consumer = Consumer({"bootstrap.servers": broker.bootstrap, "group.id": environment["SFD_KAFKA__GROUP_ID"]})
    try:
        found = consumer.committed([TopicPartition(topic, p) for p in range(PARTITIONS)], timeout=10)
        return [part.offset for part in found]
    finally:
        consumer.close()


def test_killed_resumed_and_stopped_it_counts_every_row_once(
    engine: Engine, image: str, broker: LocalBroker, folder: Path
) -> None:
    topic = broker.create_topic(partitions=PARTITIONS)
    environment = environment_for(broker, topic, "file:///state")
    options = ("--network", "host", "--volume", f"{folder}:/state")
    summary = summary_of(environment, folder)

    def rows_durable() -> int:
        return sum(part.rows for part in summary().values())

    norm = fill(broker, topic, seed=1)
    with Container(engine, image, environment, *options) as first:
        first.wait_for(lambda: rows_durable() >= ROWS, "half of the rows in checkpoints")
        first.kill()
        assert first.state()["ExitCode"] == 137  # the one SIGKILL in here
    norm += fill(broker, topic, seed=2)
    with Container(engine, image, environment | SELDOM, *options) as second:
        second.wait_for(lambda: second.rows_read() > 0, "rows of the second filling")
        state = second.stop()
        assert (state["ExitCode"], state["OOMKilled"]) == (0, False), second.logs()[-3_000:]
        assert "partition released" not in second.logs()
        read = second.told("progress")[-1]["rows"]
        restored = sum(line["rows"] for line in second.told("checkpoint restored"))
    # Nothing to replay: all that it read is durable, by the last checkpoint alone, and committed.
    assert rows_durable() == restored + read > restored
    stopped = summary()
    assert [part.next_offset for _, part in sorted(stopped.items())] == committed(broker, environment, topic)
    norm += fill(broker, topic, seed=3)
    with Container(engine, image, environment, *options) as third:
        third.wait_for(lambda: '"checkpoint restored"' in third.logs(), "its restored partitions")
        third.wait_for(lambda: rows_durable() == 3 * PARTITIONS * ROWS, "all rows")
        assert third.stop()["ExitCode"] == 0
    found = summary()
    assert {p: part.rows for p, part in found.items()} == dict.fromkeys(range(PARTITIONS), 3 * ROWS)
    assert sum(part.squared_frobenius for part in found.values()) == norm
    assert committed(broker, environment, topic) == [3 * ROWS] * PARTITIONS
    with SnapshotReader(broker.bootstrap, f"{topic}-sketches") as reader:
        shown = {snapshot.id.partition: snapshot.sketch.rows for snapshot in reader.latest()}
    assert set(shown) == set(range(PARTITIONS))
    assert all(2 * ROWS < rows <= 3 * ROWS for rows in shown.values())  # as of the last that was due


def test_it_says_itself_whether_it_is_well(engine: Engine, image: str, broker: LocalBroker, folder: Path) -> None:
    """What the image's health check asks; and that a worker which is not there is not well."""
    topic = broker.create_topic(partitions=PARTITIONS)
    environment = environment_for(broker, topic, "file:///state") | {"SFD_HTTP__PORT": str(free_ports(1)[0])}
    options = ("--network", "host", "--volume", f"{folder}:/state")
    with Container(engine, image, environment, *options) as worker:
        ask = ("exec", worker.name, "sfd-stream", "health")
        worker.wait_for(lambda: engine.ask(*ask, "--ready").returncode == 0, "it to be ready")
        assert engine.ask(*ask).returncode == 0
        assert self_test(engine, image, environment), "what helm test asks, by a name"
        nobody = engine.ask(*ask, "--set", f"http.port={free_ports(1)[0]}")
        assert (nobody.returncode, "does not answer" in nobody.stdout) == (1, True)
        assert worker.stop()["ExitCode"] == 0


def self_test(engine: Engine, image: str, environment: Mapping[str, str]) -> str:
    """The chart's own command, in a container of its own; here the worker's name is localhost."""
    asks = render(values_file("smallest")).one("Pod", "-test-worker")["spec"]["containers"][0]["args"]
    asks[-1] = "http.host=localhost"
    return engine.run("run", "--rm", *LOCKED_DOWN, "--network", "host", *env_flags(environment), image, *asks)


def test_told_to_stop_while_it_starts_it_goes_at_once(engine: Engine, image: str, folder: Path) -> None:
    """The kernel hands PID 1 no signal that it has no handler for: a start would otherwise last out the whole grace."""
    environment = {"SFD_KAFKA__BOOTSTRAP_SERVERS": "127.0.0.1:9", "SFD_KAFKA__GROUP_ID": "g", "SFD_INPUT__TOPIC": "t"}
    environment |= {"SFD_SKETCH__D": "10", "SFD_SKETCH__ELL": "5", "SFD_CHECKPOINT__URL": "file:///state"}
    environment |= {"SFD_DEAD_LETTERS__TOPIC": "bad"}  # it asks the broker, which is not there, before it begins
    options = ("--network", "host", "--volume", f"{folder}:/state")
    with Container(engine, image, environment, *options) as starting:
        starting.wait_for(lambda: "sfd-stream" in starting.processes(), "its process")
        assert starting.stop()["ExitCode"] in (0, 143)


def test_a_store_it_may_not_write_to_is_said_in_words(
    engine: Engine, image: str, broker: LocalBroker, folder: Path
) -> None:
    topic = broker.create_topic(partitions=PARTITIONS)
    environment = environment_for(broker, topic, "file:///var/state")
    answer = engine.ask("run", "--rm", "--read-only", "--network", "host", *env_flags(environment), image)
    assert answer.returncode == 5, answer.stderr
    assert "/var/state" in answer.stderr


def env_flags(environment: Mapping[str, str]) -> list[str]:
    return [word for key, value in environment.items() for word in ("--env", f"{key}={value}")]
