"""Any CSR arrays become a canonical block, or an error that names the row."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp
from hypothesis import given, settings
from hypothesis import strategies as st

from sfd_stream import SparseFrequentDirections
from sfd_stream.sketch.rows import D_MAX, RowBlock

rows_of_entries = st.lists(
    st.lists(st.tuples(st.integers(0, 9), st.sampled_from([0.0, -0.0, 1.0, -1.0, 0.1, 0.2, 0.7])), max_size=8),
    max_size=6,
)


def arrays(rows: list[list[tuple[int, float]]]) -> tuple[list[int], list[int], list[float]]:
    indptr = [0, *np.cumsum([len(row) for row in rows]).tolist()]
    return indptr, [column for row in rows for column, _ in row], [value for row in rows for _, value in row]


@given(rows_of_entries, st.sampled_from([10, 2**20, D_MAX]))
@settings(max_examples=200, deadline=None)
def test_rows_are_sorted_summed_in_order_and_without_zeros(rows: list[list[tuple[int, float]]], d: int) -> None:
    indptr, indices, values = arrays(rows)
    block = RowBlock.from_arrays(indptr, np.array(indices, dtype=np.int64), np.array(values), d)
    expected = []
    for row in rows:
        sums: dict[int, float] = {}
        for column, value in row:
            sums[column] = sums.get(column, 0.0) + value
        expected.append(sorted((column, value) for column, value in sums.items() if value))
    cuts = zip(block.indptr[:-1], block.indptr[1:], strict=True)
    found = [list(zip(block.indices[a:b].tolist(), block.values[a:b].tolist(), strict=True)) for a, b in cuts]
    assert found == expected
    assert (block.indptr.dtype, block.indices.dtype, block.values.dtype) == (np.int64, np.int32, np.float64)
    assert block.d == d


def test_many_duplicates_add_one_after_the_other() -> None:
    values = np.random.default_rng(0).standard_normal(1000)
    block = RowBlock.from_arrays([0, 1000], [3] * 1000, values, 5)
    total = 0.0
    for value in values.tolist():
        total += value
    assert block.values.tolist() == [total]


def test_a_key_too_wide_for_one_sort_gives_the_same_rows() -> None:
    rng = np.random.default_rng(1)
    indptr = np.arange(0, 2**18 + 1, 8)  # many duplicates, so that their order shows
    indices, values = rng.integers(0, 5, 2**18), rng.standard_normal(2**18)
    narrow = RowBlock.from_arrays(indptr, indices, values, 5)
    wide = RowBlock.from_arrays(indptr, indices, values, D_MAX)
    assert np.array_equal(narrow.indices, wide.indices)
    assert np.array_equal(narrow.values, wide.values)


def test_later_changes_to_the_callers_arrays_change_nothing() -> None:
    matrix = sp.csr_array(np.eye(3))
    block = RowBlock.from_csr(matrix)
    matrix.data[:] = 7
    matrix.indices[:] = 0
    assert np.array_equal(block.csr().toarray(), np.eye(3))


@pytest.mark.parametrize("dtype", [bool, np.int8, np.uint64, np.float32, np.float64])
def test_any_real_dtype_becomes_float64(dtype: type) -> None:
    block = RowBlock.from_csr(sp.coo_array(([1, 1], ([0, 1], [1, 0])), shape=(2, 2), dtype=dtype))
    assert block.values.tolist() == [1.0, 1.0]


@pytest.mark.parametrize(
    ("indptr", "indices", "values", "d", "message"),
    [
        ([0, 1], [5], [1.0], 5, "row 0 has a column outside"),
        ([0, 0, 1], [-1], [1.0], 5, "row 1 has a column outside"),
        ([0, 1, 3], [0, 0, 1], [1.0, 2.0, np.nan], 5, "row 1 has a value that is NaN"),
        ([0, 1], [0], [np.inf], 5, "row 0 has a value that is NaN or infinite"),
        ([0, 1], [0], [1.1e150], 5, "row 0 has a value above"),
        ([0, 0, 2], [0, 0], [8e149, 8e149], 5, "row 1 has duplicates that sum above"),
        ([0, 1], [0, 1], [1.0], 5, "2 indices but 1 values"),
        ([1, 1], [0], [1.0], 5, "start at 0"),
        ([], [], [1.0][:0], 5, "start at 0"),
        ([0, 2], [0], [1.0], 5, "end at the number of indices, 1, not at 2"),
        ([0, 2, 1, 2], [0, 1], [1.0, 1.0], 5, "decreases at row 1"),
        ([0, 1], [0.0], [1.0], 5, "indices must be"),
        ([0, 1], [True], [1.0], 5, "indices must be"),
        ([0, 1], [[0]], [1.0], 5, "indices must be"),
        ([0, 1], np.array([2**63], dtype=np.uint64), [1.0], 5, "above 2"),
        ([0, 1], [0], ["1"], 5, "values must be"),
        ([0, 1], [0], [1j], 5, "values must be"),
        ([0, 1], [0], [1.0], 0, "d must be"),
        ([0, 1], [0], [1.0], D_MAX + 1, "d must be"),
    ],
)
def test_what_cannot_be_taken_is_named(indptr: Any, indices: Any, values: Any, d: int, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        RowBlock.from_arrays(indptr, indices, values, d)


def test_the_smallest_and_largest_values_are_taken_as_they_are() -> None:
    values = [1e-160, -5e-324, 1e150, -1e150]
    assert RowBlock.from_arrays([0, 4], [0, 1, 2, 3], values, 4).values.tolist() == values


def test_take_gives_the_rows_between() -> None:
    dense = np.arange(12.0).reshape(4, 3)
    assert np.array_equal(RowBlock.from_csr(sp.csr_array(dense)).take(1, 3).csr().toarray(), dense[1:3])


@pytest.mark.parametrize("d", [3, 40, 2**20, 2**31])
@pytest.mark.parametrize("lengths", [[5] * 9, [0, 1, 2, 3], [1, 400, 0, 2, 3], [0, 0], [7], [30, 31, 29, 30]])
def test_rows_of_any_lengths_are_sorted_and_their_duplicates_summed_in_order(lengths: list[int], d: int) -> None:
    rng = np.random.default_rng([d, *lengths])
    indptr = np.append(0, np.cumsum(lengths))
    indices = np.where(rng.random(indptr[-1]) < 0.3, d - 1, rng.integers(0, d, indptr[-1]))
    values = rng.standard_normal(indptr[-1])
    block = RowBlock.from_arrays(indptr, indices, values, d)
    for row, (low, high) in enumerate(itertools.pairwise(indptr)):
        sums: dict[int, float] = {}
        for column, value in zip(indices[low:high].tolist(), values[low:high].tolist(), strict=True):
            sums[column] = sums.get(column, 0.0) + value
        found = block.take(row, row + 1)
        assert list(zip(found.indices.tolist(), found.values.tolist(), strict=True)) == sorted(sums.items())


def test_unsorted_and_duplicate_indices_are_made_right_and_the_callers_arrays_left_alone() -> None:
    indptr, indices, data = np.array([0, 4, 6]), np.array([3, 0, 3, 1, 2, 2]), np.array([1.0, 2.0, 0.5, 4.0, 1.0, -1.0])
    X = sp.csr_array((data, indices, indptr), shape=(2, 5))
    copies = [part.copy() for part in (X.indptr, X.indices, X.data)]
    block = RowBlock.from_csr(X)
    assert all(np.array_equal(part, copy) for part, copy in zip((X.indptr, X.indices, X.data), copies, strict=True))
    assert block.indices.tolist() == [0, 1, 3]
    assert block.values.tolist() == [2.0, 4.0, 1.5]
    assert block.indptr.tolist() == [0, 3, 3]  # 1 - 1 in column 2 of row 1 is no entry
    tidy = SparseFrequentDirections(ell=2).fit(X.toarray()).sketch()
    assert SparseFrequentDirections(ell=2).fit(X).sketch() == tidy
