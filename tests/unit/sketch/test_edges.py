"""The edges of what may come in: each is sketched rightly, or refused with words that name the row or the number."""

from __future__ import annotations

import tracemalloc
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp

from sfd_stream import FrequentDirections, Sketch, SparseFrequentDirections
from sfd_stream.sketch.builder import Parameters
from sfd_stream.sketch.sketch import SQUARES_MAX
from tests.unit.sketch.matrices import (
    METHODS,
    Case,
    as_it_comes,
    built,
    error_range,
    flat,
    obeys_its_bound,
    spiked_rows,
)


def sketched(A: Any, method: str, ell: int, buffer: int = 600) -> Any:
    return built(A, Parameters(A.shape[1], ell, method, buffer_entries_max=buffer)).sketch()


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize(
    ("n", "d", "ell"), [(30, 1, 3), (80, 20, 1), (80, 1, 1), (60, 12, 12), (60, 12, 40), (5, 30, 8), (1, 30, 8)]
)
def test_few_columns_few_rows_and_any_ell(method: str, n: int, d: int, ell: int) -> None:
    A = spiked_rows(n, d)
    sketch = sketched(A, method, ell)
    assert len(sketch.matrix) <= ell
    assert obeys_its_bound(A, sketch)


@pytest.mark.parametrize("method", METHODS)
def test_with_room_for_every_row_nothing_is_lost_but_rounding(method: str) -> None:
    A = spiked_rows(12, 40)
    sketch = sketched(A, method, 16, 10**6)
    assert error_range(A, sketch)[1] <= 1e-12 * sketch.squared_frobenius
    assert sketch.delta <= 1e-10 * sketch.squared_frobenius


@pytest.mark.parametrize("method", METHODS)
def test_rank_below_ell_loses_nothing_and_ends(method: str) -> None:
    for seed in range(6):
        case = Case("low-rank", as_it_comes, seed, 240, 64, 15, 60, method)
        A, sketch = case.rows(), case.built().sketch()
        assert error_range(A, sketch)[1] <= 1e-11 * sketch.squared_frobenius
        assert sketch.delta <= 1e-9 * sketch.squared_frobenius


@pytest.mark.parametrize("method", METHODS)
def test_empty_rows_count_as_rows(method: str) -> None:
    A = sp.vstack([sp.csr_array((70, 30)), spiked_rows(90, 30), sp.csr_array((40, 30))], format="csr")
    sketch = sketched(A, method, 6, 120)
    assert (sketch.rows, sketch.weight) == (200, 200)
    assert obeys_its_bound(A, sketch)


@pytest.mark.parametrize("method", METHODS)
def test_all_zero_rows_make_an_empty_sketch(method: str) -> None:
    sketch = sketched(sp.csr_array((150, 60)), method, 12, 70)
    assert not sketch.matrix.any()
    assert (sketch.rows, sketch.nnz, sketch.squared_frobenius) == (150, 0, 0)
    assert sketch.delta < 1e-300
    assert sketch.explained(3) == (0, 0, 0)
    assert "rows=150" in repr(sketch)
    assert sketch.covariance(1, 2).estimate == pytest.approx(0, abs=1e-300)
    assert not np.any(sketch.pca(1).explained_variance > 1e-300)
    assert sketch.merge(sketch).rows == 300


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("at", [0, 77, 149])
def test_one_giant_row_is_kept_and_drowns_nothing_in_the_bound(method: str, at: int) -> None:
    A = flat(np.random.default_rng(3), 150, 60)
    A[at] *= 1e6
    A = sp.csr_array(A)
    sketch = sketched(A, method, 14, 700)
    assert obeys_its_bound(A, sketch)
    assert sketch.singular_values(1)[0] == pytest.approx(np.linalg.norm(A.toarray()[at]), rel=1e-6)


