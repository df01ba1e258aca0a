"""A shrink keeps at most ell rows, adds nothing, and loses no more than its bound says."""

from __future__ import annotations

import tracemalloc
from itertools import count

import numpy as np
import pytest
import scipy.sparse as sp

from sfd_stream import SparseFrequentDirections
from sfd_stream.sketch import iteration, shrink
from sfd_stream.sketch.builder import SHRINKS
from sfd_stream.sketch.rows import RowBlock
from sfd_stream.sketch.shrink import Chance, dense_shrink, exact_shrink, fused_shrink
from sfd_stream.sketch.stack import Stack
from sfd_stream.sketch.verify import failure_share
from tests.unit.sketch.matrices import METHODS, rescaled, spiked_rows


def chance() -> Chance:
    shares = (failure_share(attempt, 0.01) for attempt in count(1))
    return Chance(np.random.default_rng(1), np.random.default_rng(2), shares)


@pytest.mark.parametrize("method", METHODS)
def test_what_a_shrink_loses_is_never_negative_and_within_its_bound(method: str) -> None:
    B, A, ell = spiked_rows(10, 70).toarray(), spiked_rows(200, 70), 10
    shrunk = SHRINKS[method](B, RowBlock.from_csr(A), ell, chance())
    assert len(shrunk.B) <= ell
    M = np.vstack([B, A.toarray()])
    lost = np.linalg.eigvalsh(M.T @ M - shrunk.B.T @ shrunk.B)
    noise = 1e-13 * float(np.sum(M * M))
    assert -shrunk.rounding - noise <= lost[0]
    assert 0 < lost[-1] <= shrunk.bound + noise


def test_all_squares_are_reduced_by_that_of_the_first_direction_that_goes() -> None:
    """Frequent Directions in four rows: singular values 5, 4, 3 become the roots of 25 - 9 and 16 - 9."""
    B, lost = dense_shrink(np.diag([5.0, 4.0, 3.0, 1.0]), 3)
    assert lost == 9.0
    assert np.sqrt(np.diag(B.T @ B)).tolist() == pytest.approx([4.0, np.sqrt(7.0), 0.0, 0.0])


def test_few_rows_are_shrunk_exactly_and_need_no_verification() -> None:
    A = spiked_rows(30, 70)
    shrunk = fused_shrink(np.zeros((0, 70)), RowBlock.from_csr(A), 12, chance())
    singular = np.linalg.svd(A.toarray(), compute_uv=False)
    assert shrunk.attempts == 0
    assert shrunk.bound == pytest.approx(singular[12] ** 2, rel=1e-9)


def test_an_exact_shrink_of_few_wide_rows_does_not_form_them(monkeypatch: pytest.MonkeyPatch) -> None:
    A = sp.random_array((300, 400_000), density=2e-5, rng=0, format="csr")
    stack = Stack(np.zeros((0, 400_000)), RowBlock.from_csr(A))
    tracemalloc.start()
    exact_shrink(stack, 5)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 300 * 400_000 * 8 / 4
    A = spiked_rows(50, 70)
    stack = Stack(spiked_rows(6, 70).toarray(), RowBlock.from_csr(A))
    formed = exact_shrink(stack, 9)
    monkeypatch.setattr(iteration, "DENSE_ENTRIES_MAX", 1)
    implicit = exact_shrink(stack, 9)
    np.testing.assert_allclose(implicit.B.T @ implicit.B, formed.B.T @ formed.B, atol=1e-9)
    assert implicit.bound == pytest.approx(formed.bound, rel=1e-9)


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


def test_rows_whose_scale_changes_take_a_few_passes(monkeypatch: pytest.MonkeyPatch) -> None:
    passes, inner = [], shrink.one_pass
    monkeypatch.setattr(shrink, "one_pass", lambda *args: passes.append(None) or inner(*args))
    SparseFrequentDirections(30).fit(rescaled(np.random.default_rng(0), 6000, 600)).sketch()
    assert 0 < len(passes) <= 3
