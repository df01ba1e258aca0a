"""The paper's two measures: against numpy where all is small, by Lanczos where d is large, the same by both routes."""

from __future__ import annotations

import tracemalloc
from dataclasses import replace

import numpy as np
import pytest
import scipy.sparse as sp
from hypothesis import given
from hypothesis import strategies as st

from sfd_stream import FrequentDirections, SparseFrequentDirections, covariance_error, projection_error
from sfd_stream.sketch import measures
from tests.unit.sketch.matrices import Case, as_it_comes, cases, examples

small = cases(methods=("fused", "dense"), rows=(5, 120), columns=(4, 40), ells=(2, 12))


@given(small, st.integers(1, 5))
@examples(30)
def test_small_matrices_are_measured_as_numpy_does(case: Case, k: int) -> None:
    A, sketch = case.rows(), case.built().sketch()
    D, B = A.toarray(), sketch.matrix
    total = np.linalg.norm(D) ** 2
    error = np.linalg.norm(D.T @ D - B.T @ B, 2) / max(total, 1e-300)
    assert covariance_error(A, sketch) == pytest.approx(error, rel=1e-9, abs=1e-13)
    assert covariance_error(D, sketch) == pytest.approx(error, rel=1e-9, abs=1e-13)
    U, singular, VT = np.linalg.svd(D, full_matrices=False)
    best = np.linalg.norm(D - (U[:, :k] * singular[:k]) @ VT[:k]) ** 2
    V = sketch.components()[:k]
    if best > 1e-9 * total:
        assert projection_error(A, sketch, k) == pytest.approx(np.linalg.norm(D - D @ V.T @ V) ** 2 / best, rel=1e-6)


@pytest.mark.parametrize("family", ["spiked", "flat", "burst", "text"])
def test_both_routes_measure_the_same(family: str, monkeypatch: pytest.MonkeyPatch) -> None:
    case = Case(family, as_it_comes, 3, 300, 80, 12, 90, "fused")
    A, sketch = case.rows(), case.built().sketch()
    exact = (covariance_error(A, sketch), projection_error(A, sketch, 4))
    monkeypatch.setattr(measures, "EXACT_D_MAX", 10)
    lanczos = (covariance_error(A, sketch), projection_error(A, sketch, 4))
    assert lanczos == pytest.approx(exact, rel=1e-5)


def test_a_sketch_above_its_rows_is_measured_by_its_magnitude(monkeypatch: pytest.MonkeyPatch) -> None:
    """A'A - B'B may be negative where a sketch is wrong: the norm is that of the largest magnitude."""
    case = Case("flat", as_it_comes, 3, 300, 80, 12, 90, "fused")
    A, sketch = case.rows(), case.built().sketch()
    wrong = replace(sketch, matrix=sketch.matrix * 10)
    exact = covariance_error(A, wrong)
    assert exact > covariance_error(A, sketch)
    monkeypatch.setattr(measures, "EXACT_D_MAX", 10)
    assert covariance_error(A, wrong) == pytest.approx(exact, rel=1e-5)


def test_nothing_and_everything_are_measured() -> None:
    empty = FrequentDirections(ell=3).fit(sp.csr_array((0, 5))).sketch()
    assert covariance_error(sp.csr_array((0, 5)), empty) == 0
    A = np.eye(5)[:3]
    whole = FrequentDirections(ell=5).fit(A).sketch()
    assert covariance_error(A, whole) < 1e-15
    assert projection_error(A, whole, 3) == 1.0
    assert covariance_error(A, empty) == pytest.approx(1 / 3)
    assert projection_error(A, empty, 3) == np.inf


@pytest.mark.slow
def test_a_million_sparse_columns_need_no_square_matrix() -> None:
    d, n = 1_000_000, 2500
    rng = np.random.default_rng(0)
    head = rng.integers(0, 40, (n, 4))
    tail = rng.integers(40, d, (n, 4))
    columns = np.hstack([head, tail]).ravel()
    A = sp.csr_array((np.ones(8 * n), columns, np.arange(n + 1) * 8), shape=(n, d))
    sketch = SparseFrequentDirections(ell=6).fit(A).sketch()
    tracemalloc.start()
    error, projected = covariance_error(A, sketch), projection_error(A, sketch, 3)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 600e6
    assert 0 < error <= sketch.delta / sketch.squared_frobenius * (1 + 1e-6)
    assert 1 - 1e-9 <= projected < 1.2
