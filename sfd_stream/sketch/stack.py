"""The implicit stack M = [B; A'] of a sketch over buffered rows. It is multiplied by, never formed.

Columns that are dense among these rows (the head of skewed data, or all of them) are multiplied as a dense matrix, the
others as a sparse one. Block products take rows in tiles, so that they need memory for a tile and not for the stack.
Where magnitudes are extreme all is scaled by a power of two, exactly, so that no square over- or underflows.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from math import sqrt
from typing import Any

import numpy as np

from sfd_stream.sketch.csr import Csr
from sfd_stream.sketch.rows import Float, Index, Int, RowBlock, squared_frobenius

TILE_ENTRIES, TILE_ROWS = 1 << 18, 1 << 12
"""The size of a tile of a pass. Smaller tiles were no faster alone. With another thread, each product is one more wait
for the interpreter, so few and large tiles are better."""

HOT_TILE = 1 << 20
"""Entries of the dense columns that a step of the certificate multiplies by twice: what a shared cache may hold. A
core's own cache is too small to make up for the calls."""

SAFE = 2.0**60
"""Magnitudes between 1/SAFE and SAFE need no scaling: sums of many squares of them are far from the range's ends."""

HOT, ALL_HOT = 0.3, 0.19
"""Densities from which a column, or all columns that are left, are multiplied faster as dense ones. Measured:
benchmarks, `routes`."""

HOT_COLUMNS_MIN, HOT_SHARE_MIN = 16, 0.2
"""Separating dense columns pays from this number of them, if they hold this share of non-zeros."""

SAMPLE_EVERY, SAMPLE_RUN = 8191, 1024
"""To find dense columns, SAMPLE_RUN of each SAMPLE_EVERY non-zeros are counted: whole rows, and not always the same
positions if all rows are equally long."""


def power_of_two_above(value: float) -> float:
    """The power of two 2^e with value in [2^(e-1), 2^e); 1 for zero."""
    return float(np.ldexp(1.0, int(np.frexp(value)[1]))) if value > 0 else 1.0


def peak(X: Float) -> float:
    """The largest magnitude."""
    return max(float(X.max()), -float(X.min())) if X.size else 0.0


