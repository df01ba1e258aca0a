"""A watch that is told what a worker would tell it, with real sketches; time is the caller's."""

from __future__ import annotations

from concurrent.futures import Executor, Future
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from sfd_stream.observe.facts import Around, Facts, Seen
from sfd_stream.observe.registry import Meter
from sfd_stream.observe.spectra import Looker, Shot
from sfd_stream.observe.worker_status import Identity, Watch
from sfd_stream.sketch.builder import Parameters
from sfd_stream.sketch.rows import RowBlock
from sfd_stream.state.manifest import Binding, BlobRef, Kind, Manifest, StateId, blob_key
from sfd_stream.state.partition import PartitionState, Shape
from sfd_stream.wire.columns import HashedColumns
from sfd_stream.wire.rows.decode import DecodedBatch

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

    def __post_init__(self) -> None:
        self.rng = np.random.default_rng(1)
        self.looker = Looker(AtOnce().submit, self.clock, self.wall, drift_every_s=30.0)
        identity = Identity(self.worker, "group", "rows", self.ell, "fused", 2**30, shows=True)
        self.watch = Watch(identity, Meter(), self.looker, self.clock, self.wall)
        names = dict(enumerate(self.words))
        parameters = Parameters(d=self.d, ell=self.ell, buffer_entries_max=4_000)
        shape = Shape(HashedColumns(self.d, names=names), parameters)
        self.states = {p: PartitionState(shape, 0) for p in range(self.partitions)}
        self.ends = dict.fromkeys(self.states, 0)
        self.modes = dict.fromkeys(self.states, "reading")
        self.dirty: dict[int, float | None] = dict.fromkeys(self.states)
        self.unseen: dict[int, float | None] = dict.fromkeys(self.states)
        self.manifests = {p: manifest(1, partition=p) for p in self.states}
        self.around = Around(True, False, True, None, 2**26)
        self.watch.rebalanced("assign", list(self.states))
        for partition, state in self.states.items():
            self.watch.restored(partition, Facts.of(state))

    def feed(self, partition: int, rows: int) -> None:
        state = self.states[partition]
        block = self._rows(rows)
        before = Facts.of(state)
        batch = DecodedBatch(block, np.ones(rows, np.int64), (), state.columns, ())
        state.apply(batch, state.next_offset + rows, None, 0)
        self.watch.took(partition, messages=rows, rows=rows, nnz=block.nnz, size=8 * block.nnz, tombstones=0)
        self.watch.applied(partition, before, Facts.of(state), 0.05)
        self.ends[partition] = max(self.ends[partition], state.next_offset)
        if self.dirty[partition] is None:
            self.dirty[partition] = self.clock.now

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
        before = self.manifests[partition]
        self.watch.checkpoint_begun(partition, self.dirty[partition])
        self.dirty[partition] = None
        offset = self.states[partition].next_offset
        self.manifests[partition] = manifest(before.number + 1, partition=partition, next_offset=offset)
        self.watch.durable(partition, self.manifests[partition])

    def seen(self) -> list[Seen]:
        return [
            Seen(
                p, self.modes[p], Facts.of(state), state.next_offset, self.manifests[p].next_offset, self.ends[p],
                self.manifests[p], self.dirty[p], self.unseen[p],
            )
            for p, state in self.states.items()
        ]  # fmt: skip

    def shoot(self, partition: int) -> Future[Shot]:
        return AtOnce().submit(Shot.of, self.states[partition])

    def tick(self, seconds: float = 1.0) -> None:
        self.clock.now += seconds
        self.wall.now += seconds
        self.watch.alive()
        self.watch.polled()
        if self.watch.due():
            self.watch.look_around(self.seen(), self.around, self.shoot)
