"""Workers of commit 75b2d4e and of today share one group, through a rolling update and a rollback, under load.

Processes are started by the command line, each with its own tree. A producer writes all the time, with messages among
the rows that are not rows. In each direction one worker is stopped by SIGTERM and one is killed by SIGKILL.
"""

from __future__ import annotations

import itertools
import json
import signal
import subprocess
import sys
import threading
import time
import urllib.error
import urllib.request
import uuid
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp
import yaml
from confluent_kafka import Consumer, TopicPartition

from sfd_stream import NoSnapshotError, Sketch, SnapshotReader, encode_rows
from sfd_stream.kafka.records import Record
from sfd_stream.kafka.tail import Tail
from sfd_stream.wire.snapshot_ids import SnapshotId
from tests.parts.kafka import Broker, free_ports
from tests.parts.trees import HERE, RELEASED, NoHistoryError, environment_of, extract
from tests.versions.truth import assert_certified, assert_counted

pytestmark = [pytest.mark.real_kafka, pytest.mark.slow]

PARTITIONS, MESSAGES, ROWS_PER_MESSAGE, NNZ = 4, 500, 20, 5
POISON_EVERY = 61
FEED_EVERY_S = 0.1
DEADLINE_S = 90.0
EXACT_D, RANDOM_D, ELL = 20, 60, 6
"""With few columns no shrink is random: then two versions give the same bits."""