@pytest.mark.parametrize("method", METHODS)
def test_repeated_identical_rows_are_one_direction(method: str) -> None:
    A = sp.csr_array(np.tile(spiked_rows(1, 50).toarray(), (200, 1)))
    sketch = sketched(A, method, 10, 3000)
    assert obeys_its_bound(A, sketch)
    assert sketch.singular_values()[0] ** 2 == pytest.approx(sketch.squared_frobenius, rel=1e-9)


@pytest.mark.parametrize("method", METHODS)
def test_columns_never_touched_stay_zero(method: str) -> None:
    A = sp.hstack([spiked_rows(120, 60), sp.csr_array((120, 40))], format="csr")
    sketch = sketched(A, method, 12, 4000)
    assert not sketch.matrix[:, 60:].any()
    assert not sketch.column_sums[60:].any()
    assert obeys_its_bound(A, sketch)


@pytest.mark.parametrize("method", METHODS)
def test_values_of_1e_160_have_squares_near_zero_and_are_sketched_all_the_same(method: str) -> None:
    A = spiked_rows(120, 60)
    plain, tiny = sketched(A, method, 14, 3500), sketched(A * 1e-160, method, 14, 3500)
    B, tiny_B = plain.matrix, tiny.matrix * 1e160
    np.testing.assert_allclose(tiny_B.T @ tiny_B, B.T @ B, atol=1e-6 * plain.squared_frobenius)
    assert tiny.delta >= plain.delta * 0.99 * 1e-160 * 1e-160
    assert tiny.delta > 0


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("power", [-500, -530, -548, -560, -900, -1020])
def test_values_whose_squares_underflow_are_sketched_like_all_others(method: str, power: int) -> None:
    A = spiked_rows(240, 60)
    plain, tiny = sketched(A, method, 14, 3500), sketched(A * 2.0**power, method, 14, 3500)
    assert plain.shrinks == tiny.shrinks > 1
    B, tiny_B = plain.matrix, np.ldexp(tiny.matrix, -power)
    np.testing.assert_allclose(tiny_B.T @ tiny_B, B.T @ B, atol=2 * plain.delta)
    assert tiny.delta >= float(np.ldexp(error_range(A, plain)[1] * 0.5, 2 * power))
    assert tiny.delta > 0
    asks_all(tiny)


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("power", [-500, -565, -700, -1030])
@pytest.mark.parametrize("faint_first", [True, False])
def test_a_buffer_of_nearly_nothing_beside_rows_of_order_one(method: str, power: int, faint_first: bool) -> None:
    faint, plain = spiked_rows(240, 60) * 2.0**power, spiked_rows(240, 60)
    A = sp.vstack([faint, plain] if faint_first else [plain, faint], format="csr")
    sketch = sketched(A, method, 14, 3500)
    assert obeys_its_bound(A, sketch)
    assert sketch.delta <= 4 * sketched(plain, method, 14, 3500).delta
    asks_all(sketch)


@pytest.mark.parametrize("method", METHODS)
def test_rows_of_every_magnitude_in_one_stream(method: str) -> None:
    rng = np.random.default_rng(0)
    A = sp.csr_array(spiked_rows(400, 60) * np.exp2(rng.integers(-1060, 0, 400))[:, None])
    sketch = sketched(A, method, 14, 3500)
    assert obeys_its_bound(A, sketch)
    asks_all(sketch)


def asks_all(sketch: Sketch) -> None:
    """Every question and every way to make another sketch has an answer."""
    interval = sketch.explained(3)
    assert 0 <= interval.lower <= interval.estimate <= interval.upper <= 1
    assert sketch.covariance(1, 1).lower >= 0
    assert np.isfinite(sketch.pca(2).explained_variance).all()
    assert np.isfinite(sketch.gram() @ np.ones(sketch.d)).all()
    assert sketch.drift(sketch, 1).error <= np.pi / 2
    assert not sketch.drift(sketch, 1).differs
    for other in (sketch.merge(sketch), sketch.resized(3), sketch.astype("float32")):
        assert np.isfinite([other.delta, other.rounding]).all()
        assert other.delta >= sketch.delta


