"""Every answer of a sketch about its rows contains the truth. It is a value: frozen, comparable, short to print."""

from __future__ import annotations

import pickle
import re
from collections.abc import Callable
from dataclasses import FrozenInstanceError, replace
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp
from hypothesis import given
from hypothesis import strategies as st

from sfd_stream import Sketch, SparseFrequentDirections, covariance_error, projection_error
from tests.unit.sketch.matrices import Case, as_it_comes, cases, error_range, examples, gram, noise, obeys_its_bound

queried = cases(ells=(1, 20), columns=(2, 60), rows=(2, 200))


def truth(A: Any) -> Any:
    return np.maximum(np.linalg.eigvalsh(gram(A))[::-1], 0.0)


def covariance(A: Any) -> Any:
    centred = A.toarray() - A.toarray().mean(axis=0)
    return centred.T @ centred / (A.shape[0] - 1)


@given(queried, st.integers(1, 25), st.booleans())
@examples(30)
def test_explained_contains_the_share_of_the_best_subspace(case: Case, k: int, single: bool) -> None:
    A = case.rows()
    sketch = case.built().sketch().astype("float32" if single else "float64")
    k = min(k, case.d)
    share = truth(A)[:k].sum() / max(truth(A).sum(), 1e-300)
    interval = sketch.explained(k)
    assert interval.lower - 1e-12 <= share <= interval.upper + 1e-12
    assert interval.lower <= interval.estimate <= interval.upper <= 1


@given(queried, st.integers(0, 10**6), st.integers(0, 10**6), st.floats(-50, 50))
@examples(30)
def test_covariance_contains_the_centred_truth(case: Case, i: int, j: int, shift: float) -> None:
    A = case.rows()
    A = sp.csr_array(A.toarray() + shift * (np.arange(case.d) % 3 == 0))
    i, j = i % case.d, j % case.d
    sketch = case.built(A).sketch()
    interval = sketch.covariance(i, j)
    small = noise(A) * 10
    assert interval.lower - small <= covariance(A)[i, j] <= interval.upper + small
    assert interval == sketch.covariance(j, i)
    assert all(type(value) is float for value in interval)


@given(queried, st.integers(1, 25), st.floats(-50, 50))
@examples(30)
def test_pca_contains_the_eigenvalues_of_the_covariance(case: Case, k: int, shift: float) -> None:
    A = sp.csr_array(case.rows().toarray() + shift)
    sketch = case.built(A).sketch()
    k = min(k, len(sketch.matrix) + 1, case.d)
    pca = sketch.pca(k)
    values = np.linalg.eigvalsh(covariance(A))[::-1][: len(pca.explained_variance)]
    assert len(pca.explained_variance) == k
    assert np.all(np.abs(values - pca.explained_variance) <= pca.error + noise(A) * 10)
    V = pca.components
    np.testing.assert_allclose(V @ V.T, np.eye(len(V)), atol=1e-9)
    np.testing.assert_allclose(pca.mean, A.toarray().mean(axis=0), atol=1e-9 * (1 + abs(shift)))


def test_pca_finds_the_directions_of_centred_rows_and_not_of_their_mean() -> None:
    case = Case("spiked", as_it_comes, 1, 400, 60, 20, 1000, "fused")
    A = sp.csr_array(case.rows().toarray() + 100.0)
    values, vectors = np.linalg.eigh(covariance(A))
    pca = case.built(A).sketch().pca(2)
    assert np.all(np.abs(np.sum(pca.components * vectors[:, ::-1][:, :2].T, axis=1)) > 0.99)
    np.testing.assert_allclose(pca.explained_variance, values[::-1][:2], rtol=0.1)


@given(queried)
@examples(25)
def test_gram_has_half_the_error(case: Case) -> None:
    A = case.rows()
    sketch = case.built(A).sketch()
    difference = gram(A) - sketch.gram() @ np.eye(case.d)
    values = np.linalg.eigvalsh(difference)
    assert np.abs(values).max() <= sketch.delta / 2 + sketch.rounding + noise(A)