@dataclass(frozen=True, slots=True)
class Split:
    """A = cold + H at the hot columns."""

    hot: Int
    H: Float
    """rows x hot columns, dense."""
    cold: Csr
    """All other non-zeros, sparse."""

    @classmethod
    def of(cls, A: Csr) -> Split:
        rows, d = A.shape
        seen = sampled(A.indices)
        counts = np.bincount(seen, minlength=d) * (A.nnz / max(len(seen), 1))
        hot = np.flatnonzero(counts > HOT * rows)
        if len(hot) < HOT_COLUMNS_MIN or counts[hot].sum() < HOT_SHARE_MIN * A.nnz:
            hot = hot[:0]
        if A.nnz - counts[hot].sum() >= ALL_HOT * rows * (d - len(hot)):
            nothing = Csr(A.values[:0], A.indices[:0], np.zeros(rows + 1, np.int32), A.shape)
            return cls(np.arange(d), A.dense(), nothing)
        return cls._apart(A, hot) if len(hot) else cls(hot, np.empty((rows, 0)), A)

    @classmethod
    def _apart(cls, A: Csr, hot: Int) -> Split:
        """The columns taken apart, run by run: what is needed on the way stays in the cache."""
        rows, d = A.shape
        place = np.full(d, len(hot), np.int32)
        place[hot] = np.arange(len(hot))
        H = np.empty((rows, len(hot) + 1))  # all cold entries land in one more column, which is cut off
        values, indices, counts = [], [], []
        for start, stop in runs_of(A.indptr, TILE_ENTRIES):
            run = A.run(start, stop)
            places = np.take(place, run.indices)
            Csr(run.values, places, run.indptr, (stop - start, len(hot) + 1)).fill(H[start:stop])
            rest = np.flatnonzero(places == len(hot))
            values.append(run.values[rest])
            indices.append(run.indices[rest])
            counts.append(np.diff(np.searchsorted(rest, run.indptr)))
        indptr = np.cumsum(np.concatenate([[0], *counts]), dtype=np.int32)
        return cls(hot, H[:, :-1], Csr(np.concatenate(values), np.concatenate(indices), indptr, A.shape))

    def tiles(self) -> Iterator[Split]:
        """Runs of rows of about equal work."""
        rows = self.cold.shape[0]
        work = self.cold.indptr + np.arange(rows + 1) * max(TILE_ENTRIES // TILE_ROWS, len(self.hot) * 2 // 3)
        for start, stop in runs_of(work, TILE_ENTRIES):
            yield Split(self.hot, self.H[start:stop], self.cold.run(start, stop))

    def times_single(self, X: Any, unit: float, room: Float) -> Float:
        """A X / unit, multiplied in single precision, in the first rows of `room`.

        `unit` is a power of two near A's magnitude: what underflows there is nothing beside it, and whether it does
        depends on no scale.
        """
        cold, Y = self.cold, np.zeros((self.cold.shape[0], X.shape[1]), np.float32)
        if len(self.hot):
            np.matmul(_single(self.H, unit), X[self.hot], out=Y)
        if cold.nnz:
            Csr(_single(cold.values, unit), cold.indices, cold.indptr, cold.shape).add_times(X, Y)
        room = room[: len(Y)]
        room[:] = Y
        return room

    def add_transpose_times(self, Y: Float, W: Float, W_hot: Float) -> None:
        """Adds A'Y to W, the hot columns' part to `W_hot`."""
        if len(self.hot):
            W_hot += self.H.T @ Y
        if self.cold.nnz:
            self.cold.add_transpose_times(Y, W)


def _single(X: Float, unit: float) -> Any:
    """X / unit in single precision."""
    return np.multiply(X, 1 / unit, out=np.empty(X.shape, np.float32), casting="same_kind")


class Stack:
    """M = [B; A'] / scale, with scale a power of two: 1, except for extreme magnitudes."""

    def __init__(self, B: Float, block: RowBlock) -> None:
        self.squared_frobenius = squared_frobenius(B) + float(block.group_squares.sum())
        self.scale = 1.0
        if not SAFE**-2 * (B.size + block.nnz) < self.squared_frobenius < SAFE**2:
            self.scale = power_of_two_above(max(peak(B), peak(block.values)))
        plain = self.scale == 1.0
        self.B = B if plain else B / self.scale
        self.d = block.d
        self.block = block
        scaled = block if plain else replace(block, values=block.values / self.scale)
        self.energies = scaled.group_squares
        if not plain:
            self.squared_frobenius = squared_frobenius(self.B) + float(self.energies.sum())
        self.A = Csr.of(scaled)
        self.split = Split.of(self.A)
        step = max(HOT_TILE // max(len(self.split.hot), 1), 1)
        self._hot_tiles = [(low, low + step) for low in range(0, block.rows, step)]

    @property
    def rows(self) -> int:
        return len(self.B) + self.block.rows

    def gram_pass(self, X: Float) -> tuple[Float, Float, int]:
        """One pass over the rows: G = Y'Y and W = M'Y for a Y that is a multiple of MX up to single precision. And how
        many additions an entry of G went through at most, which bounds its rounding.

        The rounding of Y does not matter: whatever Y is, G and W belong to that very Y in double precision.
        (X'W costs less where rows are short, but is not Y'Y: a start column that M takes to near zero would ruin it.)
        """
        unit = power_of_two_above(sqrt(self.squared_frobenius))
        Y, single = self.B @ X / unit, X.astype(np.float32)
        del X  # as large as the sketch, and not needed beside W
        G, W = Y.T @ Y, self.B.T @ Y
        W_hot = np.zeros((len(self.split.hot), single.shape[1]))
        tiles = list(self.split.tiles())
        room = np.empty((max((len(tile.H) for tile in tiles), default=0), single.shape[1]))
        for tile in tiles:
            Y = tile.times_single(single, unit, room)
            G += Y.T @ Y
            tile.add_transpose_times(Y, W, W_hot)
        W[self.split.hot] += W_hot
        return G, W, max(len(self.B), len(room)) + len(tiles)

    def gram_times(self, X: Float) -> Float:
        """M'(MX) for a few columns, all in double precision."""
        split, W = self.split, self.B.T @ (self.B @ X) if len(self.B) else np.zeros_like(X)
        Y = np.zeros((self.block.rows, X.shape[1]))
        if split.cold.nnz:
            split.cold.add_times(X, Y)
        if len(split.hot):
            hot = np.squeeze(X[split.hot], 1) if X.shape[1] == 1 else X[split.hot]  # a vector has a quicker product
            Y_hot, W_hot = Y.reshape(len(Y), *hot.shape[1:]), np.zeros_like(hot)
            for low, high in self._hot_tiles:  # in the cache for the second product
                Y_hot[low:high] += split.H[low:high] @ hot
                W_hot += split.H[low:high].T @ Y_hot[low:high]
            W[split.hot] += W_hot.reshape(-1, X.shape[1])
        if split.cold.nnz:
            split.cold.add_transpose_times(Y, W)
        return W

    def dense_tiles(self) -> Iterator[Float]:
        """A' as dense runs of rows."""
        for tile in self.split.tiles():
            rows = tile.cold.dense()
            rows[:, tile.hot] += tile.H
            yield rows

    def dense(self) -> Float:
        """M itself, for small ones."""
        return np.vstack([self.B, self.A.dense()])


def sampled(indices: Index) -> Index:
    runs = len(indices) // SAMPLE_EVERY
    return indices[: runs * SAMPLE_EVERY].reshape(runs, -1)[:, :SAMPLE_RUN].reshape(-1) if runs else indices


def runs_of(work: Any, most: int) -> Iterator[tuple[int, int]]:
    """Runs (start, stop) of about `most` work each, at least one long; `work` is what all before each have."""
    start, end = 0, len(work) - 1
    while start < end:
        stop = int(np.searchsorted(work, work[start] + most, side="left"))
        stop = min(max(stop, start + 1), end)
        yield start, stop
        start = stop
