"""What rounding may do to a shrink is bounded by what it says of itself: judged in a higher precision."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from sfd_stream import SparseFrequentDirections
from sfd_stream.sketch import iteration, shrink
from sfd_stream.sketch.iteration import DEPENDENT, one_pass, whitening
from sfd_stream.sketch.rows import Float, RowBlock
from sfd_stream.sketch.shrink import rounding_of
from sfd_stream.sketch.stack import Stack

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


def looseness_beside_a_spike(seed: int) -> float:
    """The bound over the least that ell rows can lose, where one direction holds all but 1e-8 of the squares."""
    rng = np.random.default_rng(seed)
    n, d, ell = 400, 150, 10
    A = 1e5 * rng.standard_normal(d) / np.sqrt(d) + rng.standard_normal((n, d)) * 0.9 ** np.arange(d)
    sketch = SparseFrequentDirections(ell=ell, seed=seed).fit(A).sketch()
    return float(sketch.delta / np.linalg.svd(A, compute_uv=False)[ell] ** 2)


def test_a_direction_that_outshines_all_others_does_not_drown_them_in_rounding(monkeypatch: pytest.MonkeyPatch) -> None:
    """Rows far from the origin, for one. The first pass then starts from columns that are all but parallel."""
    assert max(looseness_beside_a_spike(seed) for seed in range(5)) < 4
    monkeypatch.setattr(shrink, "PRECISE", np.inf)
    assert max(looseness_beside_a_spike(seed) for seed in range(5)) > 4
