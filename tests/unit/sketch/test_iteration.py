"""The strong directions are found, and rounding does no more to them than the result says (judged in long double)."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp

from sfd_stream.sketch import iteration
from sfd_stream.sketch.iteration import DEPENDENT, one_pass, ritz_of, simultaneous_iteration, start_columns, whitening
from sfd_stream.sketch.rows import Float, RowBlock
from sfd_stream.sketch.shrink import rounding_of
from sfd_stream.sketch.stack import Stack


def planted(n: int, d: int, rng: np.random.Generator) -> tuple[Float, Float, Float]:
    """Rows with five directions far above the noise, their left singular vectors and their squared singular values."""
    A = rng.standard_normal((n, 5)) @ (30 * rng.standard_normal((5, d))) + rng.standard_normal((n, d))
    U, singular, _ = np.linalg.svd(A, full_matrices=False)
    return A, U[:, :5], singular[:5] ** 2


def test_simultaneous_iteration_finds_the_strong_left_directions() -> None:
    A, U, _ = planted(200, 60, np.random.default_rng(0))
    Z = simultaneous_iteration(A, 5, 1 / 4, np.random.default_rng(1))
    np.testing.assert_allclose(Z.T @ Z, np.eye(5), atol=1e-12)
    np.testing.assert_allclose(np.linalg.svd(Z.T @ U, compute_uv=False), 1.0, atol=1e-6)


def test_one_pass_from_signed_sums_of_rows_finds_the_strong_directions() -> None:
    A, _, squares = planted(200, 60, np.random.default_rng(0))
    stack = Stack(np.zeros((0, 60)), RowBlock.from_csr(sp.csr_array(A)))
    ritz = one_pass(stack, [start_columns(stack, 16, np.random.default_rng(1))])
    np.testing.assert_allclose(ritz.values2[:5], squares, rtol=1e-3)
    V = ritz.directions()
    np.testing.assert_allclose(np.linalg.norm(A @ V[:, :5], axis=0) ** 2, squares, rtol=1e-2)


def test_rows_are_kept_less_the_first_square_that_is_dropped() -> None:
    """The singular values 5, 4, 3, 1 of P, and room for two rows: what stays are the roots of 25 - 9 and 16 - 9."""
    kept, lost = ritz_of(np.diag([5.0, 4.0, 3.0, 1.0])).shrunk(2)
    assert lost == pytest.approx(9.0)
    assert sorted(np.linalg.norm(kept, axis=1)) == pytest.approx([np.sqrt(7.0), 4.0])


APART = [1.0, 1e-2, 1e-3, 2e-4]
"""How far columns are from one another: down to where directions are left out."""

SEEDS = range(40)


def nearly_parallel(n: int, s: int, apart: float, rng: np.random.Generator) -> Float:
    """Columns that share one direction and differ by this much."""
    return np.asarray(rng.standard_normal((n, 1)) + apart * rng.standard_normal((n, s)))


def largest(exact: Any) -> float:
    return float(np.linalg.eigvalsh(exact.astype(np.float64))[-1])


def excess_of_Z(apart: float, seed: int) -> tuple[float, float]:
    """By how much Z'Z exceeds I for the exact Z = YT, and by how much a triangular inverse may make it do so."""
    rng = np.random.default_rng(seed)
    n, s = 400, 12
    Y = nearly_parallel(n, s, apart, rng) * 10 ** rng.uniform(-3, 3, s)
    T, amplified = whitening(Y.T @ Y, n)
    Z = Y.astype(np.longdouble) @ T.astype(np.longdouble)
    return largest(Z.T @ Z - np.eye(Z.shape[1], dtype=np.longdouble)), 4 * iteration.EPS * s * amplified


@pytest.mark.parametrize("apart", APART)
def test_whitening_makes_no_more_of_a_direction_than_there_is(apart: float) -> None:
    assert all(excess <= allowed for excess, allowed in (excess_of_Z(apart, seed) for seed in SEEDS))


def test_without_the_room_for_rounding_it_does(monkeypatch: pytest.MonkeyPatch) -> None:
    """So the test above can fail."""
    allowed = [excess_of_Z(2e-4, seed)[1] for seed in SEEDS]
    monkeypatch.setattr(iteration, "EPS", 0.0)
    assert any(excess_of_Z(2e-4, seed)[0] > most for seed, most in zip(SEEDS, allowed, strict=True))


@pytest.mark.parametrize("apart", APART)
def test_a_pass_from_nearly_parallel_columns_takes_no_more_than_the_rows_have(apart: float) -> None:
    """P'P <= M'M up to the rounding that is published, and the same of the traces, which cap a bound."""
    for seed in SEEDS:
        rng = np.random.default_rng(seed)
        rows, d, s = 300, 60, 12
        M = rng.standard_normal((rows, d)) * 10 ** -rng.uniform(0, 3, d)
        block = RowBlock.from_arrays(np.arange(rows + 1) * d, np.tile(np.arange(d), rows), M.ravel(), d)
        stack = Stack(np.zeros((0, d)), block)
        ritz = one_pass(stack, [nearly_parallel(d, s, apart, rng)])
        P = (ritz.W @ ritz.TH).T.astype(np.longdouble)
        exact = M.astype(np.longdouble)
        beyond = np.linalg.eigvalsh((P.T @ P - exact.T @ exact).astype(np.float64))
        assert beyond[beyond > 0].sum() <= ritz.amplified * rounding_of(stack, s)


def test_directions_that_would_amplify_rounding_without_measure_are_left_out() -> None:
    Y = nearly_parallel(400, 12, 1e-7, np.random.default_rng(0))
    T, amplified = whitening(Y.T @ Y, 400)
    assert T.shape[1] == 1
    assert amplified < 12 / np.sqrt(DEPENDENT)
