"""What `size` estimates is what the program really takes: memory, messages, checkpoints; and its two rules for ell."""

from __future__ import annotations

import math
import tracemalloc

import numpy as np
import pytest

from sfd_stream.reader.merged import merge
from sfd_stream.score.bases import basis_of
from sfd_stream.sketch.builder import Parameters, SketchBuilder
from sfd_stream.sketch.rows import RowBlock
from sfd_stream.sketch.synthetic import paper_synthetic
from sfd_stream.state.manifest import Binding
from sfd_stream.state.partition import Durable, PartitionState, Shape, encode
from sfd_stream.storage.memory import MemoryStore
from sfd_stream.tools import sizing
from sfd_stream.wire.columns import FixedColumns
from sfd_stream.wire.rows.decode import DecodedBatch, decode
from sfd_stream.wire.rows.encode import encode_rows
from sfd_stream.wire.snapshot_ids import SnapshotId
from sfd_stream.wire.snapshots import SnapshotEncoder
from tests.system.fakes import D
from tests.unit.reader.made import rows_of, sketch_of, snapshot
from tests.unit.storage.faults import FaultyStore
from tests.unit.worker.chains import a_log, answering, chain_on, driven

BINDING = Binding("cluster", "topic-id", "group", "rows", 0)
PLAIN = Shape(FixedColumns(D), Parameters(D, ell=4, buffer_entries_max=400))


@pytest.mark.parametrize("epsilon", [0.01, 0.05, 0.5])
@pytest.mark.parametrize("k", [0, 10, 100])
def test_ell_by_the_theorem_is_the_least_for_which_its_bound_is_epsilon(epsilon: float, k: int) -> None:
    ell = sizing.ell_by_theorem(epsilon, k)
    assert 1 / (sizing.ALPHA * ell - k) <= epsilon * (1 + 1e-9)
    assert sizing.ALPHA * (ell - 1) - k < 1 / epsilon
    for_projection = sizing.ell_for_projection(epsilon, k)
    assert for_projection <= (1 + epsilon) * (for_projection - k / sizing.ALPHA) * (1 + 1e-9)


def test_experience_asks_for_less_than_the_theorem_and_for_more_than_the_directions_wanted() -> None:
    for epsilon in (0.01, 0.1, 1.0):
        assert 10 < sizing.ell_by_experience(epsilon, 10) < sizing.ell_by_theorem(epsilon, 10)


@pytest.mark.parametrize("epsilon", [0.05, 0.1])
def test_with_the_ell_of_experience_the_true_error_is_within_epsilon(epsilon: float) -> None:
    k = 5
    A = paper_synthetic(2_000, 100, 20)
    parameters = sizing.plain_shape(100, sizing.ell_by_experience(epsilon, k)).parameters
    builder = SketchBuilder(parameters)
    builder.absorb(RowBlock.from_csr(A))
    squares = np.linalg.svd(A.toarray(), compute_uv=False) ** 2
    B = builder.sketch().matrix
    error = np.linalg.norm((A.T @ A).toarray() - B.T @ B, 2)
    assert error <= epsilon * squares[k:].sum()


@pytest.mark.parametrize(("dtype", "sums"), [("float64", True), ("float32", True), ("float64", False)])
def test_a_snapshot_is_as_large_as_estimated(dtype: str, sums: bool) -> None:
    ell, d = 20, 1_000
    builder = SketchBuilder(sizing.plain_shape(d, ell).parameters)
    builder.absorb(RowBlock.from_csr(paper_synthetic(5_000, d, 50)))
    encoded = SnapshotEncoder("t", "", 0, dtype=dtype, column_sums=sums).encode(
        builder.sketch(), FixedColumns(d), SnapshotId("c", "g", "t", 0, 1, 1),
        partitions=1, next_offset=5_000, made_at_s=1.0,
    )  # fmt: skip
    estimated = sizing.snapshot_bytes(ell, d, dtype=dtype, column_sums=sums)
    assert 0.85 * estimated <= len(encoded) <= estimated


def test_checkpoints_of_an_hour_are_as_large_as_estimated() -> None:
    """An hour in small: as many checkpoints and shrinks as rows and times ask for, encoded as a worker does."""
    d, ell, z, rate, every_s = 500, 20, 20, 40.0, 60.0
    shape = sizing.plain_shape(d, ell)
    load = sizing.Load(rate, 1, z, every_s, 10**9, snapshot_every_s=math.inf)
    state, durable, written = PartitionState(shape, 0), None, 0
    per_checkpoint = int(rate * every_s)
    rows = paper_synthetic(per_checkpoint, d, z)
    messages = list(encode_rows(rows))
    for number in range(60):
        state.apply(_batch(messages, d), (number + 1) * per_checkpoint, None, 0)
        frozen = state.freeze()
        new = encode(frozen, durable)
        written += sum(len(part) for part in (new.sketch, *new.buffer) if isinstance(part, bytes))
        durable = Durable(
            B=frozen.arrays["B"],
            shrinks=frozen.numbers["shrinks"],
            spent=0.0,
            blocks=len(frozen.blocks),
            names=0,
            sketch=_Ref.of(new.sketch),
            buffer=_refs(new.buffer),
        )
    assert state.builder.shrinks > 3
    assert 0.7 <= written / sizing.checkpoint_bytes_per_hour(shape, load) <= 1.3


