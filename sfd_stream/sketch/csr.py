"""Sparse rows as three trusted arrays, and their products with a block of columns, added to an array.

scipy's `@` and its slices give the same numbers, but make and check a new matrix for every run of rows, and a new
result for every product, which costs time if rows are short. The kernels behind `@` add in place.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import scipy.sparse as sp
from scipy.sparse import (
    _sparsetools as kernels,  # as old as scipy's sparse matrices; tests/unit/sketch/test_csr.py checks them
)

from sfd_stream.sketch.rows import Float, Index, RowBlock


@dataclass(frozen=True, slots=True, eq=False)
class Csr:
    """A (rows x d), in 32-bit indices. Duplicates within a row add up."""

    values: Any
    indices: Index
    indptr: Index
    shape: tuple[int, int]

    @classmethod
    def of(cls, block: RowBlock) -> Csr:
        return cls(block.values, block.indices, block.indptr.astype(np.int32), (block.rows, block.d))

    @property
    def nnz(self) -> int:
        return len(self.indices)

    def run(self, start: int, stop: int) -> Csr:
        """Rows start..stop, sharing memory."""
        low, high = self.indptr[start], self.indptr[stop]
        pointers = self.indptr[start : stop + 1] - low
        return Csr(self.values[low:high], self.indices[low:high], pointers, (stop - start, self.shape[1]))

    def add_times(self, X: Any, out: Any) -> None:
        """Adds A X to out, all of one precision."""
        rows, d = self.shape
        arrays = (self.indptr, self.indices, self.values, X.reshape(-1), _flat(out, rows, X.shape[1]))
        if X.shape[1] == 1:
            kernels.csr_matvec(rows, d, *arrays)  # more than twice as fast as the kernel for several
        else:
            kernels.csr_matvecs(rows, d, X.shape[1], *arrays)

    def add_transpose_times(self, Y: Any, out: Any) -> None:
        """Adds A'Y to out, all of one precision; entries of columns that the rows do not have stay unchanged."""
        rows, d = self.shape
        arrays = (self.indptr, self.indices, self.values, Y.reshape(-1), _flat(out, d, Y.shape[1]))
        if Y.shape[1] == 1:
            kernels.csc_matvec(d, rows, *arrays)
        else:
            kernels.csc_matvecs(d, rows, Y.shape[1], *arrays)

    def add_sum_of(self, start: int, stop: int, weights: Any, out: Any) -> None:
        """Adds the weighted sum of rows start..stop to out (d): a run of them need not be made for it."""
        assert len(weights) == stop - start, "the kernels do not check it"
        out = _flat(out, *self.shape[1:])
        pointers = self.indptr[start : stop + 1]
        kernels.csc_matvec(self.shape[1], stop - start, pointers, self.indices, self.values, weights, out)

    def fill(self, out: Any) -> None:
        """Makes out A, dense."""
        out[:] = 0
        kernels.csr_todense(*self.shape, self.indptr, self.indices, self.values, out)

    def dense(self) -> Float:
        out = np.zeros(self.shape)
        kernels.csr_todense(*self.shape, self.indptr, self.indices, self.values, out)
        return out

    def scipy(self) -> Any:
        """The same as a scipy matrix, sharing memory."""
        matrix = sp.csr_array((self.values, self.indices, self.indptr), shape=self.shape, copy=False)
        matrix.has_canonical_format = True
        return matrix


def _flat(out: Any, *shape: int) -> Any:
    assert out.shape == shape, "the kernels do not check it"
    assert out.flags.c_contiguous, "a copy would be added to, and lost"
    return out.reshape(-1)
