"""The residual of a sketch finds anomalies as well as exact PCA's: within 0.01 of its AUC for ell >= 2k."""

from __future__ import annotations

import pytest

from benchmarks.anomalies import SETS, auc, inside
from sfd_stream import ScoreHistogram
from tests.support.slow import smoke_first


@pytest.mark.parametrize("name", smoke_first(["baskets", "breast cancer", "text", "digits"], smoke=2))
def test_the_residual_finds_what_exact_pca_finds(name: str) -> None:
    for labelled in SETS[name]():
        sketch = labelled.sketch()
        assert sketch.shrinks >= 2
        found = auc(sketch.scorer(labelled.k).score(labelled.scored).residual, labelled.anomalous)
        assert abs(found - auc(labelled.exact_residual(), labelled.anomalous)) <= 0.01


def test_t2_sees_what_is_extreme_inside_and_the_residual_does_not() -> None:
    labelled = inside()
    scores = labelled.sketch().scorer(labelled.k).score(labelled.scored)
    assert auc(scores.t2.estimate, labelled.anomalous) > 0.95
    assert auc(scores.residual, labelled.anomalous) < 0.6


@pytest.mark.parametrize("name", ["text", "baskets", "inside"])
def test_the_p_value_sees_both(name: str) -> None:
    (labelled,) = SETS[name]()
    scorer = labelled.sketch().scorer(labelled.k)
    ordinary = labelled.scored[~labelled.anomalous]
    half = len(ordinary) // 2
    histogram = ScoreHistogram().plus(scorer.score(ordinary[:half]))
    p = scorer.score(labelled.scored[half:], histogram).p_value
    assert p is not None
    assert auc(-p, labelled.anomalous[half:]) > 0.85