class _Ref:
    """Stands for a blob that is in the store already."""

    @classmethod
    def of(cls, part: object) -> object:
        return None if part is None else cls()


def _refs(parts: tuple[object, ...]) -> tuple[object, ...]:
    return tuple(map(_Ref.of, parts))


def _batch(messages: list[bytes], d: int) -> DecodedBatch:
    return decode(messages, FixedColumns(d))


def test_a_checkpoint_makes_as_many_store_requests_as_estimated() -> None:
    """Counted on a store: the checkpoint, the owner check before a snapshot is published, and the pruning."""
    store = FaultyStore(MemoryStore("requests"))
    chain = chain_on(store)
    state = driven(chain.claim(BINDING, PLAIN, "earliest", answering(a_log)))[0]
    counted, expected, checkpoints = 0, 0.0, 40
    for number in range(checkpoints):
        before, shrinks, snapshot = len(store.calls), state.builder.shrinks, b"snapshot" if number % 4 == 0 else None
        state.apply(_batch(list(encode_rows(paper_synthetic(40, D, 3))), D), state.next_offset + 40, None, 0)
        driven(chain.write(state.freeze(), BINDING, snapshot))
        if snapshot:
            driven(chain.check_owner())
        driven(chain.prune())
        if number >= 3:  # before that there is nothing to delete
            counted += len(store.calls) - before
            expected += sizing.CHECKPOINT_REQUESTS
            expected += sizing.SKETCH_REQUESTS * (state.builder.shrinks > shrinks)
            expected += sizing.SNAPSHOT_REQUESTS * (snapshot is not None)
    assert state.builder.shrinks > 3
    assert 0.9 <= counted / expected <= 1.1


def test_an_hour_has_the_requests_of_its_checkpoints_and_the_bytes_of_its_rows() -> None:
    shape, load = sizing.plain_shape(1_000, 20), sizing.Load(40.0, 2, 20, 60.0, 10**9, snapshot_every_s=math.inf)
    assert 2 * 60 * sizing.CHECKPOINT_REQUESTS <= sizing.store_requests_per_hour(shape, load) <= 2 * 60 * 10
    messages = list(encode_rows(paper_synthetic(100, 1_000, 20)))
    record = sum(map(len, messages)) / 100
    assert 0 < sizing.broker_bytes_per_s(shape, load) / 40 - record < 36
    idle = sizing.Load(0.0, 2, 20, 60.0, 10**9, snapshot_every_s=60.0)
    assert sizing.store_requests_per_hour(shape, idle) == sizing.broker_bytes_per_s(shape, idle) == 0


def test_a_pod_has_room_for_the_partitions_of_one_that_is_away() -> None:
    one = 10**9
    alone, pair, many = (sizing.pod_bytes(one, 12, pods) for pods in (1, 2, 4))
    assert alone == pair > many > 4 * one / 0.6


@pytest.mark.parametrize(
    ("count", "words"), [(999, "999 bytes"), (2_480_000, "2.48 MB"), (5.89e9, "5.89 GB"), (1e15, "1e+03 TB")]
)
def test_sizes_are_for_people(count: float, words: str) -> None:
    assert sizing.as_size(count) == words


def test_a_scorer_has_room_for_the_bases_that_it_makes() -> None:
    """The peak of what two bases of four partitions take, over what numpy itself allocates."""
    ell, d, partitions = 20, 1_000, 4
    snapshots = [snapshot(sketch_of(rows_of(p, n=60, d=d), ell), p, partitions=partitions) for p in range(partitions)]
    held = sum(each.sketch.matrix.nbytes + 8 * d for each in snapshots)
    tracemalloc.start()
    try:
        first = basis_of(merge(snapshots, 1.0), "rows", None, centred=True)
        second = basis_of(merge(snapshots, 1.0), "rows", None, centred=True, before=first)
        for basis in (first, second):
            basis.scorer.score(np.zeros((1, d)))
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    estimated = sizing.scorer_bytes(ell, d, partitions) - sizing.PROCESS_BYTES - sizing.QUEUES_BYTES
    assert 0.7 * estimated < held + peak < 1.1 * estimated
