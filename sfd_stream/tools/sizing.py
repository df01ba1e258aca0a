"""How large it gets: rows of the sketch from the error one can bear, and from them memory, messages and checkpoints.

Pure arithmetic, on the same numbers that the worker itself goes by.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Final

from sfd_stream.config.container_limits import MEMORY_SHARE
from sfd_stream.config.model import CheckpointSettings, SketchSettings, SnapshotSettings
from sfd_stream.config.types import show_size
from sfd_stream.sketch.builder import Parameters
from sfd_stream.sketch.verify import ALPHA
from sfd_stream.state.partition import ENTRY_BYTES, Shape
from sfd_stream.wire.columns import FixedColumns

PROCESS_BYTES: Final = 200 * 10**6
"""Python and its libraries."""
QUEUES_BYTES: Final = 64 * 2**20
"""librdkafka's, of messages fetched ahead."""

_WIDTHS: Final = {"float64": 8, "float32": 4}
_FRAME_BYTES: Final = 1_024
"""Ids, counters and checksums around the arrays of a snapshot or a checkpoint's blob."""
_POINTER_BYTES: Final = 8


def ell_by_theorem(epsilon: float, k: int) -> int:
    """So that ||A'A - B'B|| <= epsilon ||A - A_k||F^2 is certain: the bound is 1/(alpha ell - k)."""
    return math.ceil((k + 1 / epsilon) / ALPHA)


def ell_for_projection(epsilon: float, k: int) -> int:
    """So that the best k directions of the sketch lose at most (1 + epsilon) times what the very best lose."""
    return math.ceil(k * (1 + 1 / epsilon) / ALPHA)


def ell_by_experience(epsilon: float, k: int) -> int:
    """As the theorem with alpha = 1, which is the bound of dense Frequent Directions.

    `fused` kept it on every stream of the benchmark: `python -m benchmarks.sizing`.
    """
    return math.ceil(k + 1 / epsilon)


def snapshot_bytes(ell: int, d: int, *, dtype: str = "float64", column_sums: bool = True) -> int:
    """At most: zstd finds nothing in real numbers. Names of hashed columns come on top."""
    return ell * d * _WIDTHS[dtype] + (d * 8 if column_sums else 0) + _FRAME_BYTES


def sketch_blob_bytes(ell: int, d: int) -> int:
    """B and the column sums, as a checkpoint holds them."""
    return (ell + 1) * d * 8 + _FRAME_BYTES


def stored_bytes(shape: Shape, keep: int) -> int:
    """What one partition's checkpoints may take: a sketch and a snapshot for each state kept; buffers are shared."""
    p = replace(shape.parameters, d=shape.d_most)
    states = keep + 2  # the newest, and the one that is being written
    buffer = (p.capacity(0).entries or p.ell * p.d) * ENTRY_BYTES
    return states * (sketch_blob_bytes(p.ell, p.d) + snapshot_bytes(p.ell, p.d)) + 2 * buffer


@dataclass(frozen=True, slots=True)
class Load:
    """What comes in: rows a second over all partitions, z non-zeros each; how often it is made durable and shown."""

    rate: float
    partitions: int
    z: int
    every_s: float
    every_rows: int
    snapshot_every_s: float

    @classmethod
    def by_default(cls, rate: float, partitions: int, z: int) -> Load:
        """With the settings' own times."""
        checkpoint, snapshot = CheckpointSettings.model_fields, SnapshotSettings.model_fields
        every = (checkpoint["every_s"].default, checkpoint["every_rows"].default, snapshot["every_s"].default)
        return cls(rate, partitions, z, *every)


def pod_bytes(partition_bytes: int, partitions: int, pods: int) -> int:
    """With one pod away, the others have its partitions too."""
    each = math.ceil(partitions / max(pods - 1, 1))
    return PROCESS_BYTES + QUEUES_BYTES + math.ceil(each * partition_bytes / MEMORY_SHARE)


def scorer_bytes(ell: int, d: int, partitions: int) -> int:
    """Of a scorer, in rows of d numbers: the newest snapshot of every partition, what merging them takes (as measured),
    and two bases, each with all directions and twice ell/4 of them.
    """
    snapshots, merging, bases = partitions * (ell + 1), (7 + 1.6 * partitions) * ell, 2 * (1.6 * ell + 4)
    return PROCESS_BYTES + QUEUES_BYTES + math.ceil(8 * d * (snapshots + merging + bases))


def too_wide(shape: Shape, d: int, budget_bytes: int) -> str | None:
    """Why a partition with `d` columns can't be kept in so much memory; None if it may fit."""
    least = shape.least_bytes(d)
    if least <= budget_bytes:
        return None
    sketch = f"a sketch of {shape.parameters.ell} rows and {d} columns"
    return f"{sketch} needs at least {as_size(least)}, but worker.memory_max_bytes is {show_size(budget_bytes)}"


def may_be_too_large(shape: Shape, budget_bytes: int) -> str | None:
    """Why a partition may take more memory than the worker may use; None if it never does."""
    most = shape.memory_bytes()
    if most <= budget_bytes:
        return None
    return f"a partition may need up to {as_size(most)}, but worker.memory_max_bytes is {show_size(budget_bytes)}"


LESS_MEMORY: Final = "lower sketch.ell or the number of columns, or raise worker.memory_max_bytes and the memory limit"
LESS_MEMORY_WHILE_RUNNING: Final = (
    "raise worker.memory_max_bytes, or lower sketch.ell, or lower input.d_max below the columns of such rows, which"
    " makes them bad messages"
)


def checkpoint_bytes_per_hour(shape: Shape, load: Load) -> int:
    """Of all partitions: every row once, the sketch after a shrink, and a snapshot's bytes when one is due."""
    p = shape.parameters
    rows = 3600 * load.rate / load.partitions
    if rows == 0:
        return 0
    checkpoints = max(3600 / load.every_s, rows / load.every_rows)
    shrinks = rows * (load.z + 1) / (p.capacity(p.ell).entries or p.ell * p.d)
    snapshots = 3600 / load.snapshot_every_s
    written = (
        rows * (load.z * ENTRY_BYTES + _POINTER_BYTES)
        + min(shrinks, checkpoints) * sketch_blob_bytes(p.ell, p.d)
        + snapshots * snapshot_bytes(p.ell, p.d)
    )
    return math.ceil(load.partitions * written)


def as_size(count: float) -> str:
    """For people: three digits, in the decimal units that disks and networks are sold by."""
    for unit, size in (("TB", 1e12), ("GB", 1e9), ("MB", 1e6), ("kB", 1e3)):
        if count >= size:
            return f"{count / size:.3g} {unit}"
    return f"{count:.0f} bytes"


def plain_shape(d: int, ell: int) -> Shape:
    """Of a partition with the default settings."""
    given = SketchSettings()
    entries = given.buffer_max_bytes // ENTRY_BYTES
    chosen = Parameters(d=d, ell=ell, buffer_factor=given.buffer_factor, buffer_entries_max=entries)
    return Shape(FixedColumns(d), chosen)
