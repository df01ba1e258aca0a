"""A watch that is told what a worker would tell it, with real sketches; time is the caller's."""

from __future__ import annotations

from concurrent.futures import Executor, Future
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any, cast

import numpy as np

from sfd_stream.config import load
from sfd_stream.config.model import Settings
from sfd_stream.loop.jobs import Jobs
from sfd_stream.loop.runtime import Runtime
from sfd_stream.observe.facts import LoopState
from sfd_stream.observe.registry import MetricsRegistry
from sfd_stream.observe.spectra import SpectrumSampler
from sfd_stream.observe.worker_status import Watch
from sfd_stream.sketch.builder import Parameters
from sfd_stream.sketch.rows import RowBlock
from sfd_stream.state.manifest import Binding, BlobRef, Kind, Manifest, StateId, blob_key
from sfd_stream.state.partition import PartitionState, Shape
from sfd_stream.wire.columns import HashedColumns
from sfd_stream.wire.rows.decode import DecodedBatch
from sfd_stream.worker.partitions import OwnedPartition, Partitions, Phase
from sfd_stream.worker.report import Report
from sfd_stream.worker.sketch_thread import SketchThread

WORDS = ("array", "axis", "dtype", "index", "shape", "matrix", "values", "return", "default", "optional", "callable")


class AtOnce(Executor):
    """Does it now, on this thread."""

    def submit(self, job: Any, /, *args: Any, **named: Any) -> Future[Any]:
        future: Future[Any] = Future()
        future.set_result(job(*args, **named))
        return future


class Clock:
    def __init__(self, now: float = 1_000.0) -> None:
        self.now = now

    def __call__(self) -> float:
        return self.now


def manifest(number: int, *, partition: int = 0, epoch: int = 3, next_offset: int = 0, size: int = 1_000) -> Manifest:
    blob = BlobRef(blob_key("g/t/0", number, epoch, "n", "sketch"), size, b"")
    older = BlobRef(blob_key("g/t/0", number - 1, epoch, "n", "segment"), 77, b"")
    return Manifest(
        number=number, epoch=epoch, nonce="n", parent=None, kind=Kind.CHECKPOINT,
        binding=Binding(None, None, "g", "t", partition), next_offset=next_offset, leader_epoch=None, sketch=blob,
        buffer=(older,), counters={}, parameters={}, state_id=StateId(epoch, number), due=None, published=None,
        written_at_s=0.0,
    )  # fmt: skip


class StagedSource:
    """Where reading stands, as the test has it."""

    def __init__(self) -> None:
        self.positions: dict[int, int] = {}
        self.ends: dict[int, int] = {}
        self.paused: set[int] = set()
        self.last_committed: dict[int, int] = {}

    def position(self, partition: int) -> int:
        return self.positions[partition]

    def known_end(self, partition: int) -> int | None:
        return self.ends[partition]


def settings_of(*overrides: str) -> Settings:
    """Settings of a worker of `group` on topic `rows`, which publishes snapshots."""
    given = ["kafka.bootstrap.servers=b:1", "kafka.group.id=group", "input.topic=rows", "sketch.d=256"]
    given += ["checkpoint.url=memory://", "snapshot.topic=sketches", "worker.memory_max_bytes=1GiB"]
    return load(None, environ={}, overrides=[*given, *overrides]).settings


