"""Every interval of a score contains the truth: 15 streams, each sketched and scored in many ways, no tolerance.

The long form scores more than a million (row, setting) pairs:

    SFD_TEST_EFFORT=10 pytest -m '' tests/unit/sketch/scoring/test_score_laws.py
"""

from __future__ import annotations

from collections import Counter

import numpy as np
import pytest

from tests.support.slow import smoke_first
from tests.unit.sketch.matrices import EFFORT
from tests.unit.sketch.scored import ELLS, FORMS, LONG, STREAMS, Setting, Truth, outside


def violations(setting: Setting, delta_factor: float = 1.0) -> Counter[str]:
    """How many of a setting's intervals miss the truth, by score."""
    scorer, X = setting.scorer(delta_factor), setting.rows()
    scores, truth = scorer.score(X), Truth(setting, scorer)
    residual, mean = truth.residual(), truth.mean_residual()
    over_mean = residual / mean if mean > 0 else np.full(len(residual), np.inf, LONG)
    error = scorer._projection(X).outside_error
    sketch = setting.sketch()
    found = Counter(
        {
            "residual": outside(residual, scores.residual - error, scores.residual + error),
            "mean residual": outside(mean, scorer.mean_residual.lower, scorer.mean_residual.upper),
            "residual over mean": outside(over_mean, scores.residual_over_mean.lower, scores.residual_over_mean.upper),
            "t2": outside(truth.t2(), scores.t2.lower, scores.t2.upper),
        }
    )
    some = slice(None, None, 4)
    for lam in (max(sketch.delta, 1e-6 * sketch.squared_frobenius), 0.01 * sketch.squared_frobenius):
        lower, _, upper = scorer.leverage(X[some], lam)
        found["leverage"] += outside(truth.leverage(lam, some), lower, upper)
    return +found


@pytest.mark.parametrize("ell", smoke_first([15, *(ell for ell in ELLS if ell != 15)]))
@pytest.mark.parametrize("stream", STREAMS)
def test_no_interval_misses_the_truth(stream: str, ell: int) -> None:
    missed: Counter[str] = Counter()
    for seed in range(EFFORT):
        for form in FORMS:
            for centred in (False, True):
                missed += violations(Setting(stream, ell, form, centred, seed))
    assert not missed


def test_the_same_law_fails_when_delta_is_a_tenth_smaller() -> None:
    """The dense baseline's delta is attained, so its intervals have no room to spare."""
    broken = [stream for stream in STREAMS if violations(Setting(stream, 15, "dense", False), delta_factor=0.9)]
    assert len(broken) >= 10
    missed = violations(Setting("turning", 15, "merged", False), delta_factor=0.9)
    assert set(missed) == {"t2", "leverage", "mean residual", "residual over mean"}


def test_the_mean_of_t2_over_the_rows_of_the_sketch_is_k() -> None:
    for form in ("fused", "half-life"):
        setting = Setting("spiked", 15, form, centred=True)
        scorer, w = setting.scorer(), setting.weights().astype(float)
        t2 = scorer.score(setting.rows()).t2
        lower, upper = (float(w @ end / w.sum()) for end in (t2.lower, t2.upper))
        assert lower <= scorer.k <= upper


@pytest.mark.parametrize("centred", [False, True])
def test_the_leverage_without_itself_is_that_of_the_other_rows(centred: bool) -> None:
    setting = Setting("spiked", 30, "fused", centred)
    X, lam = setting.rows(), setting.sketch().delta
    lower, _, upper = setting.scorer().leverage(X[:5], lam, counted=1.0)
    for row in range(5):
        others = np.delete(X, row, axis=0)
        mean = others.mean(axis=0) if centred else 0.0
        S, z = (others - mean).T @ (others - mean), X[row] - mean
        true = z @ np.linalg.solve(S + lam * np.eye(len(S)), z)
        assert lower[row] <= true * (1 + 1e-9)
        assert true <= upper[row] * (1 + 1e-9)
