"""Merging keeps the bound in any order, and counters add up."""

from __future__ import annotations

from dataclasses import replace
from functools import reduce
from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp
from hypothesis import given
from hypothesis import strategies as st

from sfd_stream import Sketch
from tests.unit.sketch.matrices import METHODS, Case, as_it_comes, cases, examples, obeys_its_bound

COUNTERS = ("rows", "nnz", "weight", "shrinks")


def parts(family: str, count: int, method: str = "fused", ell: int = 14) -> list[tuple[Any, Sketch]]:
    some = [Case(family, as_it_comes, seed, 90, 60, ell, 60, method) for seed in range(count)]
    return [(case.rows(), case.built().sketch()) for case in some]


@given(cases(rows=(1, 120)), cases(rows=(1, 120)))
@examples(25)
def test_error_of_the_merged_is_below_its_delta(one: Case, other: Case) -> None:
    other = replace(other, d=one.d)
    merged = one.built().sketch().merge(other.built().sketch())
    assert len(merged.matrix) <= merged.ell == max(one.ell, other.ell)
    assert obeys_its_bound(sp.vstack([one.rows(), other.rows()]), merged)


@pytest.mark.parametrize("method", METHODS)
def test_counters_and_failure_probabilities_add_up(method: str) -> None:
    (_, a), (_, b) = parts("spiked", 2, method)
    merged = a.merge(b)
    for name in COUNTERS:
        assert getattr(merged, name) == getattr(a, name) + getattr(b, name)
    assert merged.squared_frobenius == a.squared_frobenius + b.squared_frobenius
    assert np.array_equal(merged.column_sums, a.column_sums + b.column_sums)
    assert merged.failure_probability == a.failure_probability + b.failure_probability
    assert merged.delta >= a.delta + b.delta
    assert merged.rounding >= a.rounding + b.rounding


@given(st.permutations(range(5)))
@examples(10)
def test_any_order_keeps_the_bound(order: list[int]) -> None:
    some = parts("turning", 5)
    A = sp.vstack([rows for rows, _ in some])
    chain = reduce(Sketch.merge, [some[i][1] for i in order])
    tree = Sketch.merge_all(some[i][1] for i in order)
    for merged in (chain, tree):
        assert obeys_its_bound(A, merged)
        assert merged.rows == A.shape[0]


def test_a_tree_of_merges_loses_no_more_than_a_chain_of_them() -> None:
    sketches = [sketch for _, sketch in parts("flat", 8)]
    assert Sketch.merge_all(sketches).delta <= reduce(Sketch.merge, sketches).delta


def test_merging_with_nothing_changes_nothing_but_the_count_of_failures() -> None:
    ((_, a),) = parts("spiked", 1)
    nothing = Case("spiked", as_it_comes, 0, 1, 60, 14, 60, "dense").built(sp.csr_array((0, 60))).sketch()
    assert a.merge(nothing) == a
    assert nothing.merge(a) == a
    assert Sketch.merge_all([a]) == a


def test_merge_changes_neither_side() -> None:
    (_, a), (_, b) = parts("spiked", 2)
    before = (a.matrix.tobytes(), b.matrix.tobytes(), repr(a), repr(b))
    a.merge(b)
    assert before == (a.matrix.tobytes(), b.matrix.tobytes(), repr(a), repr(b))


def test_what_can_not_be_merged_is_said() -> None:
    ((_, a),) = parts("spiked", 1)
    with pytest.raises(ValueError, match="60 and 70 columns"):
        a.merge(a.padded(70))
    assert a.padded(70).merge(a.padded(70)).d == 70
    with pytest.raises(ValueError, match="no sketch"):
        Sketch.merge_all([])
    with pytest.raises(ValueError, match="cut down"):
        a.padded(3)


def test_failure_probabilities_never_exceed_one() -> None:
    ((_, a),) = parts("flat", 1)
    certain = replace(a, failure_probability=0.7)
    assert certain.merge(certain).failure_probability == 1.0


@pytest.mark.parametrize("family", ["spiked", "decaying", "flat"])
def test_float32_sketches_merge_within_their_bound(family: str) -> None:
    some = parts(family, 3)
    merged = Sketch.merge_all(sketch.astype("float32") for _, sketch in some)
    assert merged.matrix.dtype == np.float64
    assert obeys_its_bound(sp.vstack([rows for rows, _ in some]), merged)


@given(cases(methods=("fused",), rows=(20, 160), ells=(4, 20)), st.integers(1, 20))
@examples(25)
def test_a_smaller_ell_adds_what_it_loses_and_a_larger_one_nothing(case: Case, ell: int) -> None:
    sketch = case.built().sketch()
    smaller = sketch.resized(ell)
    assert len(smaller.matrix) <= ell == smaller.ell
    assert obeys_its_bound(case.rows(), smaller)
    if ell >= len(sketch.matrix):
        assert (smaller.delta, smaller.matrix.tobytes()) == (sketch.delta, sketch.matrix.tobytes())
    else:
        lost = sketch.singular_values()[ell] ** 2
        assert smaller.delta == pytest.approx(sketch.delta + lost, rel=1e-6, abs=1e-9 * sketch.squared_frobenius)
    with pytest.raises(ValueError, match="ell"):
        sketch.resized(0)