@dataclass
class Stage:
    """`feed` rows, `tick` time on; `watch.status` is what the port would show."""

    partitions: int = 2
    d: int = 256
    ell: int = 20
    words: tuple[str, ...] = WORDS
    clock: Clock = field(default_factory=Clock)
    wall: Clock = field(default_factory=lambda: Clock(1_800_000_000.0))
    worker: str = "0"
    first: int = 0  # the number of the first partition

    def __post_init__(self) -> None:
        self.rng = np.random.default_rng(1)
        self.sampler = SpectrumSampler(AtOnce().submit, self.clock, self.wall, drift_every_s=30.0)
        settings = settings_of(f"sketch.ell={self.ell}")
        self.watch = Watch(self.worker, settings, MetricsRegistry(), self.sampler, self.clock, self.wall)
        self.around = LoopState(True, False, True, None, 2**26)
        self.source: Any = StagedSource()
        store: Any = None
        runtime, plan = Runtime(store, clock=self.clock, sketch=AtOnce()), cast("Any", None)
        self.table, sketch = Partitions(plan), SketchThread(runtime, self.watch)
        self.report = Report(plan, runtime, self.source, self.table, Jobs(runtime), sketch, self.watch)
        parameters = Parameters(d=self.d, ell=self.ell, buffer_entries_max=4_000)
        shape = Shape(HashedColumns(self.d, names=dict(enumerate(self.words))), parameters)
        numbers = range(self.first, self.first + self.partitions)
        self.watch.rebalanced("assign", numbers)
        for number in numbers:
            chain: Any = SimpleNamespace(where=f"rows/{number}", manifest=manifest(1, partition=number), published=None)
            chain.newest = SimpleNamespace(has_newer_state=False)
            owned = OwnedPartition(number, chain, SilentLog(), self.clock())
            owned.move(Phase.CLAIMING)
            owned.begin_reading(PartitionState(shape, 0), self.clock())
            sketch.begin(owned, PartitionState(shape, 0))
            self.table.add(owned)
            self.source.positions[number] = self.source.ends[number] = self.source.last_committed[number] = 0
            self.watch.restored(0.0, 0)

    @property
    def ends(self) -> dict[int, int]:
        return self.source.ends  # type: ignore[no-any-return]

    def owned(self, partition: int) -> OwnedPartition:
        found = self.table.get(partition)
        assert found is not None
        return found

    @property
    def states(self) -> dict[int, PartitionState]:
        return {owned.number: owned.live.whole for owned in self.table}

    def put(self, partition: int, state: str) -> None:
        """One of metrics.STATES."""
        owned = self.owned(partition)
        owned.store_behind = state == "paused"
        owned.phase = Phase.READING if state == "paused" else Phase(state)

    def feed(self, partition: int, rows: int) -> None:
        owned, block = self.owned(partition), self._rows(rows)
        before, next_offset = owned.live.facts, owned.live.facts.next_offset + rows
        batch = DecodedBatch(block, np.ones(rows, np.int64), (), owned.live.whole.columns, ())
        owned.live.apply(batch, next_offset, None, 0)
        since_s = owned.taken.unpublished.since_s
        owned.taken.take(batch, next_offset, self.clock())
        owned.taken.unpublished.since_s = since_s  # `age` says when
        self.watch.took(partition, messages=rows, rows=rows, nnz=block.nnz, size=8 * block.nnz, tombstones=0)
        self.watch.applied(partition, before, owned.live.facts, 0.05)
        self.source.positions[partition] = next_offset
        self.ends[partition] = max(self.ends[partition], next_offset)

    def _rows(self, rows: int) -> RowBlock:
        """A few strong topics of columns, which shift slowly, and noise."""
        topic = self.rng.integers(0, 8, rows)
        nnz = 12
        near = (topic[:, None] * 5 + self.rng.integers(0, 9, (rows, nnz // 2))) % self.d
        far = self.rng.integers(0, self.d, (rows, nnz - nnz // 2))
        columns = np.sort(np.concatenate([near, far], axis=1), axis=1)
        lists = [np.unique(row) for row in columns]
        indptr = np.cumsum([0, *(len(row) for row in lists)])
        indices = np.concatenate(lists).astype(np.int32)
        return RowBlock(indptr.astype(np.int64), indices, self.rng.exponential(1.0, len(indices)), self.d)

    def checkpoint(self, partition: int) -> None:
        self.owned(partition).taken.unstored.begin(self.clock())
        self.stored(partition)

    def stored(self, partition: int) -> None:
        """The checkpoint that was begun is durable."""
        owned, offset = self.owned(partition), self.owned(partition).live.facts.next_offset
        number = owned.chain.manifest.number + 1  # type: ignore[union-attr]
        owned.chain.manifest = manifest(number, partition=partition, next_offset=offset)
        owned.taken.unstored.end()
        self.source.last_committed[partition] = offset
        self.watch.durable(partition, owned.chain.manifest, 0.1)

    def publish(self, partition: int, size: int) -> None:
        owned = self.owned(partition)
        owned.taken.unpublished.end()
        owned.chain.published = cast("Any", SimpleNamespace(blob=SimpleNamespace(size=size)))
        self.watch.snapshot_published(partition, 0.25)

    def show(self) -> None:
        self.report.publish(self.around)

    def tick(self, seconds: float = 1.0) -> None:
        self.clock.now += seconds
        self.wall.now += seconds
        self.watch.alive()
        self.watch.polled()
        if self.watch.due():
            self.show()


class SilentLog:
    def bind(self, **_: Any) -> SilentLog:
        return self

    def info(self, event: str, **_: Any) -> None:
        """Nobody reads it."""

    warning = debug = info