def test_gram_is_the_better_estimate_where_something_was_lost() -> None:
    case = Case("flat", as_it_comes, 1, 250, 60, 25, 1000, "fused")  # one exact shrink: delta is the error
    A, sketch = case.rows(), case.built().sketch()
    x = np.ones(60)
    np.testing.assert_allclose(
        sketch.gram() @ x, sketch.matrix.T @ (sketch.matrix @ x) + sketch.delta / 2 * x, rtol=1e-12
    )
    halved = np.abs(np.linalg.eigvalsh(gram(A) - sketch.gram() @ np.eye(60))).max()
    assert halved < 0.51 * error_range(A, sketch)[1]


@given(queried, st.integers(1, 8))
@examples(30)
def test_components_and_singular_values_are_those_of_the_matrix(case: Case, k: int | None) -> None:
    sketch = case.built().sketch()
    k = min(k, sketch.k_max) or None
    V, singular = sketch.components(k), sketch.singular_values(k)
    np.testing.assert_allclose(V @ V.T, np.eye(len(V)), atol=1e-9)
    np.testing.assert_allclose(singular, np.linalg.svd(sketch.matrix, compute_uv=False)[:k])
    assert np.all(np.diff(singular) <= 0)
    values = truth(case.rows())[: len(singular)]
    slack = sketch.rounding + noise(case.rows())
    assert np.all(singular**2 <= values + slack)
    assert np.all(values <= singular**2 + sketch.delta + slack)
    strongest = np.argmax(np.abs(V), axis=1)
    assert np.all(V[np.arange(len(V)), strongest] >= 0)
    np.testing.assert_allclose(sketch.project(case.rows(), k), case.rows() @ V.T)


WITH_K = [
    (Sketch.components, 6),
    (Sketch.singular_values, 6),
    (Sketch.pca, 7),
    (Sketch.to_table, 6),
    (Sketch.explained, 30),
    (lambda sketch, k: sketch.project(np.ones((2, 30)), k), 6),
    (lambda sketch, k: sketch.drift(one_sketch(2), k), 6),
]
"""Every question with a k, and the largest k that a sketch with 6 rows and 30 columns can answer."""


@pytest.mark.parametrize("ask", [ask for ask, _ in WITH_K])
@pytest.mark.parametrize("k", [0, -1, 2.5, "3"])
def test_a_k_that_is_no_count_is_refused(ask: Any, k: Any) -> None:
    with pytest.raises(ValueError, match=f"k must be a whole number of at least 1, not {k!r}"):
        ask(one_sketch(), k)


@pytest.mark.parametrize(("ask", "most"), WITH_K)
def test_a_k_that_the_sketch_can_not_answer_is_refused_and_not_cut_down(ask: Any, most: int) -> None:
    sketch = one_sketch()
    assert sketch.k_max == 6
    ask(sketch, most)
    ask(sketch, np.int64(most))
    with pytest.raises(ValueError, match=f"k = {most + 1}, but .* at most {most}"):
        ask(sketch, most + 1)


@pytest.mark.parametrize(
    ("X", "reason"),
    [
        (np.ones((1, 5)), "rows of 5 columns, but the sketch has 30"),
        (sp.csr_array(np.ones((1, 5))), "rows of 5 columns, but the sketch has 30"),
        (np.ones((1, 31)), "rows of 31 columns, but the sketch has 30"),
        (np.ones(5), "rows of 5 columns, but the sketch has 30"),
        (np.ones((1, 1, 30)), "Expected 2D array, got 3D array instead"),
        (1.0, "Expected 2D array, got 0D array instead"),
        (np.full((1, 30), np.nan), "NaN or infinite"),
        (sp.csr_array(np.full((1, 30), np.inf)), "NaN or infinite"),
        (np.ones((1, 30)) * 1j, "Complex data not supported"),
        ([["word"] * 30], "rows must be numbers"),
    ],
)
def test_rows_that_do_not_fit_the_sketch_are_refused(X: Any, reason: str) -> None:
    with pytest.raises(ValueError, match=reason):
        one_sketch().project(X, 3)


