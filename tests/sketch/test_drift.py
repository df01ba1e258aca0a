"""Drift: the true principal angles lie within the error that is told, for any two matrices."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import scipy.linalg
from hypothesis import given, settings
from hypothesis import strategies as st

from sfd_stream import FrequentDirections, SparseFrequentDirections
from sfd_stream.sketch.sketch import Sketch


def matrix(seed: int, n: int, d: int, decay: float) -> Any:
    """A falling spectrum, so that there are gaps for a bound to live in."""
    rng = np.random.default_rng(seed)
    return rng.standard_normal((n, d)) * decay ** np.arange(d) @ scipy.linalg.qr(rng.standard_normal((d, d)))[0]


def true_angles(A: Any, B: Any, k: int) -> Any:
    tops = [np.linalg.svd(X)[2][:k].T for X in (A, B)]
    return scipy.linalg.subspace_angles(*tops)


@settings(max_examples=50, deadline=None)
@given(
    st.tuples(st.integers(0, 10**6), st.integers(0, 10**6)),
    st.integers(1, 4),
    st.sampled_from([0.2, 0.5, 0.8, 0.95]),
    st.integers(6, 9),
    st.floats(0, 1),
)
def test_the_true_angles_are_within_the_error_of_those_told(
    seeds: tuple[int, int], k: int, decay: float, ell: int, mix: float
) -> None:
    A = matrix(seeds[0], 60, 10, decay)
    B = (1 - mix) * A + mix * matrix(seeds[1], 60, 10, decay)
    one, other = (FrequentDirections(ell).fit(X).sketch() for X in (A, B))
    found = one.drift(other, k)
    true = true_angles(A, B, k)
    assert np.all(true <= found.upper + 1e-7)
    assert np.all(true >= found.lower - 1e-7)
    if found.certain:
        assert true[0] > 0


@settings(max_examples=40, deadline=None)
@given(st.integers(0, 10**6), st.integers(1, 3), st.floats(0, 1))
def test_the_bound_holds_for_the_worst_that_delta_allows(seed: int, k: int, share: float) -> None:
    """A'A anywhere in [B'B, B'B + delta]: the rows are chosen to turn the subspace as far as they may."""
    rng = np.random.default_rng(seed)
    B = np.diag([5.0, 4.0, 3.0, 1.0]) @ scipy.linalg.qr(rng.standard_normal((6, 6)))[0][:4]
    values, V = np.linalg.svd(B)[1:]
    gap = values[k - 1] ** 2 - values[k] ** 2
    delta = 0.99 * share * gap
    turned = (V[k - 1] + V[k]) / np.sqrt(2)
    G = B.T @ B + delta * np.outer(turned, turned)
    squares, directions = np.linalg.eigh(G)
    A = np.sqrt(np.maximum(squares, 0))[:, None] * directions.T
    made = Sketch(B, 4, delta, 0.0, 6, 36, float(np.trace(G)), None, 6.0, 1)
    exact = replace(made, matrix=A, delta=0.0)
    found = made.drift(made, k)
    angle = scipy.linalg.subspace_angles(np.linalg.svd(A)[2][:k].T, V[:k].T)[0]
    assert angle <= found.error / 2 + 1e-6
    assert np.all(made.drift(exact, k).lower <= 1e-6)


def test_the_bound_is_reached_in_one_plane() -> None:
    """A perturbation of norm w/2, well placed, turns the subspace by just the angle that is claimed."""
    H, w = np.diag([4.0, 1.0]), 1.5
    phi = np.arcsin(w / 3) / 2
    E = w / 2 * np.array([[-np.sin(2 * phi), np.cos(2 * phi)], [np.cos(2 * phi), np.sin(2 * phi)]])
    top = np.linalg.eigh(H + E)[1][:, -1]
    assert np.arctan2(abs(top[1]), abs(top[0])) == pytest.approx(phi)
    made = Sketch(np.sqrt(H), 2, w, 0.0, 2, 2, 5.0, None, 2.0, 1)
    assert made.drift(made, 1).error == pytest.approx(2 * phi)


def test_without_a_gap_nothing_is_claimed() -> None:
    flat = FrequentDirections(10).fit(np.eye(8)).sketch()
    found = flat.drift(flat, 2)
    assert found.error == np.pi / 2
    assert not found.certain
    assert np.all(found.upper == np.pi / 2)


def test_the_same_rows_have_not_drifted_and_other_columns_have_for_certain() -> None:
    A = matrix(0, 50, 8, 0.3)
    here = FrequentDirections(8).fit(np.hstack([A, 0 * A])).sketch()
    there = FrequentDirections(8).fit(np.hstack([0 * A, A])).sketch()
    assert here.drift(here, 2).angles[0] < 1e-7
    found = here.drift(there, 2)
    assert found.angles == pytest.approx([np.pi / 2] * 2)
    assert found.certain
    assert "largest 90.00 degrees" in repr(found)


def test_fewer_columns_are_zero_columns_and_order_does_not_matter() -> None:
    A = matrix(1, 50, 8, 0.5)
    narrow = FrequentDirections(8).fit(A).sketch()
    wide = FrequentDirections(8).fit(np.hstack([A, 0 * A])).sketch()
    assert narrow.drift(wide, 3).angles[0] < 1e-7
    assert narrow.drift(wide, 3).error == wide.drift(narrow, 3).error


def test_failure_probabilities_add_up() -> None:
    one = SparseFrequentDirections(ell=4, failure_probability=0.02).fit(matrix(2, 40, 6, 0.5)).sketch()
    assert one.drift(one, 1).failure_probability == pytest.approx(2 * one.failure_probability)


@pytest.mark.parametrize("k", [0, 3, -1])
def test_directions_that_are_not_there_can_not_be_compared(k: int) -> None:
    two = FrequentDirections(4).fit(np.eye(6)[:2] * [[3.0], [2.0]]).sketch()
    with pytest.raises(
        ValueError,
        match=f"k must be a whole number of at least 1, not {k}|k = {k}, but both sketches have 2 directions",
    ):
        two.drift(two, k)
