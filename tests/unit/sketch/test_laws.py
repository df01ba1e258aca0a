"""The promises of a sketch, for every method, on rows of many kinds and in orders chosen to hurt."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from itertools import pairwise
from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp
from hypothesis import given
from hypothesis import strategies as st

from sfd_stream import FrequentDirections, SparseFrequentDirections, covariance_error, paper_synthetic
from sfd_stream.sketch import shrink
from sfd_stream.sketch.builder import Parameters, SketchBuilder
from sfd_stream.sketch.rows import RowBlock
from sfd_stream.sketch.verify import ALPHA
from tests.support.slow import smoke_first
from tests.unit.sketch.matrices import (
    METHODS,
    Case,
    as_it_comes,
    built,
    burst,
    cases,
    error_range,
    examples,
    late_burst,
    obeys_its_bound,
    random_route,
    rescaled,
    text,
    theorem_gaps,
    turning,
)

cuts = st.lists(st.integers(0, 300), max_size=6)


@given(cases())
@examples(60)
def test_error_is_below_delta_and_never_negative(case: Case) -> None:
    A = case.rows()
    assert obeys_its_bound(A, case.built(A).sketch())


@given(random_route())
@examples(40)
def test_error_is_below_delta_where_directions_are_looked_for_at_random(case: Case) -> None:
    A = case.rows()
    assert obeys_its_bound(A, case.built(A).sketch())


@given(random_route())
@examples(40)
def test_both_inequalities_of_the_theorem_hold_for_every_k(case: Case) -> None:
    A = case.rows()
    gaps = theorem_gaps(A, case.built(A).sketch(), ALPHA)
    assert len(gaps) >= 3
    assert all(min(gap) >= 0 for gap in gaps)


@given(cases(methods=("dense", "sparse-shrink", "fused"), ells=(1, 12)))
@examples(30)
def test_the_sketch_has_at_most_ell_rows_and_exact_counters(case: Case) -> None:
    A = case.rows()
    sketch = case.built(A).sketch()
    assert len(sketch.matrix) <= case.ell
    assert (sketch.d, sketch.ell, sketch.rows, sketch.nnz) == (case.d, case.ell, case.n, A.count_nonzero())
    assert sketch.weight == case.n
    assert sketch.squared_frobenius == pytest.approx(float(np.sum(A.data**2)), rel=1e-13)
    np.testing.assert_allclose(sketch.column_sums, np.asarray(A.sum(axis=0)), atol=1e-12 * np.abs(A.data).sum())


@given(cases(), cuts)
@examples(25)
def test_how_rows_are_split_over_calls_leaves_no_trace(case: Case, at: list[int]) -> None:
    A = case.rows()
    whole, split = case.built(A), case.built(A, at)
    assert whole.shrinks == split.shrinks
    assert whole.sketch() == split.sketch()
    assert same_state(whole, split)


@given(random_route())
@examples(10)
def test_rows_one_by_one_are_the_same_as_all_at_once(case: Case) -> None:
    A = case.rows()
    one_by_one = case.built(A, range(case.n))
    assert one_by_one.sketch() == case.built(A).sketch()
    assert one_by_one.shrinks == case.built(A).shrinks


@given(random_route(), cuts)
@examples(15)
def test_asking_for_a_sketch_changes_nothing_then_or_later(case: Case, at: list[int]) -> None:
    A = RowBlock.from_csr(case.rows())
    silent, asked = SketchBuilder(case.parameters()), SketchBuilder(case.parameters())
    bounds = [0, *sorted(min(cut, A.rows) for cut in at), A.rows]
    for start, stop in pairwise(bounds):
        for builder in (silent, asked):
            builder.absorb(A.take(start, stop))
        first, second = asked.sketch(), asked.sketch()
        assert first == second
        assert same_state(silent, asked)
    assert silent.sketch() == asked.sketch()


@given(random_route())
@examples(10)
def test_the_same_seed_gives_the_same_bits(case: Case) -> None:
    assert case.built().sketch() == case.built().sketch()


@given(random_route(families=("spiked", "flat", "text")))
@examples(12)
def test_another_seed_gives_other_bits_and_keeps_the_laws(case: Case) -> None:
    A = case.rows()
    one, other = case.built(A, seed=1).sketch(), case.built(A, seed=(2, 3)).sketch()
    assert not np.array_equal(one.matrix, other.matrix)
    assert obeys_its_bound(A, one)
    assert obeys_its_bound(A, other)


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("power", [1, -3, 40, -40, 200, -200])
@pytest.mark.parametrize("family", ["spiked", "flat"])
def test_scaling_by_a_power_of_two_is_exact(method: str, power: int, family: str) -> None:
    case = Case(family, as_it_comes, 5, 240, 64, 15, 54, method)
    A = case.rows()
    plain, scaled = case.built(A).sketch(), case.built(A * 2.0**power).sketch()
    assert np.array_equal(scaled.matrix, plain.matrix * 2.0**power)
    for name in ("delta", "squared_frobenius", "rounding"):
        assert getattr(scaled, name) == getattr(plain, name) * 4.0**power, name
    assert np.array_equal(scaled.column_sums, plain.column_sums * 2.0**power)


@given(random_route(methods=["fused"]), st.integers(-60, 60), st.integers(60, 200))
@examples(25)
def test_scaling_is_exact_beside_rows_of_nearly_nothing(case: Case, power: int, below: int) -> None:
    """Some rows lie in columns of their own, so far below the others that single precision has no number for them."""
    A = case.rows()
    faint = sp.csr_array(np.random.default_rng(case.seed).standard_normal((A.shape[0], 6))) * 2.0**-below
    A = sp.csr_array(sp.hstack([A, faint]))
    parameters = case.parameters(d=A.shape[1])
    plain, scaled = built(A, parameters).sketch(), built(A * 2.0**power, parameters).sketch()
    assert np.array_equal(scaled.matrix, plain.matrix * 2.0**power)
    assert scaled.delta == plain.delta * 4.0**power


@pytest.mark.parametrize("method", METHODS)
def test_many_shrinks_happen_in_these_tests(method: str) -> None:
    """The laws above must not hold only because nothing was ever shrunk."""
    case = Case("spiked", as_it_comes, 5, 290, 64, 15, 54, method)
    assert case.built().shrinks >= 4


@pytest.mark.parametrize("family", ["spiked", "decaying", "burst"])
@pytest.mark.parametrize("method", ["fused", "paper"])
def test_no_sketch_at_all_breaks_the_laws_on_these_rows(method: str, family: str) -> None:
    """On the paper's own rows even B = 0 satisfies the theorem. Here it does not, so the laws above can fail."""
    case = Case(family, as_it_comes, 5, 290, 64, 20, 54, method)
    A, sketch = case.rows(), case.built().sketch()
    nothing = replace_matrix(sketch, np.zeros((0, 64)))
    assert not obeys_its_bound(A, nothing)
    assert min(min(gap) for gap in theorem_gaps(A, nothing, ALPHA)) < 0


