"""A builder can be stopped and resumed at every row, bit for bit. It refuses rows that it could never shrink."""

from __future__ import annotations

import json
from dataclasses import replace
from itertools import pairwise
from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp
from hypothesis import given
from hypothesis import strategies as st

from sfd_stream import FrequentDirections, SparseFrequentDirections
from sfd_stream.sketch.builder import Parameters, SketchBuilder
from sfd_stream.sketch.rows import RowBlock
from sfd_stream.sketch.sketch import SQUARES_MAX
from tests.unit.sketch.matrices import METHODS, Case, as_it_comes, built, cases, examples, spiked_rows


def at_odd_offset(array: Any, order: str = "C") -> Any:
    """The same numbers as they come out of a file: not aligned, read-only, maybe in another memory order."""
    raw = np.frombuffer(b"\0" * 3 + array.tobytes(order=order), dtype=np.uint8)[3:]
    back = raw.view(array.dtype) if raw.size else np.empty(0, array.dtype)
    return back.reshape(array.shape, order=order)


def through_bytes(builder: SketchBuilder, order: str = "C") -> SketchBuilder:
    numbers, arrays, pending = builder.state()
    numbers = json.loads(json.dumps(numbers))
    arrays = {name: at_odd_offset(array, order) for name, array in arrays.items()}
    blocks = tuple(
        RowBlock(at_odd_offset(b.indptr), at_odd_offset(b.indices), at_odd_offset(b.values), b.d) for b in pending
    )
    return SketchBuilder.resume(builder.parameters, numbers, arrays, blocks)


@given(cases(rows=(60, 260)), st.lists(st.integers(0, 260), max_size=5), st.sampled_from(["C", "F"]), st.booleans())
@examples(25)
def test_stopped_and_resumed_anywhere_it_goes_on_bit_for_bit(
    case: Case, at: list[int], order: str, forgets: bool
) -> None:
    parameters = case.parameters(half_life_rows=70.0 if forgets else None)
    block = RowBlock.from_csr(case.rows())
    whole, stopped = SketchBuilder(parameters), SketchBuilder(parameters)
    whole.absorb(block)
    bounds = [0, *sorted(min(cut, block.rows) for cut in at), block.rows]
    for start, stop in pairwise(bounds):
        stopped = through_bytes(stopped, order)
        stopped.absorb(block.take(start, stop))
    assert stopped.sketch() == whole.sketch()
    assert through_bytes(stopped).sketch() == whole.sketch()
    assert stopped.state()[0] == whole.state()[0]


@pytest.mark.parametrize("model", [SparseFrequentDirections(5, seed=3, half_life_rows=40.0), FrequentDirections(5)])
def test_an_estimators_state_is_plain_and_goes_on_bit_for_bit(model: Any) -> None:
    A = Case("spiked", as_it_comes, 2, 150, 60, 12, 55, "fused").rows()
    state = model.fit(A[:70]).get_state()
    arrays = {name: at_odd_offset(array) for name, array in state.pop("arrays").items()}
    resumed = type(model).from_state({**json.loads(json.dumps(state)), "arrays": arrays})
    assert resumed.get_params() == model.get_params()
    assert resumed.sketch() == model.sketch()
    assert resumed.partial_fit(A[70:]).sketch() == model.partial_fit(A[70:]).sketch()


@pytest.mark.parametrize("method", METHODS)
def test_every_single_row_may_be_a_stop(method: str) -> None:
    case = Case("spiked", as_it_comes, 2, 150, 60, 12, 55, method)
    block = RowBlock.from_csr(case.rows())
    stopped = SketchBuilder(case.parameters())
    for row in range(block.rows):
        stopped = through_bytes(stopped)
        stopped.absorb(block.take(row, row + 1))
    assert stopped.sketch() == case.built().sketch()


@pytest.mark.parametrize("method", METHODS)
def test_taking_the_state_changes_nothing(method: str) -> None:
    case = Case("spiked", as_it_comes, 2, 150, 60, 12, 55, method)
    block = RowBlock.from_csr(case.rows())
    asked = SketchBuilder(case.parameters())
    for row in range(0, block.rows, 7):
        asked.absorb(block.take(row, min(row + 7, block.rows)))
        asked.state()
    assert asked.sketch() == case.built().sketch()


def test_state_is_plain_numbers_and_contiguous_arrays() -> None:
    numbers, arrays, pending = Case("flat", as_it_comes, 2, 150, 60, 12, 55, "fused").built().state()
    assert all(type(value) in (int, float) for value in numbers.values())
    assert all(array.dtype == np.float64 and array.flags.c_contiguous for array in arrays.values())
    assert all(isinstance(block, RowBlock) for block in pending)


@given(cases(methods=("fused", "dense"), rows=(100, 260)), st.lists(st.integers(0, 260), max_size=8))
@examples(15)
def test_floating_counters_do_not_depend_on_batches(case: Case, at: list[int]) -> None:
    A = case.rows() * 0.1
    whole, split = case.built(A).sketch(), case.built(A, at).sketch()
    assert whole.squared_frobenius == split.squared_frobenius
    assert whole.column_sums.tobytes() == split.column_sums.tobytes()
    assert (whole.weight, whole.delta, whole.rounding) == (split.weight, split.delta, split.rounding)


@pytest.mark.parametrize("method", METHODS)
def test_squares_that_add_up_beyond_float64_are_refused_and_change_nothing(method: str) -> None:
    builder = built(spiked_rows(60, 4), Parameters(4, 2, method, buffer_entries_max=100))
    builder.totals = replace(builder.totals, squared_frobenius=SQUARES_MAX)
    large = RowBlock.from_csr(sp.csr_array(np.full((400, 4), 1e150)))
    before, seen, pending = builder.state(), builder.sketch(), builder.rows
    with pytest.raises(OverflowError, match="squared Frobenius norm"):
        builder.absorb(large)  # more than a buffer
    assert builder.state()[0] == before[0]
    assert builder.rows == pending
    assert builder.sketch() == seen


def test_a_buffer_never_outgrows_what_32_bit_row_pointers_can_count() -> None:
    for method in METHODS:
        capacity = Parameters(2**31, 10_000, method).capacity(0)
        limits = [limit for limit in (capacity.entries, capacity.nnz) if limit is not None]
        assert method == "dense" or min(limits) < 2**31 - 2**20
