"""Estimates sizes: ell from an acceptable error, and from ell the memory, messages and checkpoints.

Pure arithmetic, with the worker's own constants.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Final

from sfd_stream.config.container_limits import MEMORY_SHARE
from sfd_stream.config.model import CheckpointSettings, SketchSettings, SnapshotSettings
from sfd_stream.config.types import size_text
from sfd_stream.sketch.builder import Parameters
from sfd_stream.sketch.verify import ALPHA
from sfd_stream.state.partition import ENTRY_BYTES, Shape
from sfd_stream.wire.columns import FixedColumns

PROCESS_BYTES: Final = 200 * 10**6
"""Memory of Python and its libraries."""
QUEUES_BYTES: Final = 64 * 2**20
"""Memory of librdkafka's queues of prefetched messages."""

_WIDTHS: Final = {"float64": 8, "float32": 4}
_FRAME_BYTES: Final = 1_024
"""Ids, counters and checksums around the arrays of a snapshot or a checkpoint's blob."""
_POINTER_BYTES: Final = 8

RECORD_BYTES: Final = 36
"""The part of a packed row's record that does not depend on its non-zeros: msgpack's heads, and what Kafka adds."""
ENTRY_RECORD_BYTES: Final = 12
"""Size of a non-zero in a packed row: a column of 4 bytes and a value of 8."""

CHECKPOINT_REQUESTS: Final = 8
"""Store requests of a checkpoint that has only new rows. Writing: 1 blob, 1 manifest, 1 listing. Pruning: 2 listings,
1 manifest read, 1 manifest and 1 blob deleted."""
SKETCH_REQUESTS: Final = 2
"""Further requests if a shrink came before the checkpoint: the blob of B is written, and an older one deleted."""
SNAPSHOT_REQUESTS: Final = 4
"""Further requests of a checkpoint with a snapshot: its blob is written, an older one deleted, the owner checked."""


def ell_by_theorem(epsilon: float, k: int) -> int:
    """The ell at which ||A'A - B'B|| <= epsilon ||A - A_k||F^2 is certain: the bound is 1/(alpha ell - k)."""
    return math.ceil((k + 1 / epsilon) / ALPHA)


def ell_for_projection(epsilon: float, k: int) -> int:
    """The ell at which projecting on the sketch's k directions loses at most (1 + epsilon) times the optimal loss."""
    return math.ceil(k * (1 + 1 / epsilon) / ALPHA)


def ell_by_experience(epsilon: float, k: int) -> int:
    """The theorem's ell with alpha = 1, the bound of dense Frequent Directions.

    `fused` was within this bound on every stream of the benchmark: `python -m benchmarks.sizing`.
    """
    return math.ceil(k + 1 / epsilon)


def snapshot_bytes(
    ell: int, d: int, *, dtype: str = "float64", column_sums: bool = True, column_squares: bool = False
) -> int:
    """Maximum size of a snapshot, without compression and without the names of hashed columns."""
    return ell * d * _WIDTHS[dtype] + d * 8 * (column_sums + (column_sums and column_squares)) + _FRAME_BYTES


def sketch_blob_bytes(ell: int, d: int, *, column_squares: bool = False) -> int:
    """Size of B and the sums by column in a checkpoint."""
    return (ell + 1 + column_squares) * d * 8 + _FRAME_BYTES


def stored_bytes(shape: Shape, keep: int) -> int:
    """Maximum size of one partition's checkpoints: a sketch and a snapshot per kept state. Buffers are shared."""
    p = replace(shape.parameters, d=shape.d_most)
    states = keep + 2  # the newest, and the one that is being written
    buffer = (p.capacity(0).entries or p.ell * p.d) * ENTRY_BYTES
    squares = p.column_squares
    stored = sketch_blob_bytes(p.ell, p.d, column_squares=squares) + snapshot_bytes(p.ell, p.d, column_squares=squares)
    return states * stored + 2 * buffer


@dataclass(frozen=True, slots=True)
class Load:
    """Rows per second over all partitions, z non-zeros each, and the intervals of checkpoints and snapshots."""

    rate: float
    partitions: int
    z: int
    every_s: float
    every_rows: int
    snapshot_every_s: float

    @classmethod
    def by_default(cls, rate: float, partitions: int, z: int) -> Load:
        """A load with the default intervals of the settings."""
        checkpoint, snapshot = CheckpointSettings.model_fields, SnapshotSettings.model_fields
        every = (checkpoint["every_s"].default, checkpoint["every_rows"].default, snapshot["every_s"].default)
        return cls(rate, partitions, z, *every)


def pod_bytes(partition_bytes: int, partitions: int, pods: int) -> int:
    """Memory of one pod while another pod is down and its partitions are assigned to the rest."""
    each = math.ceil(partitions / max(pods - 1, 1))
    return PROCESS_BYTES + QUEUES_BYTES + math.ceil(each * partition_bytes / MEMORY_SHARE)