@pytest.mark.parametrize("centred", [False, True])
@pytest.mark.parametrize("power", [-1020, -530, -490, -300, 300, 480])
def test_the_scale_of_all_values_changes_no_score_or_is_refused(power: int, centred: bool) -> None:
    A = spiked_rows(240, 60)
    tiny, plain = sketched(A * 2.0**power, "fused", 14, 3500), sketched(A, "fused", 14, 3500).scorer(centred=centred)
    if power < -490:
        with pytest.raises(ValueError, match="tiny values"):
            tiny.scorer(centred=centred)
        return
    scores, expected = tiny.scorer(centred=centred).score(A * 2.0**power), plain.score(A)
    np.testing.assert_allclose(scores.residual_share, expected.residual_share, rtol=1e-9)
    np.testing.assert_allclose(scores.t2, expected.t2, rtol=1e-9)
    np.testing.assert_allclose(scores.residual_over_mean, expected.residual_over_mean, rtol=1e-9)
    leverage = tiny.scorer(centred=centred).leverage(A[:9] * 2.0**power, max(tiny.delta, 1e-300))
    assert not np.isnan(leverage).any()


@pytest.mark.parametrize("method", METHODS)
def test_values_of_1e150_are_right_or_a_clear_error(method: str) -> None:
    A = spiked_rows(120, 60)
    A = A * (1e150 / np.abs(A.data).max())
    sketch = sketched(A, method, 14, 3500)
    assert obeys_its_bound(A * 1e-150, _scaled(sketch, 1e-150))
    with pytest.raises(ValueError, match=r"row 3 .* above 1e\+150"):
        SparseFrequentDirections().partial_fit(sp.csr_array(([1.01e150], ([3], [0])), shape=(5, 2)))


def test_merging_beyond_float64_is_refused() -> None:
    sketch = sketched(sp.csr_array(np.full((400, 4), 1e150)), "fused", 2)
    doublings = int(np.log2(SQUARES_MAX / sketch.squared_frobenius))
    for _ in range(doublings):
        sketch = sketch.merge(sketch)
        assert np.isfinite([sketch.delta, sketch.squared_frobenius, sketch.rounding, *sketch.matrix.ravel()]).all()
    with pytest.raises(OverflowError, match="squared Frobenius norm"):
        sketch.merge(sketch)


def _scaled(sketch: Any, factor: float) -> Any:
    square = factor * factor
    return replace(
        sketch, matrix=sketch.matrix * factor, delta=sketch.delta * square, rounding=sketch.rounding * square
    )


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
@pytest.mark.parametrize("form", [sp.csr_array, sp.coo_array, np.asarray])
def test_nan_and_infinity_are_refused_with_the_row(value: float, form: Any) -> None:
    X = np.ones((6, 4))
    X[4, 1] = value
    model = SparseFrequentDirections(ell=2).partial_fit(np.ones((3, 4)))
    before = model.sketch()
    with pytest.raises(ValueError, match="row 4"):
        model.partial_fit(form(X))
    assert model.sketch() == before


@pytest.mark.parametrize("dtype", [np.int8, np.int64, np.uint16, np.float32, np.bool_])
@pytest.mark.parametrize("form", [sp.csr_array, sp.csr_matrix, sp.csc_array, sp.coo_array, sp.lil_array, np.asarray])
def test_any_real_dtype_in_any_form_gives_the_same_sketch(dtype: Any, form: Any) -> None:
    X = np.random.default_rng(2).integers(0, 2, (90, 30))
    expected = SparseFrequentDirections(ell=5).fit(X.astype(np.float64)).sketch()
    assert SparseFrequentDirections(ell=5).fit(form(X.astype(dtype))).sketch() == expected


