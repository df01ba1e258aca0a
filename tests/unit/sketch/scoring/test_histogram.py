"""p-values count earlier rows; they are calibrated on stationary streams. Histograms add up, whatever their order."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from sfd_stream import ScoreHistogram, Scores, SparseFrequentDirections, paper_synthetic
from sfd_stream.sketch.intervals import Intervals
from sfd_stream.sketch.scoring.histogram import BIN_LEAST, BIN_MOST, bin_numbers
from tests.unit.sketch.matrices import text

X = paper_synthetic(900, 40, 6, seed=5)
SCORER = SparseFrequentDirections(ell=16).fit(X[:300]).sketch().scorer()


def scores_of(residual: Any, inside: Any, t2: Any) -> Scores:
    residual, inside, t2 = (np.asarray(each, float) for each in (residual, inside, t2))
    ends = Intervals(t2, t2, t2)
    return Scores(np.sqrt(inside)[:, None], residual, residual / (residual + inside), ends, ends)


def test_the_p_value_is_thrice_the_smallest_share_of_earlier_rows_at_least_as_extreme() -> None:
    earlier = scores_of([1, 2, 4, 8], [1, 1, 1, 1], [1, 2, 4, 8])
    histogram = ScoreHistogram().plus(earlier)
    new = scores_of([3, 100, 0.1, 8], [1, 100, 0.1, 8], [0.1, 0.1, 0.1, 0.1])
    # By residual 2, 0, 4 and 1 are at least as large; by the share 2, 4, 4 and 4; by T^2 all.
    assert histogram.p_value(new) == pytest.approx([1, 3 / 5, 1, 1])
    longer = histogram.merge(histogram).merge(histogram.merge(histogram))
    assert longer.p_value(new) == pytest.approx([1, 3 / 17, 1, 15 / 17])


def test_without_earlier_rows_every_p_value_is_one() -> None:
    assert (ScoreHistogram().p_value(SCORER.score(X[:9])) == 1).all()


def test_a_score_is_compared_to_within_a_bin_of_2_percent() -> None:
    scores = np.geomspace(1e-300, 1e300, 5000)
    numbers = bin_numbers(scores)
    assert (np.diff(numbers) >= 0).all()
    assert (2.0 ** (numbers / 32) <= scores * (1 + 1e-12)).all()
    assert (scores < 2.0 ** ((numbers + 1) / 32) * (1 + 1e-12)).all()
    assert bin_numbers(np.array([0.0, 5e-324, 1.7e308, np.inf])).tolist()[::3] == [BIN_LEAST, BIN_MOST]
    assert BIN_LEAST < bin_numbers(np.array([5e-324]))[0] < bin_numbers(np.array([1.7e308]))[0] < BIN_MOST


def test_the_order_of_rows_and_merges_does_not_matter() -> None:
    parts = [ScoreHistogram().plus(SCORER.score(X[start : start + 100])) for start in range(300, 900, 100)]
    whole = ScoreHistogram().plus(SCORER.score(X[300:]))
    forward, backward = ScoreHistogram(), ScoreHistogram()
    for part in parts:
        forward, backward = forward.merge(part), part.merge(backward)
    assert forward == backward == whole
    assert hash(forward) == hash(whole)
    assert repr(whole) == "ScoreHistogram(rows=600, k=4)"
    assert whole != parts[0]


def test_scores_of_another_k_are_refused() -> None:
    histogram = ScoreHistogram().plus(SCORER.score(X[300:400]))
    other = SparseFrequentDirections(ell=16).fit(X[:300]).sketch().scorer(3).score(X[:5])
    for refused in (histogram.plus, histogram.p_value):
        with pytest.raises(ValueError, match="scores of k = 4 and k = 3 can't be compared"):
            refused(other)


# -- calibration ---------------------------------------------------------------------------------------------


def around_a_subspace(draw: Callable[..., Any], n: int) -> Any:
    V = np.linalg.qr(np.random.default_rng(9).standard_normal((40, 6)))[0].T
    return draw((n, 6)) * [8, 6, 5, 4, 3, 2] @ V + 0.5 * draw((n, 40))


STATIONARY: dict[str, Callable[[np.random.Generator, int], Any]] = {
    "gaussian": lambda rng, n: around_a_subspace(rng.standard_normal, n),
    "heavy tails": lambda rng, n: around_a_subspace(lambda size: rng.standard_t(3, size), n),
    "lognormal": lambda rng, n: np.exp(rng.standard_normal((n, 40))) * np.linspace(3, 0.3, 40),
    "sparse": lambda rng, n: np.where(rng.random((n, 40)) < 0.15, rng.standard_normal((n, 40)), 0.0),
    "text": lambda rng, n: text(rng, n, 40),
}


@pytest.mark.parametrize("stream", STATIONARY)
def test_p_values_are_calibrated_for_rows_scored_before_they_are_counted(stream: str) -> None:
    rows = STATIONARY[stream](np.random.default_rng(6), 14_000)
    scorer = SparseFrequentDirections(ell=20).fit(rows[:2_000]).sketch().scorer()
    histogram, found = ScoreHistogram(), []
    for start in range(2_000, len(rows), 500):
        scores = scorer.score(rows[start : start + 500], histogram)
        histogram = histogram.plus(scores)
        found.append(scores.p_value)
    p = np.concatenate(found[4:])
    assert 0.003 <= np.mean(p <= 0.01) <= 0.02


def test_a_histogram_of_rows_that_the_basis_counted_is_not_calibrated() -> None:
    """Why only rows scored before they are counted belong there: few rows, many columns."""
    rng = np.random.default_rng(7)
    rows = rng.standard_normal((2_040, 40))
    model = SparseFrequentDirections(ell=32).fit(rows[:40])
    scorer = model.sketch().scorer(16)
    biased = ScoreHistogram().plus(scorer.score(rows[:40]))
    assert np.mean(scorer.score(rows[40:], biased).p_value <= 0.1) > 0.5