@pytest.mark.parametrize("method", ["fused", "paper"])
@pytest.mark.parametrize(("family", "most"), [("spiked", 4.0), ("flat", 4.0), ("burst", 4.0), ("turning", 4.0)])
def test_delta_is_of_use(method: str, family: str, most: float) -> None:
    case = Case(family, as_it_comes, 3, 300, 70, 16, 80, method)
    A, sketch = case.rows(), case.built().sketch()
    limit = most if method == "fused" else 2 / ALPHA * most
    assert sketch.delta <= limit * error_range(A, sketch)[1]


def test_on_the_papers_default_data_delta_is_near_the_error_and_far_below_the_theorem() -> None:
    A = paper_synthetic(10_000, 1_000, 100, seed=0)
    sketch = SparseFrequentDirections(ell=50).fit(A).sketch()
    squares = np.linalg.eigvalsh((A.T @ A).toarray())[::-1]
    tails = squares.sum() - np.cumsum(np.append(0.0, squares))
    a_priori = min(tails[k] / (ALPHA * 50 - k) for k in range(int(ALPHA * 50) + 1) if k < ALPHA * 50)
    error = covariance_error(A, sketch) * sketch.squared_frobenius
    assert error <= sketch.delta <= 2 * error
    assert sketch.delta <= a_priori / 2


