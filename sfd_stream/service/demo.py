"""The demo: text flows through a broker into two workers; one is killed; nothing is lost. Every claim is checked."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import yaml
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient

from sfd_stream.errors import SfdError
from sfd_stream.service.demo_text import bags
from sfd_stream.service.filler import Filler
from sfd_stream.service.row_messages import bag_messages
from sfd_stream.service.summary import Loaded
from sfd_stream.service.topics import ensure_topic
from sfd_stream.sketch.measures import covariance_error
from sfd_stream.sketch.rows import RowBlock
from sfd_stream.sketch.sketch import Sketch
from sfd_stream.wire.columns import HashedColumns
from sfd_stream.wire.rows import decode

COLUMNS = 4096
ELL = 40
TOPIC, GROUP, PARTITIONS = "docstrings", "demo", 4
FEED_S = 6.0
"""Rows are fed over this time, so that there is a middle to kill a worker in."""

PATIENCE_S = 90.0


class DemoError(SfdError):
    """A claim of the demo did not hold."""


@dataclass(frozen=True)
class Truth:
    """What was fed in, known exactly."""

    block: RowBlock
    names: Mapping[int, str]
    messages: list[Any]

    @property
    def squared_frobenius(self) -> float:
        return float(self.block.values @ self.block.values)


def truth() -> Truth:
    messages = list(bag_messages(bags()))
    decoded = decode([message.value for message in messages], HashedColumns(COLUMNS))
    assert isinstance(decoded.columns, HashedColumns)
    return Truth(decoded.block, decoded.columns.names, messages)


def write_settings(folder: Path, bootstrap: str, checkpoint_url: str) -> Path:
    settings = {
        "kafka": {
            "bootstrap.servers": bootstrap,
            "group.id": GROUP,
            "session.timeout.ms": 3000,
            "heartbeat.interval.ms": 300,
        },
        "input": {"topic": TOPIC, "columns": "hashed"},
        "sketch": {"d": COLUMNS, "ell": ELL, "buffer_max_bytes": "256KiB"},
        "checkpoint": {"url": checkpoint_url, "every_rows": 200, "every_s": 1},
        "http": {"port": 0},
    }
    path = folder / "demo.yaml"
    path.write_text(yaml.safe_dump(settings))
    return path


@contextlib.contextmanager
def built_in_broker() -> Iterator[str]:
    """Librdkafka's own broker in a process of its own, as a real one would be."""
    command = [sys.executable, "-m", "sfd_stream.kafka.embedded"]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        try:
            yield process.stdout.readline().strip()
        finally:
            process.terminate()


@contextlib.contextmanager
def workers(settings: Path, folder: Path, count: int) -> Iterator[list[subprocess.Popen[bytes]]]:
    """Processes of one consumer group; ended by SIGTERM, and looked after if they do not end."""
    command = [sys.executable, "-m", "sfd_stream.cli", "run", "--config", str(settings)]
    with contextlib.ExitStack() as stack:
        logs = [stack.enter_context((folder / f"worker-{i}.log").open("wb")) for i in range(count)]
        started = [subprocess.Popen(command, stderr=log, stdout=log) for log in logs]
        try:
            yield started
        finally:
            for process in started:
                if process.poll() is None:
                    process.terminate()
            for process in started:
                try:
                    process.wait(30)
                except subprocess.TimeoutExpired:
                    process.kill()


def make_topic(bootstrap: str) -> Producer:
    """The topic, made by asking (the built-in broker) or by request (a real one); and a producer for it."""
    producer = Producer({"bootstrap.servers": bootstrap, "linger.ms": 20})
    if not _partitions(producer):
        ensure_topic(AdminClient({"bootstrap.servers": bootstrap}), TOPIC, PARTITIONS, sleep=time.sleep)
    wait_for(lambda: _partitions(producer) > 0, f"topic {TOPIC} being made")
    return producer


def _partitions(producer: Producer) -> int:
    return len(producer.list_topics(TOPIC, timeout=10).topics[TOPIC].partitions)


def feed(producer: Producer, truth: Truth, progress: Callable[[int], None]) -> None:
    filler = Filler(
        producer, TOPIC, partitions=_partitions(producer), keys="round-robin", rate=truth.block.rows / FEED_S,
        clock=time.monotonic,
    )  # fmt: skip
    filler.fill(iter(truth.messages), progress)


def wait_for(condition: Callable[[], bool], what: str) -> None:
    deadline = time.monotonic() + PATIENCE_S
    while not condition():
        if time.monotonic() > deadline:
            raise DemoError(f"{what} did not happen within {PATIENCE_S:.0f} s")
        time.sleep(0.1)


def kill(process: subprocess.Popen[bytes]) -> None:
    os.kill(process.pid, signal.SIGKILL)
    process.wait()


def check_counters(truth: Truth, sketch: Sketch) -> None:
    """Not one row lost, not one counted twice: numbers that are exact."""
    sums = truth.block.csr().T @ np.ones(truth.block.rows)
    claims = {
        "rows": (sketch.rows, truth.block.rows),
        "non-zeros": (sketch.nnz, truth.block.nnz),
        "squared Frobenius norm": (sketch.squared_frobenius, truth.squared_frobenius),
        "column sums": (bool(np.array_equal(np.asarray(sketch.column_sums), sums)), True),
    }
    for name, (found, fed) in claims.items():
        if found != fed:
            raise DemoError(f"{name} of the sketch: {found}, of the input: {fed}")


def errors(truth: Truth, sketch: Sketch) -> tuple[float, float]:
    """The true error and the certified one, as shares of ||A||F^2."""
    true = covariance_error(truth.block.csr(), sketch)
    certified = sketch.delta / sketch.squared_frobenius
    if true > certified:
        raise DemoError(f"the true error {true:.3%} exceeds the certified {certified:.3%}")
    return true, certified


def merged(loaded: list[Loaded]) -> tuple[Sketch, dict[int, str]]:
    names: dict[int, str] = {}
    for part in loaded:
        if isinstance(part.state.columns, HashedColumns):
            names = {**part.state.columns.names, **names}
    return Sketch.merge_all(part.state.sketch() for part in loaded), names


def directions(sketch: Sketch, names: Mapping[int, str], k: int, words: int) -> list[list[str]]:
    """The strongest words of the k strongest directions, centred."""
    found = []
    for component in sketch.pca(k).components:
        strongest = np.argsort(-np.abs(component))[:words]
        found.append([names.get(int(column), f"column {column}") for column in strongest])
    return found
