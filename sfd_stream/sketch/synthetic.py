"""The paper's synthetic rows: exactly z entries of +1 or -1 each, nine of ten in the first 1.5 z columns.

The same seed gives the same rows. The first rows do not depend on the number of rows.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import numpy as np
import scipy.sparse as sp

if TYPE_CHECKING:
    from collections.abc import Iterator

    from sfd_stream.sketch.rows import Float, Index, Int

HEAD_PROBABILITY: Final = 0.9
# Rows are drawn in blocks of this size, each from a random stream of its own.
_BLOCK_ROWS: Final = 4096
# Ends the seed of a block, so that a sketch of the same seed draws nothing from the same stream.
_STREAM: Final = int.from_bytes(b"rows")
# Below this share of a set's columns, drawing again where two fall together is cheaper than ordering all.
_SPARSE_SHARE: Final = 0.25


def paper_synthetic(n: int, d: int, z: int, seed: int = 0) -> Any:
    """The n x d matrix of the paper's experiments (its default is n = 10,000, d = 1,000, z = 100) as CSR.

    Each non-zero chooses the head (the first 1.5 z columns) with probability 0.9, else the tail, and then a
    free column there, uniformly; where the chosen set is full it takes the other. Needs 0 <= z <= d.

    >>> from sfd_stream import paper_synthetic
    >>> paper_synthetic(500, 50, 5, seed=0).shape
    (500, 50)
    """
    blocks = list(paper_synthetic_blocks(n, d, z, seed))
    if not blocks:
        return sp.csr_array((0, d), dtype=np.float64)
    return blocks[0] if len(blocks) == 1 else sp.vstack(blocks, format="csr")


def paper_synthetic_blocks(n: int, d: int, z: int, seed: int = 0) -> Iterator[Any]:
    """The same rows in CSR blocks of some thousand, so that memory does not grow with n."""
    if n < 0 or d < 1 or not 0 <= z <= d:
        raise ValueError(f"need n >= 0, d >= 1 and 0 <= z <= d, not n = {n}, d = {d}, z = {z}")
    for number, start in enumerate(range(0, n, _BLOCK_ROWS)):
        indices, values = _block(d, z, np.random.default_rng([seed, number, _STREAM]))
        rows = min(_BLOCK_ROWS, n - start)
        indptr = np.arange(rows + 1, dtype=np.int32) * np.int32(z)  # scipy would widen other indices
        yield sp.csr_array((values[: rows * z], indices[: rows * z], indptr), shape=(rows, d))


def _block(d: int, z: int, rng: np.random.Generator) -> tuple[Index, Float]:
    """The columns, ascending in each row, and values of one whole block."""
    head = min(3 * z // 2, d)
    in_tail = np.minimum(rng.binomial(z, 1 - HEAD_PROBABILITY, size=_BLOCK_ROWS), d - head)
    in_head = z - in_tail
    indices = np.empty(_BLOCK_ROWS * z, dtype=np.int32)
    tail = np.repeat(np.tile([False, True], _BLOCK_ROWS), np.stack([in_head, in_tail], axis=1).ravel())
    indices[~tail] = _subsets(in_head, head, rng)
    indices[tail] = _subsets(in_tail, d - head, rng) + head
    values = 2.0 * rng.integers(0, 2, size=len(indices)).astype(np.float64) - 1.0
    return indices, values


def _subsets(counts: Int, size: int, rng: np.random.Generator) -> Int:
    """For each count a uniformly random subset of range(size) with that many members, ascending."""
    most = int(counts.max(initial=0))
    if most == 0:
        return np.empty(0, dtype=np.int64)
    return _by_drawing(counts, size, rng) if most < _SPARSE_SHARE * size else _by_ordering(counts, size, rng)


def _by_ordering(counts: Int, size: int, rng: np.random.Generator) -> Int:
    """Rank all columns at random and take the first ones; the column in the low bits keeps ranks distinct."""
    bits = int(size).bit_length()
    ranks = rng.integers(0, 2**62, size=(len(counts), size)) >> bits << bits
    ranks |= np.arange(size)
    ordered = np.sort(ranks, axis=1)
    last = ordered[np.arange(len(counts)), np.maximum(counts, 1) - 1]
    chosen = (ranks <= last[:, None]) & (counts > 0)[:, None]
    return np.nonzero(chosen)[1]


def _by_drawing(counts: Int, size: int, rng: np.random.Generator) -> Int:
    """Draws with replacement, and draws duplicates again, until each row has its number of columns."""
    cells = np.empty(0, dtype=np.int64)
    missing = counts
    while missing.any():
        rows = np.repeat(np.arange(len(counts)), missing)
        drawn = rows * size + rng.integers(0, size, size=len(rows))
        cells = np.union1d(cells, drawn)
        missing = counts - np.bincount(cells // size, minlength=len(counts))
    return cells % size