def test_measures_refuse_rows_of_another_width() -> None:
    for measure in (covariance_error, lambda A, sketch: projection_error(A, sketch, 2)):
        with pytest.raises(ValueError, match="rows of 1 columns, but the sketch has 30"):
            measure(np.ones((3, 1)), one_sketch())


@pytest.mark.parametrize("column", [-1, 30, 1.5, "word"])
def test_a_column_that_does_not_exist_is_refused(column: Any) -> None:
    for pair in ((column, 2), (2, column)):
        with pytest.raises(ValueError, match=re.escape(f"a column must be a whole number in [0, 30), not {column!r}")):
            one_sketch().covariance(*pair)


@pytest.mark.parametrize("top", [0, -1, 1.5])
def test_a_table_of_no_columns_is_refused(top: Any) -> None:
    with pytest.raises(ValueError, match=f"top must be a whole number of at least 1, not {top}"):
        one_sketch().to_table(3, top=top)


def test_what_is_made_of_a_sketch_refuses_what_it_can_not_use() -> None:
    sketch = one_sketch()
    with pytest.raises(ValueError, match=r"ell must be a whole number of at least 1, not 2\.5"):
        sketch.resized(2.5)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match=r"d must be a whole number of at least 1, not 30\.5"):
        sketch.padded(30.5)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="float32 or float64, not int8"):
        sketch.astype("int8")
    for ask in (sketch.merge, lambda other: sketch.drift(other, 2)):
        with pytest.raises(TypeError, match="a sketch is needed, not a int"):
            ask(3)


@given(queried)
@examples(30)
def test_float32_widens_the_bound_by_what_it_changes(case: Case) -> None:
    A, wide = case.rows(), case.built().sketch()
    narrow = wide.astype("float32")
    assert narrow.matrix.dtype == np.float32
    assert obeys_its_bound(A, narrow)
    assert wide.delta <= narrow.delta <= wide.delta + 1e-6 * wide.squared_frobenius
    assert narrow.astype("float64").matrix.dtype == np.float64
    assert wide.astype("float64") == wide


def test_float32_that_underflows_widens_and_that_overflows_is_refused() -> None:
    case = Case("spiked", as_it_comes, 1, 90, 30, 6, 50, "fused")
    A = case.rows()
    tiny = case.built(A * 1e-42).sketch().astype("float32")
    assert obeys_its_bound(A * 1e-42, tiny)
    assert np.linalg.norm(tiny.matrix.astype(float)) > 0
    with pytest.raises(OverflowError, match="float32"):
        case.built(A * 1e60).sketch().astype("float32")


def one_sketch(seed: int = 1) -> Sketch:
    return Case("spiked", as_it_comes, seed, 90, 30, 6, 50, "fused").built().sketch()


def test_equal_means_every_bit_of_every_field() -> None:
    sketch = one_sketch()
    assert sketch == one_sketch()
    assert hash(sketch) == hash(one_sketch())
    nudged = sketch.matrix.copy()
    nudged[2, 3] = np.nextafter(nudged[2, 3], 1)
    assert sketch != replace(sketch, matrix=nudged)
    assert sketch != sketch.astype("float32")
    assert sketch != sketch.padded(31)
    assert sketch != "sketch"
    for name in ("ell", "delta", "rows", "nnz", "squared_frobenius", "weight", "shrinks", "rounding"):
        assert sketch != replace(sketch, **{name: getattr(sketch, name) + 1}), name
    assert pickle.loads(pickle.dumps(sketch)) == sketch  # noqa: S301 - our own bytes


def test_a_sketch_can_not_be_changed() -> None:
    sketch = one_sketch()
    with pytest.raises(FrozenInstanceError):
        sketch.delta = 0.0  # type: ignore[misc]
    for array in (sketch.matrix, sketch.column_sums, pickle.loads(pickle.dumps(sketch)).matrix):  # noqa: S301
        with pytest.raises(ValueError, match="read-only"):
            array[0] = 1.0


