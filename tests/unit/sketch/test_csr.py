"""The kernels behind scipy's `@`, called directly: they must give what `@` gives, whatever scipy is installed."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp

from sfd_stream.sketch.csr import Csr
from sfd_stream.sketch.rows import RowBlock


@pytest.fixture(params=[(0, 7), (1, 1), (30, 50), (200, 3)], ids=str)
def A(request: pytest.FixtureRequest) -> Csr:
    return Csr.of(RowBlock.from_csr(sp.random_array(request.param, density=0.3, rng=0, format="csr")))


@pytest.mark.parametrize("columns", [1, 4])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_products_are_added_to_what_is_there(A: Csr, columns: int, dtype: Any) -> None:
    rng, (rows, d) = np.random.default_rng(0), A.shape
    same = Csr(A.values.astype(dtype), A.indices, A.indptr, A.shape)
    X, Y = rng.standard_normal((d, columns)).astype(dtype), rng.standard_normal((rows, columns)).astype(dtype)
    forth, back = np.ones_like(Y), np.ones_like(X)
    same.add_times(X, forth)
    same.add_transpose_times(Y, back)
    close = 1e-5 if dtype == np.float32 else 1e-12
    np.testing.assert_allclose(forth, 1 + A.scipy() @ X, rtol=close, atol=close)
    np.testing.assert_allclose(back, 1 + A.scipy().T @ Y, rtol=close, atol=close)


def test_a_weighted_sum_of_a_run_of_rows_is_added(A: Csr) -> None:
    start, (rows, d) = A.shape[0] // 3, A.shape
    weights, out = np.random.default_rng(0).standard_normal(rows - start), np.ones(d)
    A.add_sum_of(start, rows, weights, out)
    np.testing.assert_allclose(out, 1 + weights @ A.dense()[start:], rtol=1e-12, atol=1e-12)


def test_a_run_of_rows_and_its_dense_form(A: Csr) -> None:
    whole, (rows, d) = A.scipy().toarray(), A.shape
    run, out = A.run(rows // 3, rows), np.full((rows - rows // 3, d), 7.0)
    run.fill(out)
    assert np.array_equal(A.dense(), whole)
    assert np.array_equal(run.dense(), whole[rows // 3 :])
    assert np.array_equal(out, whole[rows // 3 :])


def test_duplicates_of_a_row_add_up() -> None:
    A = Csr(np.array([1.0, 2.0, 4.0]), np.array([2, 2, 0], np.int32), np.array([0, 3], np.int32), (1, 3))
    assert A.dense().tolist() == [[4.0, 0.0, 3.0]]


def test_a_place_that_would_be_a_copy_is_refused(A: Csr) -> None:
    X = np.ones((A.shape[1], 2))
    with pytest.raises(AssertionError):
        A.add_times(X, np.zeros((A.shape[0], 3)))
    with pytest.raises(AssertionError):
        A.add_times(X, np.zeros((A.shape[0] + 1, 4))[:, ::2])
    with pytest.raises(AssertionError):
        A.add_sum_of(0, A.shape[0], np.ones(A.shape[0]), np.zeros(A.shape[1] + 1))
    with pytest.raises(AssertionError):
        A.add_sum_of(0, A.shape[0], np.ones(A.shape[0] + 1), np.zeros(A.shape[1]))
