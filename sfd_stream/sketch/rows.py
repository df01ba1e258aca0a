"""Rows as checked CSR arrays: finite, in range, sorted and without duplicates."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise
from numbers import Integral
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import scipy.sparse as sp

Float = npt.NDArray[np.float64]
Int = npt.NDArray[np.int64]
Index = npt.NDArray[np.int32]

D_MAX = 2**31
"""Columns are int32, so d never exceeds this."""

VALUE_MAX = 1e150
"""The largest accepted magnitude: its square, and the sum of many of them, stay within the float64 range."""


GROUPS = 64
"""The number of groups of a block's rows whose energies are compared."""

PLAIN: Final = ("C_CONTIGUOUS", "ALIGNED", "ENSUREARRAY")
"""Requirements of products on an array. Other arrays are copied."""


@dataclass(frozen=True, eq=False)
class RowBlock:
    """An immutable batch of sparse rows.

    `indptr` has `rows + 1` entries; the columns of row r are `indices[indptr[r]:indptr[r + 1]]`, strictly
    increasing, with non-zero finite `values`. Use `from_csr` or `from_arrays` to check; the constructor
    trusts.
    """

    indptr: Int
    indices: Index
    values: Float
    d: int

    @classmethod
    def from_arrays(cls, indptr: npt.ArrayLike, indices: npt.ArrayLike, values: npt.ArrayLike, d: int) -> RowBlock:
        """Any CSR arrays, checked and made canonical. A `ValueError` names the first invalid row.

        Duplicate columns of a row are added in the given order, and zeros are dropped. The arrays are copied, so later
        changes to them have no effect. The time is linear in the non-zeros if rows are sorted.
        """
        if not 1 <= d <= D_MAX:
            raise ValueError(f"d must be in [1, {D_MAX}], not {d}")
        pointers = _integers("indptr", indptr)
        columns = _integers("indices", indices)
        numbers = _reals(values)
        _check_pointers(pointers, columns, numbers)
        _check_rows(pointers, (columns < 0) | (columns >= d), f"has a column outside [0, {d})")
        _check_rows(pointers, ~np.isfinite(numbers), "has a value that is NaN or infinite")
        _check_rows(pointers, np.abs(numbers) > VALUE_MAX, f"has a value above {VALUE_MAX:g} in magnitude")
        block = canonical(pointers, columns.astype(np.int32), numbers, d)
        _check_rows(block.indptr, np.abs(block.values) > VALUE_MAX, f"has duplicates that sum above {VALUE_MAX:g}")
        return block

    @classmethod
    def from_csr(cls, matrix: Any, *, copy: bool = True) -> RowBlock:
        """Any scipy sparse matrix, checked and made canonical as `from_arrays` does.

        Without `copy` the block may share the matrix's arrays, which must not change while the block is used.
        """
        csr = sp.csr_array(matrix)
        if _plain(csr):
            indices, values = np.require(csr.indices, np.int32, PLAIN), np.require(csr.data, np.float64, PLAIN)
            block = cls(csr.indptr.astype(np.int64), indices, values, csr.shape[1])
            if block.squares <= VALUE_MAX**2:  # not NaN, and none can be above
                return block.copy() if copy else block
        return cls.from_arrays(csr.indptr, csr.indices, csr.data, csr.shape[1])

    @property
    def rows(self) -> int:
        return len(self.indptr) - 1

    @property
    def nnz(self) -> int:
        return len(self.indices)

    @cached_property
    def squares(self) -> float:
        """The sum of all squares; infinite where it overflows."""
        return squared_frobenius(self.values)

    @cached_property
    def group_squares(self) -> Float:
        """The sums of squares of GROUPS groups of rows, in order, with about equal numbers of rows."""
        bounds = self.indptr[equal_counts(self.rows, GROUPS)]
        return np.array([squared_frobenius(self.values[low:high]) for low, high in pairwise(bounds.tolist())])

    def csr(self) -> Any:
        """The same rows as a scipy matrix, sharing memory."""
        matrix = sp.csr_array((self.values, self.indices, self.indptr), shape=(self.rows, self.d), copy=False)
        matrix.has_canonical_format = True
        return matrix

    def copy(self) -> RowBlock:
        return RowBlock(self.indptr.copy(), self.indices.copy(), self.values.copy(), self.d)

    def take(self, start: int, stop: int) -> RowBlock:
        """Rows start..stop; indices and values share memory."""
        low, high = self.indptr[start], self.indptr[stop]
        return RowBlock(self.indptr[start : stop + 1] - low, self.indices[low:high], self.values[low:high], self.d)


