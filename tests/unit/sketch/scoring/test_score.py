"""Scores are what they are defined to be, for every form of rows; what can't be scored is refused with its reason."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp

from sfd_stream import FrequentDirections, HashedColumns, Sketch, SparseFrequentDirections, paper_synthetic
from sfd_stream.reader.merged import merge
from sfd_stream.sketch.rows import RowBlock
from sfd_stream.sketch.scoring.score import Scores
from tests.unit.reader.made import snapshot

X = paper_synthetic(400, 30, 6, seed=3)
SKETCH = SparseFrequentDirections(ell=16).fit(X).sketch()
DAYS = [{"sun": 2, "sea": 1}] * 6 + [{"moon": 2, "star": 1}] * 3
NAMED = SparseFrequentDirections(ell=4, features=HashedColumns(1024)).fit(DAYS).sketch()


def same(a: Scores, b: Scores) -> bool:
    pairs = [(a.coordinates, b.coordinates), (a.residual, b.residual), (a.residual_share, b.residual_share)]
    pairs += [*zip(a.residual_over_mean, b.residual_over_mean, strict=True), *zip(a.t2, b.t2, strict=True)]
    return all(np.allclose(one, other, rtol=1e-9, atol=1e-9) for one, other in pairs)


@pytest.mark.parametrize("centred", [False, True])
def test_the_scores_are_those_of_their_definitions(centred: bool) -> None:
    scorer = SKETCH.scorer(3, centred=centred)
    scores = scorer.score(X)
    Z = X.toarray() - (X.toarray().mean(axis=0) if centred else 0.0)
    V = scorer.components
    assert np.allclose(scores.coordinates, Z @ V.T)
    residual = np.sum((Z - Z @ V.T @ V) ** 2, axis=1)
    assert np.allclose(scores.residual, residual)
    assert np.allclose(scores.residual_share, residual / np.sum(Z**2, axis=1))
    assert scores.p_value is None


@pytest.mark.parametrize("centred", [False, True])
def test_sparse_and_dense_rows_have_the_same_scores_together_and_alone(centred: bool) -> None:
    scorer = SKETCH.scorer(centred=centred)
    scores = scorer.score(X)
    assert same(scores, scorer.score(X.toarray()))
    assert same(scores, scorer.score(sp.csc_array(X)))
    assert same(scores, scorer.score(RowBlock.from_csr(X)))
    alone = scorer.score(X.toarray()[7])
    assert alone.residual == pytest.approx(scores.residual[7:8])
    assert scorer.score(X[:0]).residual.shape == (0,)


def test_rows_of_names_have_the_scores_of_their_columns() -> None:
    scorer = NAMED.scorer()
    rows = [{"sun": 1, "rain": 3}, {"moon": 2}, {}]
    assert NAMED.features is not None
    assert same(scorer.score(rows), scorer.score(NAMED.features.block_of(rows)[0].csr()))
    with pytest.raises(ValueError, match="one mapping is one row"):
        scorer.score({"sun": 1})
    with pytest.raises(ValueError, match="mappings need a sketch of hashed columns"):
        SKETCH.scorer().score([{"sun": 1}])


@pytest.mark.parametrize("sketch", [SKETCH, NAMED], ids=["numbered", "named"])
def test_the_directions_and_their_signs_are_those_of_pca_and_of_the_sketch(sketch: Sketch) -> None:
    assert np.array_equal(sketch.scorer(1).components, sketch.pca(1).components)
    assert np.allclose(sketch.scorer(2, centred=False).components, sketch.components(2))


def test_columns_never_seen_add_their_squares_to_the_residual() -> None:
    scorer = NAMED.scorer()
    plain, strange = scorer.score([{"sun": 2, "sea": 1}, {"sun": 2, "sea": 1, "rain": 9}]).residual
    assert strange == pytest.approx(plain + 81)


@pytest.mark.parametrize("form", [sp.csr_array, np.asarray])
def test_where_columns_grow_rows_may_be_wider_and_narrower(form: Any) -> None:
    scorer = SKETCH.scorer(growing=True)
    row = X.toarray()[:2]
    known = scorer.score(row)
    wider = scorer.score(form(np.hstack([row, [[3.0, 0.0], [0.0, 4.0]]])))
    assert wider.residual == pytest.approx(known.residual + np.array([9.0, 16.0]))
    assert wider.coordinates == pytest.approx(known.coordinates)
    short = row.copy()
    short[:, 20:] = 0.0
    assert same(scorer.score(form(short[:, :20])), scorer.score(short))
    with pytest.raises(ValueError, match="rows of 20 columns, but the sketch has 30"):
        SKETCH.scorer().score(form(short[:, :20]))


def test_a_merge_of_growing_columns_knows_that_they_grow() -> None:
    wide = np.hstack([X.toarray()[:1], [[5.0]]])
    growing = merge([snapshot(SKETCH, columns="growing")], 0.0)
    assert growing.scorer().score(wide).residual == pytest.approx(SKETCH.scorer().score(X[:1]).residual + 25)
    with pytest.raises(ValueError, match="31 columns"):
        merge([snapshot(SKETCH)], 0.0).scorer().score(wide)


@pytest.mark.parametrize("form", [sp.csr_array, np.asarray])
@pytest.mark.parametrize(
    ("value", "said"), [(np.nan, "NaN or infinite"), (-np.inf, "NaN or infinite"), (1e200, "above 1e\\+150")]
)
def test_a_bad_value_is_an_error_that_names_the_row(form: Any, value: float, said: str) -> None:
    rows = X.toarray()[:4]
    rows[2, 5] = value
    with pytest.raises(ValueError, match=f"row 2 has a value.* {said}"):
        SKETCH.scorer().score(form(rows))


def test_a_bad_value_of_a_name_is_an_error_that_names_the_row() -> None:
    with pytest.raises(ValueError, match="row 1 has a value that is NaN or infinite"):
        NAMED.scorer().score([{"sun": 1}, {"moon": np.nan}])


def test_k_is_a_quarter_of_ell_and_above_a_half_there_is_a_warning() -> None:
    assert SKETCH.scorer().k == 4
    assert SKETCH.scorer(8).k == 8
    with pytest.warns(UserWarning, match=re.escape("k = 9 is above ell/2 = 8")) as caught:
        SKETCH.scorer(9)
    assert caught[0].filename == __file__
    with pytest.raises(ValueError, match="k = 31, but this sketch has"):
        SKETCH.scorer(31)
    low_rank = FrequentDirections(16).fit(np.outer(np.arange(9.0), np.ones(8))).sketch()
    assert low_rank.scorer().k == 1


def test_a_sketch_without_directions_can_not_score() -> None:
    with pytest.raises(ValueError, match="a scorer needs a direction"):
        FrequentDirections(4).fit(np.ones((6, 5))).sketch().scorer()
    with pytest.raises(ValueError, match="no column sums"):
        replace(SKETCH, column_sums=None).scorer()
    assert replace(SKETCH, column_sums=None).scorer(centred=False).k == 4


def test_directions_too_weak_for_their_error_are_flagged() -> None:
    made = Sketch(np.diag([4.0, 2.0, 1.0]), 12, 0.9, 0.0, 9, 9, 23.7, None, 9.0, 1)
    scorer = made.scorer(3, centred=False)
    assert scorer.weak.tolist() == [False, False, True]
    assert repr(scorer) == "Scorer(k=3 (1 weak), not centred, of 9 rows)"


def test_t2_has_no_upper_end_where_rounding_reaches_the_weakest_direction() -> None:
    made = Sketch(np.diag([4.0, 1.0]), 8, 0.5, 0.0, 9, 9, 17.5, None, 9.0, 1, rounding=1.5)
    t2 = made.scorer(2, centred=False).score(np.eye(2)).t2
    assert np.isinf(t2.upper).all()
    assert np.isfinite(t2.estimate).all()


def test_a_row_of_zeros_has_no_residual_around_zero() -> None:
    scores = SKETCH.scorer(centred=False).score(np.zeros((1, 30)))
    assert (scores.residual[0], scores.residual_share[0], scores.t2.upper[0]) == (0, 0, 0)


def test_a_long_row_looks_ordinary_once_it_is_counted() -> None:
    """Why rows are scored before they are counted."""
    rows = np.random.default_rng(0).standard_normal((500, 20))
    strange = np.zeros((1, 20))
    strange[0, 3] = 1000.0
    model = SparseFrequentDirections(ell=16).fit(rows)
    before = model.sketch().scorer().score(strange).residual_over_mean.lower
    after = model.partial_fit(strange).sketch().scorer().score(strange).residual_over_mean.upper
    assert before > 10_000
    assert after < 2


@pytest.mark.parametrize("lam", [0.0, -1.0, np.nan, np.inf])
def test_leverage_needs_a_positive_ridge(lam: float) -> None:
    with pytest.raises(ValueError, match="lam must be above 0"):
        SKETCH.scorer().leverage(X, lam)
    with pytest.raises(ValueError, match="counted must be at least 0"):
        SKETCH.scorer().leverage(X, 1.0, counted=400.0)
