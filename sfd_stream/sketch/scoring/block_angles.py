"""How far the directions of a stream have turned from those of a reference, by blocks of rows.

The share of energy outside the reference (block_means.py) grows with the square of the angle, and noise is outside,
too. But only a turn makes the part of a row outside follow its coordinates inside. So each block has a regression of
the one on the other, which detects turns of a few degrees. docs/guarantees.md ("Drift") has the mathematics.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from sfd_stream.sketch.csr import Csr
from sfd_stream.sketch.drift import Significance
from sfd_stream.sketch.rows import Float, Index, Int, RowBlock
from sfd_stream.sketch.scoring.block_means import BlockMeans
from sfd_stream.sketch.verify import EPS

FOLDED = 64
"""Columns are added up, with signs, in this many: what a block keeps does not grow with d."""

LEADING = 8
"""At most this many of the reference's directions, the strongest, are followed."""

SQUARES_MIN = 2.0**-1000
"""Rows of less energy are left out: their quotients overflow."""


@dataclass(frozen=True, eq=False)
class FoldedRows:
    """Rows of a stream, prepared for the sums of blocks."""

    rows: Csr
    """Rows of 2 FOLDED columns: the last FOLDED are to be subtracted from the first ones."""
    coordinates: Float
    weighted: Float
    """The leading coordinates, divided by the squared length of the row: so heavy tails can't dominate a block."""
    directions: Float
    mean: Float | None

    @property
    def k(self) -> int:
        """The number of directions that are followed."""
        return int(self.weighted.shape[1])

    def products(self, start: int, stop: int) -> Float:
        """Summed over these rows: what is outside times the leading coordinates, then the coordinates times these."""
        weighted, signed = self.weighted[start:stop], np.zeros((2 * FOLDED, self.k))
        self.rows.run(start, stop).add_transpose_times(weighted, signed)
        outside = signed[:FOLDED] - signed[FOLDED:]
        if self.mean is not None:
            outside -= np.outer(self.mean, weighted.sum(axis=0))
        inside = self.coordinates[start:stop].T @ weighted
        return np.vstack([outside - self.directions.T @ inside, inside[: self.k]])


class FoldedReference:
    """The directions of a reference (k x d, orthonormal rows) and its mean, folded once for many rows."""

    def __init__(self, V: Float, mean: Float | None) -> None:
        d = V.shape[1]
        fold = Csr(np.ones(d), folded(np.arange(d)), np.arange(d + 1, dtype=np.int32), (d, 2 * FOLDED)).scipy()
        signed = np.asarray((V if mean is None else np.vstack([V, mean])) @ fold)
        self._folded = signed[:, :FOLDED] - signed[:, FOLDED:]
        self._k = len(V)

    def rows(self, block: RowBlock, coordinates: Float, residual: Float) -> FoldedRows:
        """The rows of a block, with the scores that they have for this reference."""
        rows = Csr(block.values, folded(block.indices), block.indptr.astype(np.int32), (block.rows, 2 * FOLDED))
        squares = np.einsum("nk,nk->n", coordinates, coordinates) + residual
        inverse = np.divide(1.0, squares, out=np.zeros(block.rows), where=squares > SQUARES_MIN)
        weighted = np.ascontiguousarray(coordinates[:, :LEADING] * inverse[:, None])
        directions, mean = self._folded[: self._k], self._folded[self._k :]
        return FoldedRows(rows, coordinates, weighted, directions, mean[0] if len(mean) else None)


def folded(columns: Int | Index) -> Index:
    """The place of each column among 2 FOLDED: the first bit of a hash is its sign, the others choose the column."""
    numbers = columns.astype(np.uint32)
    numbers *= np.uint32(0x9E3779B1)
    numbers >>= np.uint32(32 - (2 * FOLDED - 1).bit_length())
    return numbers.view(np.int32)


def squared_sine(products: Float) -> float:
    """The squared sine of the angle between the reference and the directions that a block follows, as a mean over the
    directions, weighted by their energy.

    The regression of what is outside on the coordinates explains the energy `along`. Over the energy inside that is a
    mean of squared tangents, over both together a squared sine. Directions in which a block has no energy explain
    nothing.
    """
    outside, inside = products[:FOLDED], products[FOLDED:]
    values, axes = np.linalg.eigh(inside)
    energy = float(np.sum(values))
    present = values > len(values) * EPS * energy
    along = float(np.sum((outside @ axes[:, present]) ** 2 / values[present]))
    return along / (energy + along) if energy > 0 else 0.0


def angle_of(root: float) -> float:
    """The angle in degrees whose squared sine has this cube root."""
    return float(np.degrees(np.arcsin(min(max(root, 0.0), 1.0) ** 1.5)))


NO_ROOTS = BlockMeans(1)


@dataclass(frozen=True, eq=False)
class BlockAngles:
    """`plus` returns a new one."""

    block_rows: int
    products: Float
    """The sums of the block that is not full yet (FOLDED + k x k)."""
    rows: int = 0
    """The number of rows in that block."""
    roots: BlockMeans = NO_ROOTS
    """For each full block, the cube root of its squared sine: a sum of squares is nearly normal by its cube root."""

    @classmethod
    def of(cls, block_rows: int, k: int) -> BlockAngles:
        return cls(block_rows, np.zeros((FOLDED + k, k)))

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, BlockAngles):
            return NotImplemented
        mine, others = ((each.block_rows, each.rows, each.roots, each.products.tolist()) for each in (self, other))
        return mine == others

    def __hash__(self) -> int:
        return hash((self.block_rows, self.rows, self.roots))

    @property
    def k(self) -> int:
        return int(self.products.shape[1])

    def plus(self, given: FoldedRows) -> BlockAngles:
        """With these rows counted, in their order."""
        products, start, end = self.products, 0, given.rows.shape[0]
        roots, rows = [], self.rows
        while start < end:
            stop = min(start + self.block_rows - rows, end)
            products = products + given.products(start, stop)
            start, rows = stop, rows + stop - start
            if rows == self.block_rows:
                roots.append(np.cbrt(squared_sine(products)))
                products, rows = np.zeros_like(products), 0
        return replace(self, products=products, rows=rows, roots=self.roots.plus(np.array(roots)))

    def significance(self, alpha: float) -> Significance | None:
        """Whether the angles of the newest blocks differ from the baseline; None before the first of them."""
        return self.roots.significance(alpha)
