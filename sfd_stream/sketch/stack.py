"""The implicit stack M = [B; A'] of a sketch over buffered rows. It is multiplied by, never formed.

Rows are taken in tiles, so that a pass needs memory for a tile and not for the stack; a tile that is dense enough
is multiplied as a dense matrix. All is scaled by a power of two (exactly) so that no square over- or underflows.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import scipy.sparse as sp

from sfd_stream.sketch.rows import Float, RowBlock

TILE_ENTRIES = 1 << 17
"""About what fits into the second-level cache beside the block it is multiplied with."""

TILE_ROWS = 1 << 12


DENSE_VECTORS_ABOVE = 0.4
"""The density from which products with single vectors are faster dense."""


def power_of_two_above(value: float) -> float:
    """The power of two 2^e with value in [2^(e-1), 2^e); 1 for zero."""
    return float(np.ldexp(1.0, int(np.frexp(value)[1]))) if value > 0 else 1.0


def peak(X: Float) -> float:
    """The largest magnitude."""
    return max(float(X.max()), -float(X.min())) if X.size else 0.0


def squared_frobenius(X: Float) -> float:
    flat = X.ravel()
    return float(np.einsum("i,i", flat, flat))


def dense_above(columns: int) -> float:
    """The density from which a dense product with that many columns is the faster one. Measured, see benchmarks."""
    return float(np.interp(columns, [1, 16, 56, 106], [2.0, 0.28, 0.22, 0.16]))


@dataclass(frozen=True, slots=True)
class Tile:
    """Some consecutive rows of A', sparse, with their density."""

    sparse: Any
    density: float

    def times(self, X: Float) -> Float:
        """A_t X in single precision: any start is legal for the passes that use it, see `Stack.gram_pass`."""
        single = X.astype(np.float32)
        if self.density > dense_above(X.shape[1]):
            return np.asarray(self.dense(np.float32) @ single, dtype=np.float64)
        return np.asarray(self._single() @ single, dtype=np.float64)

    def _single(self) -> Any:
        """The same non-zeros in single precision; indices are shared."""
        return _trusted_csr(
            (self.sparse.data.astype(np.float32), self.sparse.indices, self.sparse.indptr), self.sparse.shape
        )

    def dense(self, dtype: Any) -> Any:
        return self.sparse.astype(dtype).toarray()

    def transpose_times(self, Y: Float) -> Float:
        if self.density > dense_above(Y.shape[1]):
            return np.asarray(self.dense(np.float64).T @ Y)
        return np.asarray(self.sparse.T @ Y)


class Stack:
    """M = [B; A'] / scale, with scale the power of two above the largest entry."""

    def __init__(self, B: Float, block: RowBlock) -> None:
        self.scale = power_of_two_above(max(peak(B), peak(block.values)))
        self.B = B / self.scale
        self.d = block.d
        self.block = block
        self.A = _csr(block, block.values / self.scale)
        self.AT = self.A.T
        self.squared_frobenius = squared_frobenius(self.B) + squared_frobenius(self.A.data)
        self.tiles = list(self._tiles())

    @property
    def rows(self) -> int:
        return len(self.B) + self.block.rows

    def _tiles(self) -> Iterator[Tile]:
        """A' cut into runs of rows of about equal work."""
        indptr = self.A.indptr
        work = indptr + np.arange(len(indptr)) * (TILE_ENTRIES // TILE_ROWS)
        start, rows = 0, self.block.rows
        while start < rows:
            stop = int(np.searchsorted(work, work[start] + TILE_ENTRIES, side="left"))
            stop = min(max(stop, start + 1), rows)
            low, high = indptr[start], indptr[stop]
            arrays = (self.A.data[low:high], self.A.indices[low:high], indptr[start : stop + 1] - low)
            yield Tile(_trusted_csr(arrays, (stop - start, self.d)), float(high - low) / ((stop - start) * self.d))
            start = stop

    def gram_pass(self, X: Float) -> tuple[Float, Float]:
        """One pass over the rows: G = Y'Y and W = M'Y for a Y that is MX up to single precision.

        The rounding of Y does not matter: whatever Y is, G and W belong to that very Y in double precision.
        """
        Y = self.B @ X
        G, W = Y.T @ Y, self.B.T @ Y
        for tile in self.tiles:
            Y = tile.times(X)
            G += Y.T @ Y
            W += tile.transpose_times(Y)
        return G, W

    def gram_operator(self) -> Callable[[Float], Float]:
        """The map x -> M'(Mx) for vectors, many of them."""
        A, AT, B = self.A, self.AT, self.B
        if self.A.nnz > DENSE_VECTORS_ABOVE * self.block.rows * self.d:
            A = self.A.toarray()
            AT = A.T
        return lambda x: np.asarray(B.T @ (B @ x) + AT @ (A @ x))

    def dense(self) -> Float:
        """M itself, for small ones."""
        return np.vstack([self.B, self.A.toarray()])


def _csr(block: RowBlock, values: Float) -> Any:
    return _trusted_csr((values, block.indices, block.indptr.astype(np.int32)), (block.rows, block.d))


def _trusted_csr(arrays: tuple[Any, Any, Any], shape: tuple[int, int]) -> Any:
    matrix = sp.csr_array(arrays, shape=shape, copy=False)
    matrix.has_canonical_format = True
    return matrix