def scorer_bytes(ell: int, d: int, partitions: int, *, column_squares: bool = False) -> int:
    """Memory of a scorer: the newest snapshot of every partition, the memory of merging them (as measured), and two
    bases, each with all directions and twice ell/4 of them.
    """
    snapshots, merging, bases = (
        partitions * (ell + 1 + column_squares),
        (7 + 1.6 * partitions) * ell,
        2 * (1.6 * ell + 4),
    )
    return PROCESS_BYTES + QUEUES_BYTES + math.ceil(8 * d * (snapshots + merging + bases))


def too_wide(shape: Shape, d: int, budget_bytes: int) -> str | None:
    """The reason why a partition with `d` columns does not fit into this memory; None if it may fit."""
    least = shape.least_bytes(d)
    if least <= budget_bytes:
        return None
    sketch = f"a sketch of {shape.parameters.ell} rows and {d} columns"
    return f"{sketch} needs at least {as_size(least)}, but worker.memory_max_bytes is {size_text(budget_bytes)}"


def may_be_too_large(shape: Shape, budget_bytes: int) -> str | None:
    """The reason why a partition may need more memory than the worker may use; None if it never does."""
    most = shape.memory_bytes()
    if most <= budget_bytes:
        return None
    return f"a partition may need up to {as_size(most)}, but worker.memory_max_bytes is {size_text(budget_bytes)}"


LESS_MEMORY: Final = "lower sketch.ell or the number of columns, or raise worker.memory_max_bytes and the memory limit"
LESS_MEMORY_WHILE_RUNNING: Final = (
    "raise worker.memory_max_bytes, or lower sketch.ell, or lower input.d_max below the columns of such rows, which"
    " makes them bad messages"
)


def checkpoint_bytes_per_hour(shape: Shape, load: Load) -> int:
    """Bytes written for all partitions: every row once, the sketch after each shrink, and the snapshots."""
    p, hour = shape.parameters, _Hour.of(shape, load)
    written = (
        hour.rows * (load.z * ENTRY_BYTES + _POINTER_BYTES)
        + hour.sketches * sketch_blob_bytes(p.ell, p.d, column_squares=p.column_squares)
        + hour.snapshots * snapshot_bytes(p.ell, p.d, column_squares=p.column_squares)
    )
    return math.ceil(load.partitions * written)


def store_requests_per_hour(shape: Shape, load: Load) -> int:
    """Requests of all partitions to the checkpoint store."""
    hour = _Hour.of(shape, load)
    requests = CHECKPOINT_REQUESTS * hour.checkpoints + SKETCH_REQUESTS * hour.sketches
    return math.ceil(load.partitions * (requests + SNAPSHOT_REQUESTS * hour.snapshots))


def broker_bytes_per_s(shape: Shape, load: Load) -> int:
    """Bytes that the workers read as packed rows, one in a message without compression, and publish as snapshots."""
    p = shape.parameters
    published = load.partitions * snapshot_bytes(p.ell, p.d) / load.snapshot_every_s if load.rate else 0.0
    return math.ceil(load.rate * (RECORD_BYTES + ENTRY_RECORD_BYTES * load.z) + published)


@dataclass(frozen=True, slots=True)
class _Hour:
    """The events of an hour in one partition."""

    rows: float
    checkpoints: float
    sketches: float
    """Checkpoints after a shrink: they write B."""
    snapshots: float

    @classmethod
    def of(cls, shape: Shape, load: Load) -> _Hour:
        p, rows = shape.parameters, 3600 * load.rate / load.partitions
        if rows == 0:
            return cls(0.0, 0.0, 0.0, 0.0)
        snapshots = 3600 / load.snapshot_every_s
        checkpoints = max(3600 / load.every_s, rows / load.every_rows, snapshots)
        shrinks = rows * (load.z + 1) / (p.capacity(p.ell).entries or p.ell * p.d)
        return cls(rows, checkpoints, min(shrinks, checkpoints), snapshots)


def as_size(count: float) -> str:
    """A size for people: three digits, in decimal units."""
    for unit, size in (("TB", 1e12), ("GB", 1e9), ("MB", 1e6), ("kB", 1e3)):
        if count >= size:
            return f"{count / size:.3g} {unit}"
    return f"{count:.0f} bytes"


def plain_shape(d: int, ell: int, *, column_squares: bool = False) -> Shape:
    """The shape of a partition with the default settings, column squares apart."""
    given = SketchSettings()
    entries = given.buffer_max_bytes // ENTRY_BYTES
    chosen = Parameters(
        d=d, ell=ell, buffer_factor=given.buffer_factor, buffer_entries_max=entries, column_squares=column_squares
    )
    return Shape(FixedColumns(d), chosen)