@pytest.fixture(scope="module")
def released(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The tree of that commit, of which it is certain that processes run it."""
    try:
        tree = extract(RELEASED, tmp_path_factory.mktemp("released"))
    except NoHistoryError as error:
        pytest.skip(str(error))
    where = [sys.executable, "-c", "import sfd_stream; print(sfd_stream.__file__)"]
    imported = subprocess.run(where, env=environment_of(tree), capture_output=True, text=True, check=True).stdout
    assert Path(imported.strip()).is_relative_to(tree)
    return tree


def wait_until(condition: Callable[[], Any], what: str) -> None:
    deadline = time.monotonic() + DEADLINE_S
    while not condition():
        assert time.monotonic() < deadline, f"{what} did not happen within {DEADLINE_S:.0f} s"
        time.sleep(0.1)


# What is produced


@dataclass(frozen=True)
class Load:
    """All rows of all partitions, with their messages."""

    matrices: tuple[Any, ...]
    messages: tuple[list[bytes], ...]

    @classmethod
    def random(cls, d: int) -> Load:
        rng = np.random.default_rng(d)
        matrices = tuple(_matrix(rng, MESSAGES * ROWS_PER_MESSAGE, d) for _ in range(PARTITIONS))
        return cls(matrices, tuple(_with_poison(matrix) for matrix in matrices))

    def poison(self) -> dict[tuple[int, int], bytes]:
        """(partition, offset) -> bytes."""
        return {
            (partition, offset): message
            for partition, messages in enumerate(self.messages)
            for offset, message in enumerate(messages)
            if message.startswith(b"poison")
        }


def _matrix(rng: np.random.Generator, rows: int, d: int) -> Any:
    """Values with few bits, so that their sums are exact in any order."""
    weights = 1 / np.arange(1, d + 1)
    columns = rng.choice(d, size=(rows, NNZ), p=weights / weights.sum())
    values = rng.integers(1, 64, size=(rows, NNZ)) / 8.0
    matrix = sp.csr_array((values.ravel(), columns.ravel(), np.arange(rows + 1) * NNZ), shape=(rows, d))
    matrix.sum_duplicates()
    return matrix


def _with_poison(matrix: Any) -> list[bytes]:
    messages = list(encode_rows(matrix, rows_per_message=ROWS_PER_MESSAGE))
    for at in range(POISON_EVERY, len(messages), POISON_EVERY):
        messages.insert(at, f"poison {at}".encode())
    return messages


class Feeder:
    """Writes one message to each partition every `FEED_EVERY_S`, until `finish` writes what is left."""

    def __init__(self, broker: Broker, topic: str, load: Load) -> None:
        self._broker, self._topic = broker, topic
        self._left = [list(messages) for messages in load.messages]
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._feed, daemon=True)
        self._thread.start()

    def _feed(self) -> None:
        while not self._stop.wait(FEED_EVERY_S):
            self._produce(1)

    def _produce(self, count: int) -> None:
        for partition, left in enumerate(self._left):
            self._broker.produce(self._topic, left[:count], partition=partition)
            del left[:count]

    def finish(self) -> None:
        self._stop.set()
        self._thread.join()
        assert all(self._left), "rows came until the last worker had changed"
        self._produce(MESSAGES)


# The workers


@dataclass
class Worker:
    process: subprocess.Popen[bytes]
    port: int
    log_path: Path

    def log(self) -> str:
        return self.log_path.read_text(errors="replace")

    def is_reading(self) -> bool:
        """Whether it has partitions, all of them restored; by its status port."""
        assert self.process.poll() is None, self.log()
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{self.port}/status.json", timeout=10) as answer:
                (status,) = json.load(answer)["workers"]
        except (urllib.error.URLError, ConnectionError, TimeoutError, ValueError):
            return False
        return bool(status["ready"] and status["partitions"])

    def stop(self) -> None:
        self.process.send_signal(signal.SIGTERM)
        assert self.process.wait(DEADLINE_S) == 0, self.log()

    def kill(self) -> None:
        self.process.kill()
        self.process.wait()


@dataclass
class Group:
    """Workers of any tree with the same settings."""

    broker: Broker
    topic: str
    folder: Path
    d: int
    delivery: str
    name: str = field(default_factory=lambda: f"g-{uuid.uuid4().hex[:12]}")
    workers: list[Worker] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.shows = f"{self.name}-sketches"
        self.bad = self.broker.create_topic(name=f"{self.name}-bad")

    def settings(self, port: int) -> Path:
        settings = {
            "kafka": {
                "bootstrap.servers": self.broker.bootstrap,
                "group.id": self.name,
                "session.timeout.ms": 1500,
                "heartbeat.interval.ms": 300,
                "log_level": 3,
            },
            "input": {"topic": self.topic},
            "sketch": {"d": self.d, "ell": ELL, "buffer_max_bytes": 30_000},
            "checkpoint": {"url": (self.folder / self.name).as_uri(), "every_rows": 500, "every_s": 0.5, "keep": 3},
            "snapshot": {"topic": self.shows, "every_s": 2.0, "delivery": self.delivery},
            "dead_letters": {"topic": self.bad},
            "http": {"port": port},
        }
        path = self.folder / f"{self.name}-{port}.yaml"
        path.write_text(yaml.safe_dump(settings))
        return path

    def start(self, tree: Path) -> Worker:
        """Returns when it reads partitions."""
        (port,) = free_ports(1)
        log_path = self.folder / f"{self.name}-{len(self.workers)}.log"
        with log_path.open("wb") as log:
            process = subprocess.Popen(
                [sys.executable, "-m", "sfd_stream.cli", "run", "--config", str(self.settings(port))],
                stdout=log, stderr=log, env=environment_of(tree), cwd=self.folder,
            )  # fmt: skip
        self.workers.append(Worker(process, port, log_path))
        wait_until(self.workers[-1].is_reading, f"worker {len(self.workers)} reading")
        return self.workers[-1]

    def command(self, tree: Path, *arguments: str) -> None:
        """A command of the tree's program, which must succeed."""
        command = [sys.executable, "-m", "sfd_stream.cli", *arguments, "--config", str(self.settings(0))]
        done = subprocess.run(command, env=environment_of(tree), capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stdout + done.stderr

    def close(self) -> None:
        for worker in self.workers:
            worker.kill()

    def sketches(self) -> dict[int, Sketch]:
        """By partition, as a public reader gives them; none before the first snapshot."""
        with SnapshotReader(self.broker.bootstrap, self.shows, group=self.name, log_level=0) as reader:
            try:
                return {snapshot.id.partition: snapshot.sketch for snapshot in reader.latest()}
            except NoSnapshotError:
                return {}

    def rows(self) -> int:
        return sum(sketch.rows for sketch in self.sketches().values())

    def records(self, topic: str) -> list[Record]:
        """All that is committed, in the order of the log."""
        tail = Tail({"bootstrap.servers": self.broker.bootstrap, "log_level": 0}, topic)
        try:
            return [record for batch in tail.catch_up(30) for record in batch]
        finally:
            tail.close()

    def metadata(self) -> set[str]:
        """Of the offsets that are committed while some checkpoints are written, of which one in four has a snapshot."""
        consumer = Consumer({"bootstrap.servers": self.broker.bootstrap, "group.id": self.name, "log_level": 0})
        found = set()
        try:
            for _ in range(20):
                offsets = consumer.committed([TopicPartition(self.topic, p) for p in range(PARTITIONS)], 30)
                found |= {offset.metadata for offset in offsets}
                time.sleep(0.1)
        finally:
            consumer.close()
        return found


@pytest.fixture
def make_group(kafka: Broker, tmp_path: Path) -> Iterator[Callable[..., Group]]:
    groups: list[Group] = []

    def make(topic: str, d: int, delivery: str) -> Group:
        groups.append(Group(kafka, topic, tmp_path, d, delivery))
        return groups[-1]

    yield make
    for group in groups:
        group.close()


def replace_both(group: Group, old: Sequence[Worker], tree: Path) -> list[Worker]:
    """Two workers of `tree` for the two `old` ones, one by one: the first is stopped, the second is killed."""
    first = group.start(tree)
    old[0].stop()
    second = group.start(tree)
    old[1].kill()
    before = group.rows()
    wait_until(lambda: group.rows() > before + 10 * PARTITIONS * ROWS_PER_MESSAGE, "rows counted by the new workers")
    return [first, second]


# What must hold at the end


def assert_letters_complete(group: Group, load: Load) -> None:
    """Every message that is no row is in the dead-letter topic, as it was. A letter may be there twice."""
    found = {}
    for record in group.records(group.bad):
        headers = dict(record.headers)
        found[int(headers["sfd-partition"] or b""), int(headers["sfd-offset"] or b"")] = record.value
    assert found == load.poison()


def assert_each_state_published_once(group: Group) -> None:
    ids = [SnapshotId.from_headers(record.headers) for record in group.records(group.shows)]
    for partition in range(PARTITIONS):
        orders = [one.order for one in ids if one is not None and one.partition == partition]
        assert all(before < after for before, after in itertools.pairwise(orders)), orders


def assert_states_are_named(released: Path, metadata: set[str]) -> None:
    """Whether workers of 75b2d4e find the id of a state in the metadata that today's workers commit."""
    code = "import sys; from sfd_stream.service.courier import state_id_in; print(*map(state_id_in, sys.argv[1:]))"
    command = [sys.executable, "-c", code, *metadata]
    read = subprocess.run(command, env=environment_of(released), capture_output=True, text=True, check=True).stdout
    assert "None" not in read, metadata


def undisturbed(group: Group, tree: Path) -> dict[int, Sketch]:
    group.command(tree, "run", "--until-end")
    return group.sketches()


@pytest.mark.parametrize("d", [EXACT_D, RANDOM_D], ids=["exact", "random"])
@pytest.mark.parametrize("delivery", ["idempotent", "transactional"])
def test_a_rolling_update_from_75b2d4e_and_its_rollback_count_every_row_once(
    kafka: Broker, make_group: Callable[..., Group], released: Path, delivery: str, d: int
) -> None:
    load, topic = Load.random(d), kafka.create_topic(partitions=PARTITIONS)
    group = make_group(topic, d, delivery)
    feeder = Feeder(kafka, topic, load)
    old = [group.start(released), group.start(released)]
    new = replace_both(group, old, HERE)
    if delivery == "transactional":
        assert_states_are_named(released, group.metadata())
    again = replace_both(group, new, released)
    feeder.finish()
    wait_until(lambda: group.rows() == PARTITIONS * MESSAGES * ROWS_PER_MESSAGE, "all rows published")
    for worker in again:
        worker.stop()
    found = group.sketches()
    for partition, matrix in enumerate(load.matrices):
        assert_counted(found[partition], matrix)
        assert_certified(found[partition], matrix)
    assert_letters_complete(group, load)
    for tree in (released, HERE):
        group.command(tree, "checkpoint", "verify")
    if delivery == "transactional":
        assert_each_state_published_once(group)
    if d == EXACT_D:
        assert found == undisturbed(make_group(topic, d, delivery), released)
        today = undisturbed(make_group(topic, d, delivery), HERE)
        assert found == {p: replace(one, failure_probability=0.01) for p, one in today.items()}, (
            "the state keeps the failure probability that it was begun with; all else is the same"
        )