def test_other_kinds_of_numbers_are_refused() -> None:
    with pytest.raises(ValueError, match=r"[Cc]omplex"):
        SparseFrequentDirections().partial_fit(np.ones((2, 2), dtype=complex))
    with pytest.raises(ValueError, match="could not convert"):
        SparseFrequentDirections().partial_fit(np.array([["a", "b"]]))
    with pytest.raises(ValueError, match="2D array"):
        SparseFrequentDirections().partial_fit(np.ones(3))
    with pytest.raises(ValueError, match="minimum of 1"):
        SparseFrequentDirections().partial_fit(np.ones((3, 0)))


@pytest.mark.parametrize("model", [SparseFrequentDirections(ell=3), FrequentDirections(ell=3)])
def test_another_number_of_columns_is_refused_and_changes_nothing(model: Any) -> None:
    model.partial_fit(np.ones((3, 4)))
    before = model.sketch()
    for action in (model.partial_fit, model.transform):
        with pytest.raises(ValueError, match=r"X has 5 features, but .* is expecting 4 features"):
            action(np.ones((2, 5)))
    assert model.sketch() == before


@pytest.mark.parametrize("model", [SparseFrequentDirections(ell=3), FrequentDirections(ell=3)])
def test_no_rows_are_fine_and_no_call_at_all_is_an_error(model: Any) -> None:
    for asked in (model.sketch, lambda: model.components_, lambda: model.transform(np.ones((1, 4)))):
        with pytest.raises(ValueError, match="not fitted"):
            asked()
    model.partial_fit(sp.csr_array((0, 4)))
    assert model.sketch().matrix.shape == (0, 4)
    assert model.sketch().rows == 0
    assert model.sketch().mean.tolist() == [0.0] * 4
    model.partial_fit(np.ones((2, 4))).partial_fit(np.ones((0, 4)))
    assert model.sketch().rows == 2


@pytest.mark.parametrize(
    ("wrong", "named"),
    [
        ({"ell": 0}, "ell"),
        ({"ell": 2.5}, "ell"),
        ({"method": "fast"}, "method"),
        ({"method": "dense"}, "method"),
        ({"failure_probability": 0.0}, "failure_probability"),
        ({"failure_probability": 1.0}, "failure_probability"),
        ({"failure_probability": float("nan")}, "failure_probability"),
        ({"seed": -1}, "seed"),
        ({"seed": 0.5}, "seed"),
        ({"dtype": "float16"}, "dtype"),
        ({"buffer_factor": 0}, "buffer_factor"),
        ({"buffer_factor": float("inf")}, "buffer_factor"),
        ({"half_life_rows": 0}, "half_life_rows"),
        ({"half_life_rows": float("nan")}, "half_life_rows"),
    ],
)
def test_a_parameter_that_makes_no_sense_is_named_when_rows_come(wrong: dict[str, Any], named: str) -> None:
    with pytest.raises(ValueError, match=named):
        SparseFrequentDirections(**wrong).partial_fit(np.ones((2, 3)))


@pytest.mark.slow
def test_two_million_columns_need_memory_for_the_sketch_and_not_for_a_square() -> None:
    d, ell, n = 2_000_000, 20, 3000
    rng = np.random.default_rng(0)
    X = sp.csr_array((rng.standard_normal(8 * n), rng.integers(0, d, 8 * n), np.arange(n + 1) * 8), shape=(n, d))
    model = SparseFrequentDirections(ell=ell)
    tracemalloc.start()
    sketch = model.partial_fit(X).sketch()
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert sketch.matrix.shape == (ell, d)
    assert 0 < sketch.delta < sketch.squared_frobenius
    assert peak < 4 * ell * d * 8


def test_a_dense_array_of_half_floats_is_taken() -> None:
    X = np.random.default_rng(2).integers(0, 2, (9, 3))
    halves = SparseFrequentDirections(ell=5).fit(X.astype(np.float16)).sketch()
    assert halves == SparseFrequentDirections(ell=5).fit(X).sketch()
