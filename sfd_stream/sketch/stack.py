"""The implicit stack M = [B; A'] of a sketch over buffered rows. It is multiplied by, never formed.

Rows are taken in tiles, so that a pass needs memory for a tile and not for the stack; columns that are dense among
these rows are multiplied as a dense matrix. All is scaled by a power of two, exactly, so that no square over- or
underflows.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
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


SPLIT_COLUMNS_MIN, SPLIT_WIDTH_MIN, SPLIT_SHARE_MIN = 64, 32, 0.4
"""Taking dense columns apart pays from so many of them, for products so wide, if they hold this share of non-zeros."""


class HotColumns:
    """The columns that are dense among the rows at hand: the head of skewed data, or all of them, or none."""

    def __init__(self, A: Any, width: int) -> None:
        rows, self.d = A.shape
        if A.nnz > dense_above(width) * rows * self.d:
            self.columns = np.arange(self.d)
            return
        counts = np.bincount(A.indices, minlength=self.d) if width >= SPLIT_WIDTH_MIN else np.zeros(self.d, np.int64)
        hot = np.flatnonzero(counts > dense_above(width) * rows)
        pays = len(hot) >= SPLIT_COLUMNS_MIN and counts[hot].sum() > SPLIT_SHARE_MIN * A.nnz
        self.columns = hot if pays else hot[:0]
        self._place = np.full(self.d, len(self.columns), dtype=np.int32)
        self._place[self.columns] = np.arange(len(self.columns))

    def split(self, tile: Any) -> tuple[Any, Any]:
        """The tile's dense columns as a dense matrix, and the rest as a sparse one; None for nothing."""
        if not len(self.columns):
            return None, tile
        if len(self.columns) == self.d:
            return tile.toarray(), None
        place = np.take(self._place, tile.indices)
        cold = place == len(self.columns)
        # All cold entries land in one more column, which is cut off.
        dense = _trusted_csr((tile.data, place, tile.indptr), (tile.shape[0], len(self.columns) + 1)).toarray()
        before = np.zeros(len(cold) + 1, dtype=np.int32)
        np.cumsum(cold, dtype=np.int32, out=before[1:])
        rest = _trusted_csr((tile.data[cold], tile.indices[cold], before[tile.indptr]), tile.shape)
        return dense[:, :-1], rest

    def pass_tile(self, tile: Any, X: Any, G: Float, W: Float) -> None:
        """Adds the tile's part to G = Y'Y and W = A'Y, for Y = AX in X's own precision."""
        dense, sparse = self.split(tile)
        Y: Any = 0.0
        if dense is not None:
            Y = dense.astype(X.dtype) @ X[self.columns]
        if sparse is not None:
            Y = Y + _trusted_csr((sparse.data.astype(X.dtype), sparse.indices, sparse.indptr), sparse.shape) @ X
        Y = Y.astype(np.float64)
        G += Y.T @ Y
        if dense is not None:
            W[self.columns] += dense.T @ Y
        if sparse is not None and 4 * sparse.nnz < self.d:
            touched, places = np.unique(sparse.indices, return_inverse=True)
            narrow = _trusted_csr(
                (sparse.data, places.astype(np.int32), sparse.indptr), (sparse.shape[0], len(touched))
            )
            W[touched] += narrow.T @ Y  # most columns have nothing here
        elif sparse is not None:
            W += sparse.T @ Y


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

    @property
    def rows(self) -> int:
        return len(self.B) + self.block.rows

    def tiles(self) -> Iterator[Any]:
        """A' cut into runs of rows of about equal work."""
        indptr = self.A.indptr
        work = indptr + np.arange(len(indptr)) * (TILE_ENTRIES // TILE_ROWS)
        start, rows = 0, self.block.rows
        while start < rows:
            stop = int(np.searchsorted(work, work[start] + TILE_ENTRIES, side="left"))
            stop = min(max(stop, start + 1), rows)
            low, high = indptr[start], indptr[stop]
            arrays = (self.A.data[low:high], self.A.indices[low:high], indptr[start : stop + 1] - low)
            yield _trusted_csr(arrays, (stop - start, self.d))
            start = stop

    def gram_pass(self, X: Float) -> tuple[Float, Float]:
        """One pass over the rows: G = Y'Y and W = M'Y for a Y that is MX up to single precision.

        The rounding of Y does not matter: whatever Y is, G and W belong to that very Y in double precision.
        """
        Y = self.B @ X
        G, W = Y.T @ Y, self.B.T @ Y
        hot, single = HotColumns(self.A, X.shape[1]), X.astype(np.float32)
        for tile in self.tiles():
            hot.pass_tile(tile, single, G, W)
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