def equal_counts(rows: int, groups: int) -> Int:
    """The bounds of groups with about equal numbers of rows; of fewer groups if there are fewer rows."""
    return np.linspace(0, rows, min(groups, rows) + 1).astype(np.int64)


def _plain(csr: Any) -> bool:
    """Whether the matrix is canonical, except for the size of its values. This takes a few quick passes. The slow
    passes for other matrices report the reason.
    """
    data, indices, indptr = csr.data, csr.indices, csr.indptr
    if data.dtype.kind not in "iuf" or not len(data) or csr.shape[1] > D_MAX:
        return False
    return bool(
        data.all()
        and indices.view(f"u{indices.itemsize}").max() < csr.shape[1]  # a negative index is huge as an unsigned one
        and _rising(indptr, indices)
    )


def canonical(indptr: Int, indices: Index, values: Float, d: int) -> RowBlock:
    """Rows in range and finite, as a block: columns sorted, duplicates summed in order, zeros dropped.

    Trusts its arguments and may share their memory. A sum of duplicates may exceed `VALUE_MAX`; the caller checks that.
    """
    if not _rising(indptr, indices):
        indptr, indices, values = _sorted_and_summed(indptr, indices, values, d)
    if not values.all():
        kept = values != 0
        indptr, indices, values = _pointers(indptr, kept), indices[kept], values[kept]
    return RowBlock(indptr, indices, values, d)


def matrix_of(X: Any) -> Any:
    """X as a sparse matrix or a two-dimensional array of real numbers. The error names the reason otherwise."""
    matrix = X if sp.issparse(X) else _dense(X)
    if matrix.dtype.kind == "c":
        raise ValueError("Complex data not supported: the sketch is of real rows")
    if matrix.ndim != 2:
        raise ValueError(
            f"Expected 2D array, got {matrix.ndim}D array instead. Reshape your data: one row, X.reshape(1, -1)"
        )
    return matrix


def _dense(X: Any) -> Any:
    array = np.asarray(X)
    if array.dtype.kind in "OUS" or array.dtype == np.float16:  # scipy has no sparse form of these
        try:
            array = array.astype(np.float64)
        except (TypeError, ValueError) as error:
            raise type(error)(f"rows must be numbers, or mappings from names to values: {error}") from None
    return array


def whole(name: str, value: Any, least: int) -> int:
    """The value, if it is a whole number of at least `least`."""
    if not isinstance(value, Integral) or int(value) < least:
        raise ValueError(f"{name} must be a whole number of at least {least}, not {value!r}")
    return int(value)


def squared_frobenius(X: Float) -> float:
    flat = X.ravel()
    return float(np.einsum("i,i", flat, flat))


def _rising(indptr: Int, indices: Index) -> bool:
    rises = indices[1:] > indices[:-1]
    inner = indptr[1:-1]
    # The first column of the next row may be any.
    rises[inner[(inner > 0) & (inner < len(indices))] - 1] = True
    return bool(rises.all())


def _sorted_and_summed(indptr: Int, indices: Index, values: Float, d: int) -> tuple[Int, Index, Float]:
    order = _stable_order(indptr, indices, d)
    indices, values = indices[order], values[order]
    first = np.ones(len(indices), dtype=bool)
    np.not_equal(indices[1:], indices[:-1], out=first[1:])
    starts = indptr[:-1]
    first[starts[starts < len(indices)]] = True
    if first.all():
        return indptr, indices, values
    # bincount adds one after the other; reduceat adds pairwise, in an order that depends on the length.
    sums = np.bincount(np.cumsum(first) - 1, weights=values).astype(np.float64, copy=False)
    return _pointers(indptr, first), indices[first], sums