def test_a_look_at_a_long_stream_takes_one_pass_as_at_a_short_one(monkeypatch: pytest.MonkeyPatch) -> None:
    """What was lost so far makes a look's own bound less important, never harder to reach."""
    A = paper_synthetic(6_000, 300, 30, seed=0)
    builder = built(A, Parameters(300, 20, buffer_entries_max=60_000))
    assert builder.buffer.rows > 150
    passes, inner = [], shrink.one_pass
    monkeypatch.setattr(shrink, "one_pass", lambda *args: passes.append(None) or inner(*args))
    for delta in (0.0, 1.0, 1e3, 1e6, 1e9):
        builder.totals = replace(builder.totals, delta=delta * builder.totals.squared_frobenius)
        passes.clear()
        look = builder.sketch()
        assert len(passes) == 1
        assert look.delta > builder.totals.delta


@pytest.mark.parametrize("method", METHODS)
def test_the_error_is_about_that_of_frequent_directions(method: str) -> None:
    case = Case("burst", as_it_comes, 3, 300, 70, 16, 80, method)
    A = case.rows()
    dense = error_range(A, built(A, case.parameters(method="dense")).sketch())[1]
    assert error_range(A, case.built(A).sketch())[1] <= 1.5 * dense


UNEVEN_STREAMS: dict[str, Callable[[np.random.Generator], Any]] = {
    "late burst as strong as the noise": lambda rng: late_burst(rng, 8000, 300, late=80),
    "burst of one direction": lambda rng: sp.csr_array(burst(rng, 2000, 120)),
    "turning": lambda rng: sp.csr_array(turning(rng, 2000, 120)),
    "text": lambda rng: sp.csr_array(text(rng, 2000, 120)),
    "late burst": lambda rng: late_burst(rng, 6000, 400),
    "late burst of rank 12": lambda rng: late_burst(rng, 6000, 400, rank=12),
    "rescaled": lambda rng: rescaled(rng, 5000, 300),
}


@pytest.mark.parametrize("ell", [8, pytest.param(16, marks=pytest.mark.slow)])
@pytest.mark.parametrize("name", smoke_first(UNEVEN_STREAMS, smoke=4))
def test_the_error_is_at_most_that_of_frequent_directions_where_energy_is_uneven(name: str, ell: int) -> None:
    for seed in range(2):
        A = UNEVEN_STREAMS[name](np.random.default_rng(seed))
        dense = covariance_error(A, FrequentDirections(ell).fit(A).sketch())
        for search in range(2):
            fused = SparseFrequentDirections(ell, seed=search).fit(A).sketch()
            assert covariance_error(A, fused) <= 1.05 * dense
            assert obeys_its_bound(A, fused)


def same_state(one: SketchBuilder, other: SketchBuilder) -> bool:
    """All numbers and arrays, and the pending rows as one block."""
    (numbers, arrays, _), (others, other_arrays, _) = one.state(), other.state()
    pending, other_pending = one.buffer.joined(one.d), other.buffer.joined(other.d)
    return (
        numbers == others
        and all(arrays[name].tobytes() == other_arrays[name].tobytes() for name in arrays)
        and pending.values.tobytes() == other_pending.values.tobytes()
        and pending.indices.tobytes() == other_pending.indices.tobytes()
        and pending.indptr.tobytes() == other_pending.indptr.tobytes()
    )


def replace_matrix(sketch: Any, matrix: Any) -> Any:
    return replace(sketch, matrix=matrix)
