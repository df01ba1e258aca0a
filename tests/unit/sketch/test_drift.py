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
from sfd_stream.sketch.drift import significance
from sfd_stream.sketch.sketch import Sketch
from tests.support.slow import smoke_first


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
    V = np.asarray(other.components(k))
    for rows, share in ((A, found.outside), (B, found.reference_outside)):
        outside = 1 - np.sum((rows @ V.T) ** 2) / np.sum(rows**2)
        assert share.lower <= outside <= share.upper


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
    assert not found.differs
    assert np.all(found.upper == np.pi / 2)


def test_the_same_rows_have_not_drifted_and_other_columns_have_for_certain() -> None:
    A = matrix(0, 50, 8, 0.3)
    here = FrequentDirections(8).fit(np.hstack([A, 0 * A])).sketch()
    there = FrequentDirections(8).fit(np.hstack([0 * A, A])).sketch()
    assert here.drift(here, 2).angles[0] < 1e-7
    found = here.drift(there, 2)
    assert found.angles == pytest.approx([np.pi / 2] * 2)
    assert found.differs
    assert found.outside.lower > 0.99
    assert "largest 90.00 degrees" in repr(found)
    assert "outside the reference 100.00% to 100.00% of the energy" in repr(found)


def test_less_energy_outside_is_a_difference_too() -> None:
    A = matrix(0, 50, 8, 0.3)
    wide = FrequentDirections(8).fit(np.vstack([A, 3 * np.eye(8)])).sketch()
    narrow = FrequentDirections(8).fit(A[:, :2] @ wide.components(2)).sketch()
    found = narrow.drift(wide, 2)
    assert found.outside.upper < found.reference_outside.lower
    assert found.differs


def test_two_samples_of_one_process_differ_without_being_significant() -> None:
    """Why the two statements must not be confused."""
    rng = np.random.default_rng(3)
    directions = np.linalg.qr(rng.standard_normal((20, 4)))[0].T
    rows = (rng.standard_normal((90_000, 4)) * [5, 4, 3, 2]) @ directions + 0.5 * rng.standard_normal((90_000, 20))
    old, new = (FrequentDirections(20).fit(rows[part]).sketch() for part in (slice(0, 2_000), slice(2_000, 4_000)))
    assert new.drift(old, 4).differs
    scorer = old.scorer(4, centred=False)
    shares = scorer.score(rows[4_000:]).residual_share.reshape(-1, 500).mean(axis=1)
    assert not any(significance(shares[:40], shares[40 : 41 + look]).significant for look in range(len(shares) - 40))


# -- significance --------------------------------------------------------------------------------------------

NOISES: dict[str, Any] = {
    "gaussian": lambda rng, size: rng.standard_normal(size),
    "heavy tails": lambda rng, size: rng.standard_t(3, size),
    "lognormal": lambda rng, size: np.exp(rng.standard_normal(size)),
}
RUNS = smoke_first([25, 1_000])
LOOKS, BASELINE, BLOCK = 100, 40, 500


def block_means(rng: np.random.Generator, noise: str) -> Any:
    """Means over blocks of the share of rows of 4 columns outside two directions, which nothing changes."""
    squares = NOISES[noise](rng, ((LOOKS + BASELINE) * BLOCK, 4)) ** 2
    shares = squares[:, 2:].sum(axis=1) / squares.sum(axis=1)
    return shares.reshape(-1, BLOCK).mean(axis=1)


@pytest.mark.parametrize("noise", NOISES)
@pytest.mark.parametrize("runs", RUNS)
def test_a_stream_that_does_not_change_is_hardly_ever_significant(noise: str, runs: int) -> None:
    rng, alarms = np.random.default_rng(8), 0
    for _ in range(runs):
        means = block_means(rng, noise)
        looks = (significance(means[:BASELINE], means[BASELINE : BASELINE + t]) for t in range(1, LOOKS + 1))
        alarms += any(look.significant for look in looks)
    assert alarms <= 2 * runs // 1_000


@pytest.mark.parametrize(("degrees", "blocks"), [(12, 3), (20, 2), (30, 1)])
def test_directions_that_turn_are_significant_soon(degrees: float, blocks: int) -> None:
    rng = np.random.default_rng(5)
    frame = np.linalg.qr(rng.standard_normal((40, 8)))[0].T
    turned = np.cos(np.radians(degrees)) * frame[:4] + np.sin(np.radians(degrees)) * frame[4:]

    def rows(V: Any, n: int) -> Any:
        return (rng.standard_normal((n, 4)) * [5, 4, 3, 2]) @ V + 0.1 * rng.standard_normal((n, 40))

    scorer = FrequentDirections(16).fit(rows(frame[:4], 4_000)).sketch().scorer(4, centred=False)
    parts = [rows(frame[:4], BASELINE * BLOCK), rows(turned, blocks * BLOCK)]
    before, after = (scorer.score(part).residual_share.reshape(-1, BLOCK).mean(axis=1) for part in parts)
    found = significance(before, after)
    assert found.significant
    assert found.change > 0


def test_the_newest_blocks_that_changed_are_the_window() -> None:
    before = np.random.default_rng(1).normal(1.0, 0.1, 40)
    after = np.append(np.random.default_rng(2).normal(1.0, 0.1, 12), [1.5] * 4)
    found = significance(before, after)
    assert (found.significant, found.window) == (True, 4)
    assert found.change == pytest.approx(0.5, abs=0.05)
    assert 0 < found.lower < found.change < found.upper
    assert found.change - found.lower == pytest.approx(found.upper - found.change)


@pytest.mark.parametrize("shift", [0.0, 0.05, 0.1, 0.15, 0.2, 0.3])
def test_a_change_is_significant_where_its_bounds_exclude_none(shift: float) -> None:
    before = np.random.default_rng(1).normal(1.0, 0.1, 40)
    found = significance(before, before.mean() + np.full(8, shift), alpha=0.01)
    assert found.significant == (found.lower > 0 or found.upper < 0)


def test_the_last_blocks_alone_say_the_same_where_the_number_of_looks_is_known() -> None:
    before = np.random.default_rng(1).normal(1.0, 0.1, 40)
    after = np.append(np.random.default_rng(2).normal(1.0, 0.1, 28), [1.5] * 4)
    whole, kept = significance(before, after), significance(before, after[-16:], looks=32)
    assert (kept.window, kept.change) == (whole.window, whole.change)
    assert kept.p_value == pytest.approx(whole.p_value * 5 / 6), "five windows instead of six share the same level"
    with pytest.raises(ValueError, match="looks = 31"):
        significance(before, after, looks=31)


def test_blocks_without_any_spread_are_compared_exactly() -> None:
    assert significance([0.5, 0.5], [0.5]) == (False, 1.0, 1, 0.0, 0.0, 0.0)
    assert significance([0.5, 0.5], [0.6]).p_value == 0


@pytest.mark.parametrize(("baseline", "blocks"), [([], [1.0]), ([1.0], [1.0]), ([1.0, 2.0], [])])
def test_too_few_blocks_are_refused(baseline: list[float], blocks: list[float]) -> None:
    with pytest.raises(ValueError, match="at least 2 and 1 are needed"):
        significance(baseline, blocks)


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
