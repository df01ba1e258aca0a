"""The columns behind a score: the share of each, what the sketch expected there, and what is missing in the row."""

from __future__ import annotations

import numpy as np
import pytest

from sfd_stream import HashedColumns, SparseFrequentDirections, paper_synthetic

X = paper_synthetic(400, 30, 6, seed=3)
SKETCH = SparseFrequentDirections(ell=16).fit(X).sketch()
DAYS = [{"sun": 2, "sea": 1}] * 6 + [{"moon": 2, "star": 1}] * 3
NAMED = SparseFrequentDirections(ell=4, features=HashedColumns(1024)).fit(DAYS).sketch()


def test_the_shares_of_a_residual_add_up_to_one_and_are_those_of_the_columns() -> None:
    scorer = SKETCH.scorer()
    row = X.toarray()[5]
    found = scorer.explain(row, top=30)
    assert sum(cause.share for cause in found.residual) == pytest.approx(1)
    assert [cause.share for cause in found.residual] == sorted((c.share for c in found.residual), reverse=True)
    residual = scorer.score(row).residual[0]
    for cause in found.residual:
        assert cause.actual == row[cause.column]
        assert cause.share == pytest.approx((cause.actual - cause.expected) ** 2 / residual)
    missing = sum(cause.share for cause in found.residual if cause.actual == 0)
    assert found.missing_share == pytest.approx(missing)


def test_setting_a_column_to_what_t2_expects_takes_its_share_of_t2() -> None:
    scorer = SKETCH.scorer()
    row = X.toarray()[5]
    before = scorer.score(row).t2.estimate[0]
    for cause in scorer.explain(row).t2:
        changed = row.copy()
        changed[cause.column] = cause.expected
        assert scorer.score(changed).t2.estimate[0] == pytest.approx((1 - cause.share) * before)
        assert 0 < cause.share <= 1 + 1e-9
        low, high = sorted([cause.actual, SKETCH.mean[cause.column]])
        assert low - 1e-9 <= cause.expected <= high + 1e-9


def test_a_planted_column_is_the_first_cause_of_both_scores() -> None:
    rng = np.random.default_rng(4)
    V = np.linalg.qr(rng.standard_normal((40, 6)))[0].T
    rows = (rng.standard_normal((800, 6)) * [9, 7, 6, 5, 4, 3]) @ V + 0.3 * rng.standard_normal((800, 40))
    scorer = SparseFrequentDirections(ell=24).fit(rows[:700]).sketch().scorer()
    touched = np.argsort(-np.sum(V**2, axis=0))[:10]  # columns that the directions hardly touch do not move T^2
    for number, row in enumerate(rows[700:]):
        column = touched[number % 10]
        row[column] += 60.0
        found = scorer.explain(row)
        assert found.residual[0].column == column
        assert found.t2[0].column == column


def baskets() -> list[dict[str, int]]:
    recipes = [[f"{dish} {part}" for part in range(6)] for dish in ("curry", "pasta", "salad", "soup")]
    rng = np.random.default_rng(1)
    return [dict.fromkeys(recipes[rng.integers(4)], 1) for _ in range(400)]


def test_an_item_that_is_expected_but_missing_is_named() -> None:
    scorer = SparseFrequentDirections(ell=16, features=HashedColumns(4096)).fit(baskets()).sketch().scorer()
    row = {f"pasta {part}": 1 for part in range(6) if part != 2}
    found = scorer.explain(row)
    first = found.residual[0]
    assert (first.name, first.missing) == ("pasta 2", True)
    assert 0.5 < first.expected < 1
    assert found.missing_share > 0.6
    assert (
        scorer.explain({**row, "pasta 2": 1}).missing_share < 0.1
        or scorer.score([{**row, "pasta 2": 1}]).residual[0] < 0.1
    )


def test_a_name_that_the_sketch_has_never_seen_is_named_with_its_own_sign() -> None:
    scorer = NAMED.scorer()
    for name in ("rain", "hail", "snow", "fog"):
        cause = scorer.explain({"sun": 2, "sea": 1, name: 9}).residual[0]
        assert (cause.name, cause.actual, round(cause.expected, 9)) == (name, 9.0, 0.0)
        assert scorer.explain([{"sun": 2, "sea": 1, name: 9}]).residual[0] == cause


def test_one_row_is_explained_at_a_time() -> None:
    with pytest.raises(ValueError, match="explain takes one row, not 2"):
        SKETCH.scorer().explain(X[:2])
    with pytest.raises(ValueError, match="explain takes one row, not 0"):
        NAMED.scorer().explain([])
    wide = SKETCH.scorer(growing=True).explain(np.append(np.zeros(30), 7.0))
    assert (wide.residual[0].column, wide.residual[0].name, wide.residual[0].expected) == (30, "30", 0.0)


def test_causes_have_z_scores_by_name() -> None:
    rng = np.random.default_rng(2)
    days = [{"sun": 5 + rng.normal(), "sea": 2.0, "wind": rng.normal()} for _ in range(200)]
    columns = HashedColumns(1024)
    sketch = SparseFrequentDirections(4, features=columns, column_squares=True).fit(days).sketch()
    odd = {"sun": 9.0, "sea": 2.0, "wind": -3.0, "rain": 4.0}
    found = {cause.name: cause.z for cause in sketch.scorer(2).explain(odd, top=10).residual}
    values = np.array([[day["sun"], day["wind"]] for day in days])
    wanted = (np.array([9.0, -3.0]) - values.mean(axis=0)) / values.std(axis=0)
    assert [found.get("sun", wanted[0]), found.get("wind", wanted[1])] == pytest.approx(wanted.tolist())
    t2 = {cause.name: cause.z for cause in sketch.scorer(2).explain(odd, top=10).t2}
    assert t2["sun"] == pytest.approx(wanted[0])
    assert t2["wind"] == pytest.approx(wanted[1])
    assert found["rain"] is None, "a column that never varied has no z-score"
    plain = SparseFrequentDirections(4, features=columns).fit(days).sketch()
    assert {cause.z for cause in plain.scorer(2).explain(odd).residual} == {None}
