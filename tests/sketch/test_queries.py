"""What a sketch says of its rows contains the truth. And it is a value: frozen, comparable, short to print."""

from __future__ import annotations

import pickle
from dataclasses import FrozenInstanceError, replace
from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp
from hypothesis import given
from hypothesis import strategies as st

from sfd_stream import Sketch
from tests.sketch.matrices import Case, as_it_comes, cases, error_range, examples, gram, noise, obeys_its_bound

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
    pca = sketch.pca(k)
    values = np.linalg.eigvalsh(covariance(A))[::-1][: len(pca.explained_variance)]
    assert len(pca.explained_variance) == min(k, len(sketch.matrix) + 1, case.d)
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
def test_components_and_singular_values_are_those_of_the_matrix(case: Case, k: int) -> None:
    sketch = case.built().sketch()
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


@pytest.mark.parametrize("ask", [Sketch.components, Sketch.singular_values, Sketch.explained, Sketch.pca])
def test_a_k_below_one_is_refused(ask: Any) -> None:
    with pytest.raises(ValueError, match="k must be at least 1"):
        ask(one_sketch(), 0)


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
