"""Runs of workers as real processes, and what they left in the store."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import threading
import time
import uuid
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Any

import numpy as np
import scipy.sparse as sp

from sfd_stream.cli.build import shape_of, store_of, worker_of
from sfd_stream.config.model import Settings
from sfd_stream.errors import ObjectMissingError
from sfd_stream.kafka.source import Source
from sfd_stream.state.manifest import Manifest, decode_manifest, manifests_prefix
from sfd_stream.state.partition import Frozen, PartitionState
from sfd_stream.state.perform import Patience, run
from sfd_stream.storage.contract import partition_prefix
from sfd_stream.tools.inspect import Loaded, load_newest
from sfd_stream.wire.rows.encode import encode_rows
from sfd_stream.worker.worker import Worker
from tests.support.kafka import Broker
from tests.system import killable

DEADLINE_S = 60.0
PROTOCOLS: dict[str, dict[str, Any]] = {
    "cooperative": {"session.timeout.ms": 1500, "heartbeat.interval.ms": 300},
    "kip-848": {"group.protocol": "consumer"},
}


def wait_until(condition: Callable[[], Any], what: str, deadline_s: float = DEADLINE_S) -> None:
    deadline = time.monotonic() + deadline_s
    while not condition():
        assert time.monotonic() < deadline, f"{what} did not happen within {deadline_s:.0f} s"
        time.sleep(0.02)


@dataclass
class WorkerProcess:
    """A worker, its log lines, and its end."""

    process: BaseProcess
    log_path: Path
    marker: Path | None = None

    @property
    def pid(self) -> int:
        assert self.process.pid is not None
        return self.process.pid

    @property
    def alive(self) -> bool:
        return self.process.is_alive()

    def signal(self, number: signal.Signals) -> None:
        if self.alive:
            os.kill(self.pid, number)

    def wait(self, timeout_s: float = DEADLINE_S) -> int:
        """Its exit code, or minus the signal that ended it."""
        self.process.join(timeout_s)
        code = self.process.exitcode
        assert code is not None, f"worker {self.pid} did not end within {timeout_s:.0f} s:\n{self.log()}"
        return code

    def log(self) -> str:
        return self.log_path.read_text(errors="replace")

    def events(self, event: str) -> list[dict[str, Any]]:
        lines = [json.loads(line) for line in self.log().splitlines() if line.startswith("{")]
        return [line for line in lines if line["event"] == event]

    def values(self, key: str) -> list[Any]:
        """The values of this key in its log lines."""
        lines = [json.loads(line) for line in self.log().splitlines() if line.startswith("{")]
        return [line[key] for line in lines if key in line]

    def until_logged(self, text: str) -> None:
        wait_until(lambda: text in self.log() or not self.alive, text)
        assert text in self.log(), f"worker {self.pid} ended without {text!r}:\n{self.log()}"

    def kill(self) -> None:
        self.process.kill()
        self.process.join()


class Companion:
    """A worker on a thread of this process: what it raised is kept for the test that waits."""

    def __init__(self, worker: Worker, source: Source, on_turn: Callable[[], None] = lambda: None) -> None:
        self.worker = worker
        self._on_turn = on_turn
        self.source = source
        self.error: BaseException | None = None
        self.thread = threading.Thread(target=self._work, daemon=True)
        self.thread.start()

    def _work(self) -> None:
        try:
            self.worker.run(self._on_turn)
        except BaseException as error:  # noqa: BLE001 - kept for the test
            self.error = error

    def until(self, condition: Callable[[], Any], what: str = "it") -> None:
        wait_until(lambda: condition() or not self.thread.is_alive(), what)
        assert condition(), f"{what} did not happen: {self.error!r}"

    def end(self) -> BaseException | None:
        """Waits for its end, whatever it is."""
        self.thread.join(DEADLINE_S)
        assert not self.thread.is_alive()
        return self.error

    def stop(self) -> None:
        self.worker.stop()
        error = self.end()
        if error is not None:
            raise error


@dataclass
class Run:
    """One group on one topic with one store: workers come and go."""

    broker: Broker
    topic: str
    folder: Path
    url: str
    options: Mapping[str, str] = field(default_factory=dict)
    group: str = field(default_factory=lambda: f"g-{uuid.uuid4().hex[:12]}")
    protocol: str = "cooperative"
    changes: dict[str, dict[str, Any]] = field(default_factory=dict)
    workers: list[WorkerProcess] = field(default_factory=list)
    companions: list[Companion] = field(default_factory=list)

    def settings(self, **changes: Mapping[str, Any]) -> Settings:
        """Small intervals and a small buffer: many shrinks and checkpoints in few rows."""
        given: dict[str, dict[str, Any]] = {
            "kafka": {
                "bootstrap.servers": self.broker.bootstrap,
                "group.id": self.group,
                "topic.metadata.refresh.interval.ms": 500,
                "reconnect.backoff.max.ms": 500,
                "fetch.wait.max.ms": 50,
                "log_level": 3,
                **PROTOCOLS[self.protocol],
            },
            "input": {"topic": self.topic},
            "sketch": {"d": 100, "ell": 10, "buffer_max_bytes": 60_000},
            "checkpoint": {
                "url": self.url,
                "options": dict(self.options),
                "every_rows": 2000,
                "every_s": 0.3,
                "keep": 2,
                "revoke_budget_s": 5,
                "give_up_s": 60,
            },
            "http": {"port": 0},
            "worker": {"batch_records": 200},
            "log": {"level": "debug"},
        }
        for section, values in [*self.changes.items(), *changes.items()]:
            given[section] = {**given.get(section, {}), **values}
        return Settings.model_validate(given)

    def start(
        self,
        *,
        until_end: bool = False,
        die_at: str | None = None,
        nth: int = 1,
        slow_at: str | None = None,
        slow_loop_s: float | None = None,
        stop_at: str | None = None,
        program: str = "run",
        **changes: Mapping[str, Any],
    ) -> WorkerProcess:
        name = f"{self.group}-{len(self.workers)}"
        path, log_path, marker = (self.folder / f"{name}.{kind}" for kind in ("json", "log", "reached"))
        settings = self.settings(**changes)
        dumped: dict[str, Any] = settings.model_dump(exclude_unset=True)
        dumped["checkpoint"]["options"] = dict(self.options)  # a dump hides secrets
        path.write_text(json.dumps(dumped))
        environment = {"SFD_TEST_PROGRAM": program}
        if die_at is not None:
            environment["SFD_TEST_DIE_AT"] = f"{die_at}:{nth}:{marker}"
        if stop_at is not None:
            environment["SFD_TEST_STOP_AT"] = f"{stop_at}:{nth}:{marker}"
        if slow_at is not None:
            environment["SFD_TEST_SLOW_AT"] = slow_at
        if slow_loop_s is not None:
            environment["SFD_TEST_SLOW_LOOP"] = str(slow_loop_s)
        process = killable.start(path, log_path, environment, until_end=until_end)
        worker = WorkerProcess(process, log_path, marker if die_at or stop_at else None)
        self.workers.append(worker)
        return worker

    def to_the_end(self, **changes: Mapping[str, Any]) -> WorkerProcess:
        worker = self.start(until_end=True, **changes)
        code = worker.wait()
        assert code == 0, worker.log()
        return worker

    def inside(self, *, until_end: bool = True, **changes: Mapping[str, Any]) -> Worker:
        """A worker in this process, run to its end; what it refuses is raised."""
        worker, _ = worker_of(self.settings(**changes), until_end=until_end)
        worker.run()
        return worker

    def begin(
        self, *, until_end: bool = False, reach: Callable[[str], None] | None = None, **changes: Mapping[str, Any]
    ) -> Companion:
        """A worker in this process, on a thread of its own."""
        hooks = {} if reach is None else {"reach": reach}
        self.companions.append(Companion(*worker_of(self.settings(**changes), until_end=until_end, **hooks)))
        return self.companions[-1]

    def close(self) -> None:
        for worker in self.workers:
            worker.kill()
        for companion in self.companions:
            companion.worker.stop()
            companion.thread.join(DEADLINE_S)

    # What is in the store

    def manifests(self, partition: int) -> list[Manifest]:
        """Those that are there; its owner may remove some while we look."""
        store, prefix = store_of(self.settings()), partition_prefix(self.group, self.topic, partition)
        found = []
        for key in store.list(manifests_prefix(prefix)):
            with contextlib.suppress(ObjectMissingError):
                found.append(decode_manifest(store.get(key)))
        return found

    def newest(self, partition: int) -> Manifest | None:
        found = self.manifests(partition)
        return found[-1] if found else None

    def durable_offset(self, partition: int) -> int:
        newest = self.newest(partition)
        return -1 if newest is None else newest.next_offset

    def state(self, partition: int, **changes: Mapping[str, Any]) -> PartitionState:
        settings = self.settings(**changes)
        prefix = partition_prefix(self.group, self.topic, partition)
        patience = Patience(10, time.monotonic, time.sleep, lambda: 1.0)
        steps = load_newest(prefix, f"{self.topic}/{partition}", shape_of(settings, partition))
        loaded = run(steps, store_of(settings), patience)
        assert isinstance(loaded, Loaded), loaded
        return loaded.state


@dataclass(frozen=True)
class Rows:
    """What goes into a topic: a matrix a partition, its messages, and what must come out exactly."""

    matrices: tuple[Any, ...]
    rows_per_message: int | None

    @classmethod
    def random(
        cls,
        rows: int,
        *,
        partitions: int = 1,
        d: int = 100,
        nnz: int = 5,
        seed: int = 0,
        rows_per_message: int | None = 20,
    ) -> Rows:
        """Values with few bits: their sums are exact in any order. Columns of uneven weight."""
        rng = np.random.default_rng(seed)
        weights = rng.permutation(1 / np.arange(1, d + 1))
        return cls(
            tuple(_matrix(rng, rows // partitions, d, nnz, weights) for _ in range(partitions)), rows_per_message
        )

    def messages(self, partition: int) -> list[bytes]:
        return list(encode_rows(self.matrices[partition], rows_per_message=self.rows_per_message))

    def produce(self, broker: Broker, topic: str) -> None:
        for partition in range(len(self.matrices)):
            broker.produce(topic, self.messages(partition), partition=partition)

    def ends(self) -> list[int]:
        step = self.rows_per_message or 1
        return [-(-matrix.shape[0] // step) for matrix in self.matrices]


def _matrix(rng: np.random.Generator, rows: int, d: int, nnz: int, weights: Any) -> Any:
    columns = rng.choice(d, size=(rows, nnz), p=weights / weights.sum())
    values = rng.integers(1, 64, size=(rows, nnz)) / 8.0
    matrix = sp.csr_array((values.ravel(), columns.ravel(), np.arange(rows + 1) * nnz), shape=(rows, d))
    matrix.sum_duplicates()
    return matrix


def assert_counts(state: PartitionState, matrix: Any) -> None:
    """Rows, non-zeros, column sums and squared norm are those of the input, to the last bit."""
    sketch = state.sketch()
    assert (state.rows, state.builder.nnz) == (matrix.shape[0], matrix.nnz)
    assert sketch.rows == matrix.shape[0]
    assert np.array_equal(sketch.column_sums, np.asarray(matrix.sum(axis=0)).ravel())
    assert sketch.squared_frobenius == float(np.sum(matrix.data**2)), "the sum is exact, so its order does not matter"


def assert_same(state: PartitionState, other: PartitionState) -> None:
    """Bit for bit: what is frozen of both, and the sketch that they give."""
    assert _plain(state.freeze()) == _plain(other.freeze())
    assert state.sketch() == other.sketch()


def _plain(frozen: Frozen) -> dict[str, Any]:
    joined = {name: [getattr(block, name) for block in frozen.blocks] for name in ("indices", "values")}
    lengths = [np.diff(block.indptr) for block in frozen.blocks]
    return {
        "next_offset": frozen.next_offset,
        "counters": dict(frozen.counters),
        "numbers": dict(frozen.numbers),
        "arrays": {name: array.tobytes() for name, array in frozen.arrays.items()},
        "lengths": b"".join(length.tobytes() for length in lengths),
        **{name: b"".join(array.tobytes() for array in arrays) for name, arrays in joined.items()},
        "names": frozen.names,
    }
