"""Rows as checked CSR arrays. Whatever passes through here is finite, in range, sorted and without duplicates."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import scipy.sparse as sp

Float = npt.NDArray[np.float64]
Int = npt.NDArray[np.int64]
Index = npt.NDArray[np.int32]


@dataclass(frozen=True, slots=True, eq=False)
class RowBlock:
    """An immutable batch of sparse rows.

    `indptr` has `rows + 1` entries; the columns of row r are `indices[indptr[r]:indptr[r + 1]]`, strictly increasing,
    with non-zero finite `values`. Use `from_csr` or `from_arrays` to check; the constructor trusts.
    """

    indptr: Int
    indices: Index
    values: Float
    d: int

    @property
    def rows(self) -> int:
        return len(self.indptr) - 1

    @property
    def nnz(self) -> int:
        return len(self.indices)

    def csr(self) -> Any:
        """The same rows as a scipy matrix, sharing memory."""
        matrix = sp.csr_array((self.values, self.indices, self.indptr), shape=(self.rows, self.d), copy=False)
        matrix.has_canonical_format = True
        return matrix

    def take(self, start: int, stop: int) -> RowBlock:
        """Rows start..stop; indices and values share memory."""
        low, high = self.indptr[start], self.indptr[stop]
        return RowBlock(
            self.indptr[start : stop + 1] - low, self.indices[low:high], self.values[low:high], self.d
        )
