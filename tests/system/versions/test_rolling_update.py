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
from sfd_stream.kafka.topic_reader import Tail
from sfd_stream.wire.snapshot_ids import SnapshotId
from tests.support.kafka import Broker, free_ports
from tests.support.trees import HERE, RELEASED, NoHistoryError, environment_of, extract
from tests.system.versions.truth import assert_certified, assert_counted

pytestmark = [pytest.mark.real_kafka, pytest.mark.slow]

PARTITIONS, ROWS_PER_MESSAGE, NNZ = 4, 20, 5
BURST = 200
POISON_EVERY = 61
FEED_EVERY_S = 0.1
DEADLINE_S = 120.0
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


class Feeder:
    """Writes a message of rows to each partition every `FEED_EVERY_S`, however long an update takes, and keeps all."""

    def __init__(self, broker: Broker, topic: str, d: int) -> None:
        self._broker, self._topic, self._d = broker, topic, d
        self._rng = np.random.default_rng(d)
        self._blocks: list[list[Any]] = [[] for _ in range(PARTITIONS)]
        self.poison: dict[tuple[int, int], bytes] = {}
        """(partition, offset) -> bytes, of the messages that are not rows."""
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._feed, daemon=True)
        self._thread.start()

    def _feed(self) -> None:
        while not self._stop.wait(FEED_EVERY_S):
            self.write(1)

    def write(self, count: int) -> None:
        for partition in range(PARTITIONS):
            messages = [self._message(partition) for _ in range(count)]
            self._broker.produce(self._topic, messages, partition=partition)

    def _message(self, partition: int) -> bytes:
        blocks = self._blocks[partition]
        offset = len(blocks) + sum(where[0] == partition for where in self.poison)
        if offset % POISON_EVERY == POISON_EVERY - 1:
            self.poison[partition, offset] = f"poison {offset}".encode()
            return self.poison[partition, offset]
        blocks.append(_block(self._rng, self._d))
        (message,) = encode_rows(blocks[-1], rows_per_message=ROWS_PER_MESSAGE)
        return message

    def finish(self) -> None:
        """Writes many rows at once at the end."""
        self.stop()
        self.write(BURST)

    def stop(self) -> None:
        self._stop.set()
        self._thread.join()

    def matrices(self) -> list[Any]:
        """All rows of each partition."""
        return [sp.vstack(blocks, format="csr") for blocks in self._blocks]


def _block(rng: np.random.Generator, d: int) -> Any:
    """Values with few bits, so that their sums are exact in any order."""
    weights = 1 / np.arange(1, d + 1)
    columns = rng.choice(d, size=(ROWS_PER_MESSAGE, NNZ), p=weights / weights.sum())
    values = rng.integers(1, 64, size=columns.shape) / 8.0
    shape = ROWS_PER_MESSAGE, d
    block = sp.csr_array((values.ravel(), columns.ravel(), np.arange(ROWS_PER_MESSAGE + 1) * NNZ), shape=shape)
    block.sum_duplicates()
    return block


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


@pytest.fixture
def make_feeder(kafka: Broker) -> Iterator[Callable[..., Feeder]]:
    feeders: list[Feeder] = []

    def make(topic: str, d: int) -> Feeder:
        feeders.append(Feeder(kafka, topic, d))
        return feeders[-1]

    yield make
    for feeder in feeders:
        feeder.stop()


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


def assert_letters_complete(group: Group, poison: dict[tuple[int, int], bytes]) -> None:
    """Every message that is no row is in the dead-letter topic, as it was. A letter may be there twice."""
    found = {}
    for record in group.records(group.bad):
        headers = dict(record.headers)
        found[int(headers["sfd-partition"] or b""), int(headers["sfd-offset"] or b"")] = record.value
    assert found == poison


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
    kafka: Broker,
    make_group: Callable[..., Group],
    make_feeder: Callable[..., Feeder],
    released: Path,
    delivery: str,
    d: int,
) -> None:
    topic = kafka.create_topic(partitions=PARTITIONS)
    group, feeder = make_group(topic, d, delivery), make_feeder(topic, d)
    old = [group.start(released), group.start(released)]
    new = replace_both(group, old, HERE)
    if delivery == "transactional":
        assert_states_are_named(released, group.metadata())
    again = replace_both(group, new, released)
    feeder.finish()
    matrices = feeder.matrices()
    wait_until(lambda: group.rows() == sum(matrix.shape[0] for matrix in matrices), "all rows published")
    for worker in again:
        worker.stop()
    found = group.sketches()
    for partition, matrix in enumerate(matrices):
        assert_counted(found[partition], matrix)
        assert_certified(found[partition], matrix)
    assert_letters_complete(group, feeder.poison)
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


@pytest.mark.parametrize("delivery", ["idempotent", "transactional"])
def test_a_state_begun_today_is_continued_by_75b2d4e_and_back(
    kafka: Broker,
    make_group: Callable[..., Group],
    make_feeder: Callable[..., Feeder],
    released: Path,
    delivery: str,
) -> None:
    """As after an update that added partitions, and its rollback."""
    topic = kafka.create_topic(partitions=PARTITIONS)
    group, feeder = make_group(topic, EXACT_D, delivery), make_feeder(topic, EXACT_D)
    feeder.stop()
    for tree in (HERE, released, HERE):
        feeder.write(BURST)
        group.command(tree, "run", "--until-end")
        found = group.sketches()
        for partition, matrix in enumerate(feeder.matrices()):
            assert_counted(found[partition], matrix)
            assert_certified(found[partition], matrix)
    assert_letters_complete(group, feeder.poison)
    group.command(released, "read")
    today = undisturbed(make_group(topic, EXACT_D, delivery), HERE)
    for partition, sketch in found.items():
        share = today[partition].failure_probability
        assert sketch.failure_probability == pytest.approx(share + 0.01), "each version spends what it means by it"
        assert replace(sketch, failure_probability=share) == today[partition]