def test_repr_is_one_short_line_with_what_matters() -> None:
    text = repr(one_sketch())
    assert len(text) < 120
    assert "\n" not in text
    for part in ("ell=6", "d=30", "rows=90", "delta=", "% of ||A||F^2"):
        assert part in text


QUERIES: dict[str, Callable[[Sketch], Any]] = {
    "singular_values": lambda sketch: sketch.singular_values(),
    "components": lambda sketch: sketch.components(3),
    "project": lambda sketch: sketch.project(np.ones((2, sketch.d), np.float32), 3),
    "explained": lambda sketch: sketch.explained(2),
    "gram": lambda sketch: sketch.gram() @ np.eye(sketch.d, dtype=np.float32),
    "mean": lambda sketch: sketch.mean,
    "covariance": lambda sketch: [sketch.covariance(i, sketch.d - 1 - i) for i in range(sketch.d)],
    "variance": lambda sketch: [sketch.covariance(i, i) for i in range(sketch.d)],
    "pca": lambda sketch: sketch.pca(3),
    "to_table": lambda sketch: sketch.to_table(2)["weight"],
    "drift": lambda sketch: sketch.drift(sketch.merge(sketch.padded(sketch.d)), 1).angles,
    "merge": lambda sketch: sketch.merge(sketch).matrix,
    "merge_all": lambda sketch: Sketch.merge_all([sketch] * 3).delta,
    "resized": lambda sketch: sketch.resized(2).astype("float32").delta,
}


@pytest.mark.parametrize("query", QUERIES)
@pytest.mark.parametrize("shift", [0.0, 1e6, 3e19])
def test_every_query_of_a_float32_sketch_computes_in_float64(query: str, shift: float) -> None:
    """The same matrix, held in float32 and in float64, gives the same bits."""
    case = Case("spiked", as_it_comes, 1, 90, 12, 6, 50, "fused")
    A = sp.csr_array(case.rows().toarray() + shift * np.arange(1, 13))
    narrow = case.built(A).sketch().astype("float32")
    wide = replace(narrow, matrix=narrow.matrix.astype(np.float64))
    ask = QUERIES[query]
    got, expected = ask(narrow), ask(wide)
    for one, other in zip(got, expected, strict=True) if isinstance(got, tuple | list) else [(got, expected)]:
        assert np.asarray(one).dtype == np.float64
        assert np.array_equal(one, other)


def test_constant_rows_in_float32_have_no_covariance() -> None:
    """The case that was found: the variance of a constant was [11261.5, 11261.8]."""
    A = np.full((16, 2), 1000001.5)
    sketch = SparseFrequentDirections(ell=4, dtype="float32").fit(A).sketch()
    for i, j in ((0, 0), (0, 1)):
        interval = sketch.covariance(i, j)
        assert interval.lower <= 0 <= interval.upper


def test_centred_queries_account_for_the_rounding_of_the_column_sums() -> None:
    """A sketch that lost nothing: its matrix is the rows. What is left is the rounding of sums and of the query."""
    for seed in range(20):
        rng = np.random.default_rng(seed)
        A = rng.random((1, 3)) * 1e3 + 1e-6 * rng.standard_normal((30, 3))
        total = float(np.sum(A * A))
        sketch = Sketch(A.copy(), 30, 0.0, 0.0, 30, A.size, total, A.cumsum(axis=0)[-1], 30.0, 0)
        exact = [[Fraction(float(value)) for value in column] for column in A.T]
        centred = [[value - sum(column) / 30 for value in column] for column in exact]
        truth = [[sum(a * b for a, b in zip(one, other, strict=True)) / 29 for one in centred] for other in centred]
        for i, j in ((0, 0), (0, 1), (1, 2), (2, 2)):
            interval = sketch.covariance(i, j)
            assert interval.lower <= truth[i][j] <= interval.upper
        values = np.linalg.eigvalsh(np.array(truth, dtype=np.float64))[::-1]
        pca = sketch.pca(3)
        assert np.all(np.abs(values - pca.explained_variance) <= pca.error)