def _stable_order(indptr: Int, indices: Index, d: int) -> Int:
    """The order that sorts each row by column and keeps the order of equal columns.

    Rows are sorted as the rows of matrices, which is several times as fast as one sort of all entries. Rows of similar
    length share a matrix, the shorter ones filled up.
    """
    starts, lengths = indptr[:-1], np.diff(indptr)
    longest = int(lengths.max())
    if (lengths == longest).all():
        return _row_orders(indices.reshape(-1, longest), starts, d).reshape(-1)
    order = np.empty(len(indices), dtype=np.int64)
    groups = np.zeros_like(lengths) if longest * len(lengths) <= 1.5 * len(indices) else _powers(lengths)
    for group in np.unique(groups).tolist():
        rows = np.flatnonzero(groups == group)
        places = np.arange(int(lengths[rows].max()))
        entries, filled = starts[rows, None] + places, places < lengths[rows, None]
        columns = indices.take(entries, mode="clip")
        columns[~filled] = d - 1  # padding has the last column and the last places, so it is sorted behind the row
        order[entries[filled]] = _row_orders(columns, starts[rows], d)[filled]
    return order


def _powers(lengths: Int) -> Int:
    """For each length, the exponent of the smallest power of two that is not less."""
    return np.ceil(np.log2(np.maximum(lengths, 1))).astype(np.int64)


def _row_orders(columns: Index, starts: Int, d: int) -> Int:
    """The places of the sorted entries of each row of a matrix; a row's first entry has the place `start`."""
    width = columns.shape[1]
    bits = max(width - 1, 0).bit_length()
    kind: Any = np.uint32 if (d - 1).bit_length() + bits <= 32 else np.int64
    key: Any = columns.astype(kind)  # (column, place) as one number, so that the sort is stable
    key <<= kind(bits)
    key |= np.arange(width, dtype=kind)
    key.sort(axis=1)
    key &= kind((1 << bits) - 1)
    orders: Int = starts[:, None] + key
    return orders


def _pointers(indptr: Int, kept: npt.NDArray[np.bool_]) -> Int:
    """The row pointers when only the entries marked `kept` stay."""
    before = np.zeros(len(kept) + 1, dtype=np.int64)
    np.cumsum(kept, out=before[1:])
    return before[indptr]


def _integers(name: str, array: npt.ArrayLike) -> Int:
    given = np.asarray(array)
    if given.ndim != 1 or (given.size and given.dtype.kind not in "iu"):
        raise ValueError(f"{name} must be a one-dimensional array of integers, not {given.dtype} {given.shape}")
    if given.size and given.dtype.kind == "u" and given.max() > np.iinfo(np.int64).max:
        raise ValueError(f"{name} has a number above 2^63 - 1")
    return given.astype(np.int64)


def _reals(array: npt.ArrayLike) -> Float:
    given = np.asarray(array)
    if given.ndim != 1 or given.dtype.kind not in "biuf":
        raise ValueError(f"values must be a one-dimensional array of real numbers, not {given.dtype} {given.shape}")
    return given.astype(np.float64)


def _check_pointers(indptr: Int, indices: Int, values: Float) -> None:
    if len(indices) != len(values):
        raise ValueError(f"{len(indices)} indices but {len(values)} values")
    if not len(indptr) or indptr[0] != 0:
        raise ValueError("indptr must start at 0")
    if indptr[-1] != len(indices):
        raise ValueError(f"indptr must end at the number of indices, {len(indices)}, not at {indptr[-1]}")
    falls = np.flatnonzero(indptr[1:] < indptr[:-1])
    if len(falls):
        raise ValueError(f"indptr decreases at row {falls[0]}")


def _check_rows(indptr: Int, wrong: npt.NDArray[np.bool_], what: str) -> None:
    if wrong.any():
        row = np.searchsorted(indptr, np.argmax(wrong), side="right") - 1
        raise ValueError(f"row {row} {what}")
