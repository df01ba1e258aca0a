"""Measures this machine for a given shape: sketching rows, decoding messages, and the latency of a store.

The data are generated from a seed, the caller passes the clock, and the store is left empty.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from itertools import cycle
from typing import Final

from sfd_stream.sketch.builder import Parameters, SketchBuilder
from sfd_stream.sketch.rows import RowBlock
from sfd_stream.sketch.synthetic import paper_synthetic_blocks
from sfd_stream.storage.contract import Store
from sfd_stream.tools.produce import Format, matrix_messages
from sfd_stream.wire.columns import FixedColumns
from sfd_stream.wire.rows.decode import decode

FORMS: Final[tuple[Format, ...]] = ("list", "packed", "blocks")
ROWS_PER_MESSAGE: Final = 100
"""Rows per message of the format blocks."""

CALIBRATED_D: Final = 2_000
CALIBRATED_ELL: Final = 100
"""The largest shape that a quick calibration measures. The time per non-zero is linear in ell and independent of d."""

_BATCH: Final = 1_000
_SAMPLE: Final = 8_192
_ENTRIES_MAX: Final = 4_000_000
"""Maximum number of entries in the sample. More rows repeat the sample."""

Clock = Callable[[], float]


@dataclass(frozen=True, slots=True)
class Rate:
    """A number of rows, and the seconds of processor time that they took."""

    rows: int
    seconds: float
    nnz: int

    @property
    def rows_per_s(self) -> float:
        return self.rows / self.seconds

    @property
    def nnz_per_s(self) -> float:
        return self.nnz / self.seconds


def sketch_rate(parameters: Parameters, z: int, budget_s: float, clock: Clock) -> Rate:
    """Sketches rows of z non-zeros for at least `budget_s`. The time includes every shrink and one final sketch."""
    blocks = list(_blocks(parameters.d, z))
    builder = SketchBuilder(parameters)
    began, rows = clock(), 0
    for block in cycle(blocks):
        builder.absorb(block)
        rows += block.rows
        if clock() - began >= budget_s:
            break
    builder.sketch()
    return Rate(rows, clock() - began, rows * z)


def sketch_s(parameters: Parameters, z: int, clock: Clock) -> float:
    """The time to compute a sketch from a state with a block of rows in its buffer, as for a snapshot."""
    builder = SketchBuilder(parameters)
    builder.absorb(next(_blocks(parameters.d, z)))
    began = clock()
    builder.sketch()
    return clock() - began


def decode_rate(form: Format, d: int, z: int, budget_s: float, clock: Clock) -> Rate:
    """Decodes batches of the size that a poll returns."""
    rows = max(1, min(_BATCH, _ENTRIES_MAX // max(z, 1)))
    matrices = paper_synthetic_blocks(rows, d, z)
    messages = [each.value for each in matrix_messages(matrices, form=form, rows_per_message=ROWS_PER_MESSAGE)]
    columns, done, began = FixedColumns(d), 0, clock()
    while done == 0 or clock() - began < budget_s:
        done += decode(messages, columns).block.rows
    return Rate(done, clock() - began, done * z)


def calibrated(parameters: Parameters, z: int, budget_s: float, clock: Clock) -> tuple[float, float]:
    """(seconds per row, seconds per sketch), measured on a smaller shape if this one is large.

    The smaller shape has the same ratio of buffer to sketch: besides ell, the cost of a non-zero depends on it.
    """
    d, ell = min(parameters.d, CALIBRATED_D), min(parameters.ell, CALIBRATED_ELL)
    entries = parameters.capacity(parameters.ell).entries or ell * d
    scaled = max(int(entries * (ell * d) / (parameters.ell * parameters.d)), 1)
    small = replace(parameters, d=d, ell=ell, buffer_factor=scaled / (ell * d), buffer_entries_max=scaled)
    small_z = min(z, d)
    rate = sketch_rate(small, small_z, budget_s, clock)
    growth = (parameters.ell / ell) * ((z + 1) / (small_z + 1))
    sketch_growth = (parameters.ell / ell) ** 2 * (parameters.d / d)
    return growth / rate.rows_per_s, sketch_growth * sketch_s(small, small_z, clock)


def store_latencies(store: Store, sizes: dict[str, int], times: int, clock: Clock) -> dict[str, dict[str, list[float]]]:
    """By name of a size, then by operation: the seconds of each call, in ascending order."""
    return {name: _latencies(store, size, times, clock) for name, size in sizes.items()}


def _latencies(store: Store, size: int, times: int, clock: Clock) -> dict[str, list[float]]:
    nonce, data = uuid.uuid4().hex, bytes(range(256)) * (size // 256 + 1)
    keys = [f"bench-{nonce}/{at}" for at in range(times)]
    try:
        return {
            "create": sorted(_timed(lambda key: store.create_if_absent(key, data[:size]), keys, clock)),
            "get": sorted(_timed(store.get, keys, clock)),
            "list": sorted(_timed(lambda _: store.list(f"bench-{nonce}"), keys, clock)),
            "delete": sorted(_timed(store.delete, keys, clock)),
        }
    finally:
        for key in keys:
            store.delete(key)


def _timed(call: Callable[[str], object], keys: list[str], clock: Clock) -> Iterator[float]:
    for key in keys:
        began = clock()
        call(key)
        yield clock() - began


def _blocks(d: int, z: int) -> Iterator[RowBlock]:
    rows = max(1, min(_SAMPLE, _ENTRIES_MAX // max(z, 1)))
    for matrix in paper_synthetic_blocks(rows, d, z):
        for start in range(0, matrix.shape[0], _BATCH):
            yield RowBlock.from_csr(matrix[start : start + _BATCH])
