"""Sums of squares by column are exact like column sums, cost no certificate, and give standard deviations."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sfd_stream import Sketch, SparseFrequentDirections
from sfd_stream.sketch.builder import Parameters, SketchBuilder
from sfd_stream.sketch.rows import RowBlock
from sfd_stream.sketch.verify import EPS
from tests.unit.sketch.matrices import Case, cases, examples

SQUARED = {"column_squares": True}


def squares_of(sketch: Sketch) -> np.ndarray:
    assert sketch.column_squares is not None
    return sketch.column_squares


@given(cases(rows=(1, 260)), st.lists(st.integers(0, 260), max_size=5))
@examples(25)
def test_squares_of_integers_are_exact_however_rows_are_split_and_merged(case: Case, at: list[int]) -> None:
    A = case.rows().copy()
    A.data = np.round(7 * A.data)
    truth = A.power(2).sum(axis=0)
    whole = case.built(A, at, **SQUARED).sketch()
    assert squares_of(whole).tolist() == truth.tolist()
    parts = [case.built(A[start::3], **SQUARED).sketch() for start in range(3)]
    for order in (parts, parts[::-1], [parts[1], parts[2], parts[0]]):
        assert squares_of(Sketch.merge_all(order)).tolist() == truth.tolist()


@given(cases(methods=("fused", "dense"), rows=(100, 260)), st.lists(st.integers(0, 260), max_size=8), st.booleans())
@examples(15)
def test_squares_are_within_their_rounding_and_do_not_depend_on_batches(
    case: Case, at: list[int], forgets: bool
) -> None:
    A, half_life = case.rows() * 0.1, 50.0 if forgets else None
    whole = case.built(A, half_life_rows=half_life, **SQUARED).sketch()
    split = case.built(A, at, half_life_rows=half_life, **SQUARED).sketch()
    assert squares_of(whole).tobytes() == squares_of(split).tobytes()
    ages = np.arange(case.n - 1, -1, -1, dtype=np.longdouble)
    weights = np.exp2(-ages / half_life) if half_life else np.ones(case.n)
    truth = weights @ np.asarray(A.toarray(), np.longdouble) ** 2
    assert (np.abs(squares_of(whole) - truth) <= 4 * EPS * (whole.rows + whole.shrinks + 8) * truth).all()


@given(cases(rows=(1, 260)), st.lists(st.integers(0, 260), max_size=4))
@examples(15)
def test_asking_for_them_changes_nothing_else(case: Case, at: list[int]) -> None:
    plain, squared = case.built(cuts=at).sketch(), case.built(cuts=at, **SQUARED).sketch()
    assert plain.column_squares is None
    assert replace(squared, column_squares=None) == plain


def test_they_begin_only_before_the_first_shrink_and_cost_no_certificate() -> None:
    A = RowBlock.from_csr(Case("spiked", lambda A: A, 2, 150, 60, 12, 55, "fused").rows())
    parameters = Parameters(60, 12, buffer_entries_max=100_000)
    early, late = SketchBuilder(parameters), SketchBuilder(replace(parameters, buffer_entries_max=500))
    for builder in (early, late):
        builder.absorb(A)
        builder.change(replace(builder.parameters, column_squares=True))
        builder.absorb(A)
        assert builder.spent == 0
    assert np.allclose(squares_of(early.sketch()), 2 * A.csr().power(2).sum(axis=0))
    assert late.sketch().column_squares is None
    early.change(replace(early.parameters, column_squares=False))
    assert early.sketch().column_squares is None


def test_a_merge_has_them_if_all_parts_have() -> None:
    A = np.random.default_rng(0).normal(size=(40, 5))
    squared, plain = (SparseFrequentDirections(4, column_squares=each).fit(A).sketch() for each in (True, False))
    assert squared.merge(squared).column_squares is not None
    assert squared.merge(plain).column_squares is plain.merge(squared).column_squares is None
    assert squares_of(squared.padded(9)).tolist() == [*squares_of(squared).tolist(), 0, 0, 0, 0]


@pytest.mark.parametrize("half_life", [None, 30.0])
def test_deviations_are_those_of_the_rows(half_life: float | None) -> None:
    A = np.random.default_rng(1).normal(3.0, [1.0, 1e-3, 50.0, 0.0], size=(200, 4))
    sketch = SparseFrequentDirections(4, half_life_rows=half_life, column_squares=True).fit(A).sketch()
    weights = np.exp2(-np.arange(199, -1, -1.0) / half_life) if half_life else np.ones(200)
    mean = np.average(A, axis=0, weights=weights)
    truth = np.sqrt(np.average((A - mean) ** 2, axis=0, weights=weights))
    assert np.allclose(sketch.deviations, truth, rtol=1e-6, atol=1e-12)
    assert sketch.deviations[3] == 0, "a constant column: its rounding is no deviation"
    with pytest.raises(ValueError, match="column_squares"):
        _ = replace(sketch, column_squares=None).deviations
