"""Products with the stack are those of the whole matrix, which is never formed."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp

from sfd_stream.sketch import stack as module
from sfd_stream.sketch.csr import Csr
from sfd_stream.sketch.rows import RowBlock
from sfd_stream.sketch.stack import Split, Stack, peak
from tests.unit.sketch.matrices import spiked_rows


def some_columns_dense() -> Any:
    """Twenty columns that all rows have, and eighty that few have."""
    X = np.random.default_rng(1).standard_normal((150, 100))
    return sp.csr_array(X * ((np.arange(100) < 20) | (np.random.default_rng(2).random(X.shape) < 0.05)))


@pytest.mark.parametrize("A", [spiked_rows(150, 100), some_columns_dense()], ids=["alike", "some dense"])
def test_products_are_those_of_the_sketch_over_the_rows(A: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "TILE_ENTRIES", 500)
    B, X = spiked_rows(7, 100).toarray(), np.random.default_rng(3).standard_normal((100, 4))
    M, stack = np.vstack([B, A.toarray()]), Stack(B, RowBlock.from_csr(A))
    assert len(list(stack.split.tiles())) > 1
    np.testing.assert_allclose(stack.gram_times(X), M.T @ (M @ X), rtol=1e-10, atol=1e-10)
    np.testing.assert_array_equal(np.vstack(list(stack.dense_tiles())), A.toarray())


def test_one_pass_gives_both_products_of_one_approximate_result() -> None:
    """G = Y'Y and W = M'Y, each to double precision, of a Y that is a multiple of MX in single precision only."""
    A, X = some_columns_dense(), np.random.default_rng(3).standard_normal((100, 4))
    stack = Stack(np.zeros((0, 100)), RowBlock.from_csr(A))
    G, W, _ = stack.gram_pass(X)
    Y = np.linalg.lstsq(A.toarray().T, W, rcond=None)[0]
    np.testing.assert_allclose(Y.T @ Y, G, rtol=1e-9, atol=1e-12)
    ratio = np.linalg.norm(Y) / np.linalg.norm(A @ X)
    np.testing.assert_allclose(Y, ratio * (A @ X), atol=1e-5 * np.abs(Y).max())


@pytest.mark.parametrize("power", [-900, 0, 400])
def test_extreme_magnitudes_are_scaled_by_a_power_of_two_and_lose_no_digit(power: int) -> None:
    A = spiked_rows(30, 20) * 2.0**power
    stack = Stack(np.zeros((0, 20)), RowBlock.from_csr(A))
    assert (stack.scale == 1.0) == (power == 0)
    assert 0.5 <= peak(stack.dense()) < 100
    assert np.array_equal(stack.dense() * stack.scale, A.toarray())
    assert 1e-3 < stack.squared_frobenius < 1e9


@pytest.mark.parametrize("rows_alike", [False, True])
@pytest.mark.parametrize("columns", [64, 200, 1_000])
def test_dense_columns_are_seen_however_regular_the_rows_are(columns: int, rows_alike: bool) -> None:
    """A sample of every n-th non-zero would always hit the same columns where all rows are equally long."""
    dense = np.arange(0, 1_000, 1_000 // columns)[:columns]
    X = np.zeros((900, 1_000))
    X[:, dense] = 1.0
    if not rows_alike:
        X[np.random.default_rng(0).random(X.shape) < 0.02] += 1.0
    split = Split.of(Csr.of(RowBlock.from_csr(sp.csr_array(X))))
    assert split.hot.tolist() == dense.tolist()
    np.testing.assert_array_equal(split.cold.dense()[:, dense], 0.0)
    np.testing.assert_array_equal(split.H, X[:, dense])
