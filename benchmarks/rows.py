"""What decoding costs: `python -m benchmarks.rows` prints microseconds a row for each form.

Batches of 1,000 rows of 100 non-zeros, d = 1,000, as a poll would bring them. The last column compares with
packed rows.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

import msgpack
import numpy as np

from sfd_stream.sketch.rows import RowBlock
from sfd_stream.wire.columns import Columns, FixedColumns, GrowingColumns, HashedColumns
from sfd_stream.wire.rows.decode import decode
from sfd_stream.wire.rows.encode import encode_row, encode_rows

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

ROWS, NNZ, D = 1000, 100, 1000
REPEATS = 15


def made_rows(seed: int, *, spread: bool = False) -> RowBlock:
    """Sorted rows of NNZ non-zeros, or of 1 to 2 NNZ - 1."""
    rng = np.random.default_rng(seed)
    lengths = rng.integers(1, 2 * NNZ, ROWS) if spread else np.full(ROWS, NNZ)
    indices = np.concatenate([np.sort(rng.choice(D, length, replace=False)) for length in lengths])
    return RowBlock.from_arrays(np.append(0, np.cumsum(lengths)), indices, rng.standard_normal(lengths.sum()), D)


def shuffled(rows: RowBlock) -> list[bytes]:
    """The same rows, packed, columns in no order."""
    rng = np.random.default_rng(1)
    messages = []
    for low, high in zip(rows.indptr[:-1], rows.indptr[1:], strict=True):
        order = rng.permutation(high - low) + low
        messages.append(encode_row(rows.indices[order], rows.values[order]))
    return messages


def counts(rows: RowBlock) -> RowBlock:
    """The same columns with small integers, as a bag of words has."""
    return RowBlock(rows.indptr, rows.indices, np.ceil(np.abs(rows.values)), rows.d)


def lists_of(rows: RowBlock, name: Callable[[int], object]) -> list[bytes]:
    """Friendly rows with `name(column)` for features."""
    cuts = zip(rows.indptr[:-1], rows.indptr[1:], strict=True)
    return [
        msgpack.packb({"i": [name(c) for c in rows.indices[a:b].tolist()], "v": rows.values[a:b].astype(int).tolist()})
        for a, b in cuts
    ]


def integer_maps(rows: RowBlock) -> list[bytes]:
    cuts = zip(rows.indptr[:-1], rows.indptr[1:], strict=True)
    return [
        msgpack.packb(dict(zip(rows.indices[a:b].tolist(), rows.values[a:b].tolist(), strict=True))) for a, b in cuts
    ]


def microseconds_a_row(messages: Sequence[bytes], columns: Columns) -> float:
    """The fastest of a few runs: what the code costs, not what else the machine did."""
    columns = decode(messages, columns).columns  # grown and named: what a stream settles at
    best = float("inf")
    for _ in range(REPEATS):
        start = time.perf_counter()
        batch = decode(messages, columns)
        best = min(best, time.perf_counter() - start)
    if batch.block.rows + len(batch.bad) != ROWS:
        raise RuntimeError("rows went missing")
    return best / ROWS * 1e6


def cases() -> dict[str, tuple[list[bytes], Columns]]:
    rows, mixed, fixed = made_rows(0), made_rows(0, spread=True), FixedColumns(D)
    single = RowBlock(rows.indptr, rows.indices, rows.values.astype(np.float32).astype(np.float64), D)
    f32 = [
        encode_row(single.indices[a : a + NNZ], single.values[a : a + NNZ].astype(np.float32)) for a in rows.indptr[:-1]
    ]
    packed = list(encode_rows(rows))
    return {
        "packed rows, f64": (packed, fixed),
        "packed rows, f32": (f32, fixed),
        "packed rows, f64, growing d": (packed, GrowingColumns(1, D)),
        "packed rows, f64, 1-199 non-zeros": (list(encode_rows(mixed)), fixed),
        "packed rows, f64, not sorted": (shuffled(rows), fixed),
        "packed rows, f64, one bad in 100": (
            [b"" if n % 100 == 0 else m for n, m in enumerate(packed)],
            fixed,
        ),
        "packed rows, f64, hashed": (packed, HashedColumns(2**20)),
        "packed blocks of 100 rows": (list(encode_rows(rows, rows_per_message=100)), fixed),
        "list rows": (list(encode_rows(rows, packed=False)), fixed),
        "list rows, 1-199 non-zeros": (list(encode_rows(mixed, packed=False)), fixed),
        "list rows, counts": (lists_of(counts(rows), int), fixed),
        "list blocks of 100 rows": (list(encode_rows(rows, packed=False, rows_per_message=100)), fixed),
        "integer-keyed maps": (integer_maps(rows), fixed),
        "lists of words, hashed": (lists_of(counts(rows), "word{}".format), HashedColumns(2**20)),
    }


def main() -> None:
    print(f"{'decoding batches of 1,000 rows of 100':44}{'us/row':>8}{'rows/s':>12}{'MB/s':>8}{'ratio':>8}")
    base = None
    np.ones(4_000_000).sum()  # as in a worker, which freed large arrays before: malloc no longer returns small ones
    for name, (messages, columns) in cases().items():
        cost = microseconds_a_row(messages, columns)
        base = base or cost
        size = sum(map(len, messages)) / ROWS
        print(f"{name:44}{cost:8.2f}{1e6 / cost:12,.0f}{size / cost:8.0f}{cost / base:8.1f}")


if __name__ == "__main__":
    main()
