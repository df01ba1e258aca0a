"""Forgetting by a half-life, another ell, more columns: the bound is that of the rows as they are weighed now."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import scipy.sparse as sp
from hypothesis import given
from hypothesis import strategies as st

from sfd_stream import SparseFrequentDirections
from sfd_stream.sketch.builder import Parameters, SketchBuilder
from sfd_stream.sketch.rows import RowBlock
from tests.support.slow import smoke_first
from tests.unit.sketch.matrices import METHODS, Case, as_it_comes, built, cases, examples, obeys_its_bound


def weights(n: int, half_life: float) -> np.ndarray:
    return np.exp2(-np.arange(n - 1, -1, -1.0) / half_life)


@given(cases(rows=(1, 260)), st.floats(0.5, 2000), st.lists(st.integers(0, 260), max_size=4))
@examples(30)
def test_a_half_life_is_the_sketch_of_the_rows_with_their_weights(case: Case, half_life: float, at: list[int]) -> None:
    A = case.rows()
    w = weights(case.n, half_life)
    sketch = case.built(A, at, half_life_rows=half_life).sketch()
    assert obeys_its_bound(sp.csr_array(A * np.sqrt(w)[:, None]), sketch)
    assert sketch.weight == pytest.approx(w.sum(), rel=1e-12)
    assert sketch.squared_frobenius == pytest.approx(float(np.sum((A * A).sum(axis=1) * w)), rel=1e-11)
    np.testing.assert_allclose(sketch.column_sums, w @ A.toarray(), atol=1e-11 * np.abs(A.toarray()).sum())
    assert (sketch.rows, sketch.nnz) == (case.n, A.nnz)
    assert sketch == case.built(A, half_life_rows=half_life).sketch()


@pytest.mark.parametrize("method", METHODS)
def test_covariance_and_pca_of_a_half_life_are_those_of_the_weighted_rows(method: str) -> None:
    case = Case("spiked", as_it_comes, 3, 300, 40, 20, 60, method)
    A, w = case.rows().toarray(), weights(300, 90.0)
    sketch = case.built(half_life_rows=90.0).sketch()
    mean = w @ A / w.sum()
    centred = (A - mean) * np.sqrt(w)[:, None]
    covariance = centred.T @ centred / (w.sum() - 1)
    for i, j in ((0, 0), (3, 7), (39, 1)):
        interval = sketch.covariance(i, j)
        assert interval.lower - 1e-9 <= covariance[i, j] <= interval.upper + 1e-9
    pca = sketch.pca(4)
    assert np.all(np.abs(np.linalg.eigvalsh(covariance)[::-1][:4] - pca.explained_variance) <= pca.error + 1e-9)


def test_what_is_forgotten_leaves_the_delta_too() -> None:
    case = Case("flat", as_it_comes, 3, 290, 60, 12, 60, "fused")
    assert case.built(half_life_rows=50.0).sketch().delta < case.built().sketch().delta / 2


@given(cases(rows=(60, 200), ells=(2, 16)), st.integers(1, 24), st.integers(0, 200))
@examples(20)
def test_another_ell_in_the_middle_keeps_the_bound(case: Case, ell: int, at: int) -> None:
    A, block = case.rows(), RowBlock.from_csr(case.rows())
    at = min(at, case.n)
    builder = SketchBuilder(case.parameters())
    builder.absorb(block.take(0, at))
    before = builder.sketch()
    builder.resize(ell)
    assert len(builder.B) <= ell
    assert obeys_its_bound(A[:at], builder.sketch())
    assert builder.sketch().rows == before.rows
    builder.absorb(block.take(at, case.n))
    sketch = builder.sketch()
    assert (sketch.ell, sketch.rows) == (ell, case.n)
    assert len(sketch.matrix) <= ell
    assert obeys_its_bound(A, sketch)


def test_what_was_certified_before_a_change_stays_at_stake_beside_what_comes_after() -> None:
    case = Case("spiked", as_it_comes, 2, 150, 60, 12, 55, "fused")
    builder = case.built(failure_probability=0.5)
    builder.change(replace(builder.parameters, failure_probability=1e-6))
    assert builder.sketch().failure_probability == 0.5 + 1e-6
    builder.change(builder.parameters)
    assert builder.sketch().failure_probability == 0.5 + 1e-6
    builder.change(replace(builder.parameters, method="sparse-shrink"))
    assert builder.sketch().failure_probability == 0.5 + 1e-6
    numbers, arrays, pending = builder.state()
    assert SketchBuilder.resume(builder.parameters, numbers, arrays, pending).sketch() == builder.sketch()
    builder.change(replace(builder.parameters, method="paper", failure_probability=0.9))
    assert builder.sketch().failure_probability == 1.0


def test_before_the_first_row_nothing_is_at_stake() -> None:
    builder = SketchBuilder(Parameters(5, failure_probability=0.5))
    builder.change(Parameters(5, failure_probability=0.1))
    assert builder.sketch().failure_probability == 0.1


@given(cases(rows=(60, 200)), st.integers(0, 30), st.integers(0, 200))
@examples(20)
def test_more_columns_in_the_middle_keep_the_bound(case: Case, extra: int, at: int) -> None:
    at = min(at, case.n)
    old = case.rows()[:at]
    new = sp.csr_array(np.random.default_rng(case.seed).standard_normal((case.n - at, case.d + extra)))
    builder = SketchBuilder(case.parameters())
    builder.absorb(RowBlock.from_csr(old))
    before = builder.totals.delta
    builder.grow(case.d + extra)
    assert builder.totals.delta == before
    builder.absorb(RowBlock.from_csr(new))
    old.resize((at, case.d + extra))
    A = sp.vstack([old, new], format="csr")
    sketch = builder.sketch()
    assert sketch.d == case.d + extra
    assert obeys_its_bound(A, sketch)
    np.testing.assert_allclose(sketch.column_sums, np.asarray(A.sum(axis=0)), atol=1e-9)


def single_entries(n: int, d: int, value: float = 1.0) -> sp.csr_array:
    rng = np.random.default_rng(0)
    return sp.csr_array((value * rng.standard_normal(n), rng.integers(0, d, n), np.arange(n + 1)), shape=(n, d))


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("half_life", smoke_first([0.5, 0.01, 2.0]))
def test_a_half_life_far_below_the_buffer_forgets_old_rows_and_goes_on(method: str, half_life: float) -> None:
    A = single_entries(3000, 40)
    builder = built(A, Parameters(40, 5, method, buffer_entries_max=1400, half_life_rows=half_life))
    assert builder.shrinks >= 3
    for _ in range(3):
        sketch = builder.sketch()
        w = weights(builder.rows, half_life)
        assert obeys_its_bound(sp.csr_array(A * np.sqrt(w)[:, None]), sketch)
        more = single_entries(3000, 40)
        builder.absorb(RowBlock.from_csr(more))
        A = sp.vstack([A, more], format="csr")


def test_a_sketch_that_underflowed_to_zero_goes_on() -> None:
    """The case that was found: 400,000 rows of one entry, a half-life of 100 rows, the default buffer."""
    sketch = SparseFrequentDirections(ell=5, half_life_rows=100).fit(single_entries(400_000, 200)).sketch()
    assert sketch.rows == 400_000
    assert 0 < sketch.delta < sketch.squared_frobenius


def test_a_weight_that_underflows_does_not_take_a_large_row_with_it() -> None:
    """Weights of 2^-1100 are zero in float64; a squared row of 2^900 so weighed is not."""
    A = sp.csr_array(([2.0**450, 1.0], ([0, 1099], [0, 1])), shape=(1100, 2))
    sketch = built(A, Parameters(2, 2, half_life_rows=1.0)).sketch()
    assert sketch.squared_frobenius == pytest.approx(1.0)
    assert np.abs(sketch.matrix[:, 0]).max() == pytest.approx(2.0**450 * 2.0 ** (-1099 / 2), rel=1e-12, abs=0)
