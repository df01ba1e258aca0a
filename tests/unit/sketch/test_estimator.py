"""The estimators as scikit-learn sees them: its own checks, pipelines, clones, parameters."""

from __future__ import annotations

import json
import pickle
import subprocess
import sys
import warnings
from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp
from sklearn.base import clone
from sklearn.exceptions import NotFittedError
from sklearn.model_selection import GridSearchCV
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import MaxAbsScaler
from sklearn.utils.estimator_checks import parametrize_with_checks

from sfd_stream import FrequentDirections, SparseFrequentDirections
from sfd_stream.sketch import builder
from tests.unit.sketch.matrices import Case, as_it_comes, obeys_its_bound, spiked

LEFT_OUT = {
    "check_estimators_empty_data_messages": "a batch without rows is legal: a stream may have nothing to say",
}


with warnings.catch_warnings():
    # They do not inherit from scikit-learn's BaseEstimator, as it is not needed at run time.
    warnings.filterwarnings("ignore", "Estimator .* does not inherit", UserWarning)
    scikit_learns_checks = parametrize_with_checks(
        [SparseFrequentDirections(ell=3), SparseFrequentDirections(ell=3, method="paper"), FrequentDirections(ell=3)],
        expected_failed_checks=lambda _: LEFT_OUT,
    )


@scikit_learns_checks
@pytest.mark.filterwarnings("ignore:Estimator .* does not inherit:UserWarning")
def test_scikit_learns_own_checks(estimator: Any, check: Any) -> None:
    check(estimator)


def rows(n: int = 200, d: int = 40) -> Any:
    return sp.csr_array(spiked(np.random.default_rng(0), n, d))


@pytest.mark.parametrize("kind", [SparseFrequentDirections, FrequentDirections])
def test_in_a_pipeline(kind: Any) -> None:
    A = rows()
    pipeline = make_pipeline(MaxAbsScaler(), kind(ell=5))
    reduced = pipeline.fit_transform(A)
    assert reduced.shape == (200, 5 if kind is SparseFrequentDirections else 4)  # the paper's lambda_ell takes one
    np.testing.assert_array_equal(pipeline.transform(A), reduced)
    scaled = MaxAbsScaler().fit_transform(A)
    np.testing.assert_allclose(reduced, scaled @ pipeline[-1].components_.T, atol=1e-12)
    assert list(pipeline.get_feature_names_out()) == [f"{kind.__name__.lower()}{i}" for i in range(reduced.shape[1])]


def test_a_clone_has_the_parameters_and_none_of_the_rows() -> None:
    model = SparseFrequentDirections(ell=7, method="paper", seed=3, half_life_rows=9.0).fit(rows())
    copy = clone(model)
    assert copy.get_params() == model.get_params()
    with pytest.raises(NotFittedError):
        copy.sketch()
    assert copy.fit(rows()).sketch() == model.sketch()


def test_a_grid_search_can_choose_ell() -> None:
    def kept(model: Any, X: Any, _: object = None) -> float:
        return float(np.sum(model.transform(X) ** 2))

    search = GridSearchCV(SparseFrequentDirections(), {"ell": [1, 4]}, scoring=kept, cv=2).fit(rows())
    assert search.best_params_ == {"ell": 4}


def test_parameters_are_stored_as_given_and_set_by_name() -> None:
    model = SparseFrequentDirections(ell=9, seed=4)
    assert model.set_params(ell=3, method="paper") is model
    assert (model.ell, model.method, model.seed) == (3, "paper", 4)
    assert repr(model) == "SparseFrequentDirections(ell=3, method='paper', seed=4)"
    with pytest.raises(ValueError, match="no parameter 'rank'; it has ell, method"):
        model.set_params(rank=3)


def test_fit_forgets_and_partial_fit_goes_on() -> None:
    A = rows()
    model = SparseFrequentDirections(ell=5).fit(A[:90])
    first = model.sketch()
    assert model.partial_fit(A[90:]).sketch() == SparseFrequentDirections(ell=5).fit(A).sketch()
    assert model.n_samples_seen_ == 200
    assert model.fit(A[:90]).sketch() == first
    assert model.fit(rows(30, 7)).n_features_in_ == 7


@pytest.mark.parametrize("rows", [20, 30_000], ids=["all pending", "some shrunk at once"])
def test_what_the_caller_does_to_its_matrix_later_changes_nothing(rows: int) -> None:
    X = sp.random_array((rows, 60), density=0.5, rng=0, format="csr")
    lent, kept = SparseFrequentDirections(ell=5).partial_fit(X), SparseFrequentDirections(ell=5).partial_fit(X.copy())
    assert (lent.sketch().shrinks > 0) == (rows > 20)
    X.data[:], X.indices[:] = 7.0, 0
    more = sp.random_array((20, 60), density=0.5, rng=1, format="csr")
    assert lent.partial_fit(more).sketch() == kept.partial_fit(more).sketch()


@pytest.mark.parametrize("form", ["strided", "unaligned", "other byte order"])
def test_arrays_of_any_make_give_the_same_bits(form: str) -> None:
    X = sp.random_array((30_000, 60), density=0.5, rng=0, format="csr")
    odd, values = X.copy(), X.data
    if form == "strided":
        odd.data, odd.indices = np.repeat(values, 2)[::2], np.repeat(X.indices, 2)[::2]
    elif form == "unaligned":
        odd.data = np.ndarray(len(values), np.float64, bytearray(values.nbytes + 1), 1)
        odd.data[:] = values
    else:
        odd.data = values.astype(">f8")
    assert SparseFrequentDirections(ell=5).fit(odd).sketch() == SparseFrequentDirections(ell=5).fit(X).sketch()


def test_transform_there_and_back_is_the_projection() -> None:
    A = rows()
    model = SparseFrequentDirections(ell=8).fit(A)
    V = model.components_
    np.testing.assert_allclose(V @ V.T, np.eye(8), atol=1e-10)
    np.testing.assert_allclose(model.inverse_transform(model.transform(A)), A @ V.T @ V, atol=1e-10)
    np.testing.assert_allclose(model.transform(A.toarray()), model.transform(A), atol=1e-10)
    np.testing.assert_allclose(model.singular_values_, model.sketch().singular_values())


def test_transforming_many_batches_shrinks_once(monkeypatch: pytest.MonkeyPatch) -> None:
    model = SparseFrequentDirections(ell=5).fit(rows())
    calls = []
    real = builder.SHRINKS["fused"]
    monkeypatch.setitem(builder.SHRINKS, "fused", lambda *args: (calls.append(1), real(*args))[1])
    for _ in range(5):
        model.transform(rows())
    assert len(calls) == 1
    model.partial_fit(rows()).transform(rows())
    assert len(calls) == 2


@pytest.mark.parametrize("kind", [SparseFrequentDirections, FrequentDirections])
def test_a_pickled_model_goes_on_bit_for_bit(kind: Any) -> None:
    A = rows()
    model = kind(ell=5).fit(A[:70])
    copy = pickle.loads(pickle.dumps(model))  # noqa: S301 - our own bytes
    assert copy.partial_fit(A[70:]).sketch() == model.partial_fit(A[70:]).sketch()


def test_float32_is_the_sketchs_dtype_and_not_the_states() -> None:
    A = rows()
    single = SparseFrequentDirections(ell=5, dtype="float32").fit(A)
    double = SparseFrequentDirections(ell=5).fit(A)
    assert single.sketch() == double.sketch().astype("float32")
    assert single.sketch().matrix.dtype == np.float32
    assert single.sketch().delta > double.sketch().delta


def test_frequent_directions_keeps_the_bound_of_liberty() -> None:
    """Shrinking 2 ell rows to ell each time: delta <= ||A||F^2 / ell, with certainty."""
    A = Case("flat", as_it_comes, 1, 300, 60, 12, 60, "dense").rows()
    sketch = FrequentDirections(ell=12).fit(A).sketch()
    assert sketch.failure_probability == 0
    assert sketch.shrinks > 10
    assert sketch.delta <= sketch.squared_frobenius / 12


def test_scikit_learn_is_not_needed_to_run() -> None:
    code = """
import sys
sys.modules["sklearn"] = None
import numpy as np
from sfd_stream import SparseFrequentDirections
model = SparseFrequentDirections(ell=3)
try:
    model.sketch()
except ValueError as error:
    assert "not fitted" in str(error) and isinstance(error, AttributeError)
print(model.fit(np.diag([5.0, 4, 3, 2, 1])).transform(np.eye(5)).shape)
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "(5, 3)"


CHANGES = [
    {"ell": 4},
    {"ell": 30},
    {"failure_probability": 1e-6},
    {"method": "paper", "seed": 9},
    {"buffer_factor": 2.0, "half_life_rows": 60.0},
]


def through_a_state(model: Any) -> Any:
    state = model.get_state()
    plain = {name: value for name, value in state.items() if name != "arrays"}
    return type(model).from_state({**json.loads(json.dumps(plain)), "arrays": state["arrays"]})


@pytest.mark.parametrize("params", CHANGES)
def test_set_params_changes_nothing_before_the_next_rows_even_through_a_state(params: dict[str, Any]) -> None:
    model = SparseFrequentDirections(ell=10, failure_probability=0.01).fit(rows())
    before = model.sketch()
    model.set_params(**params)
    resumed = through_a_state(model)
    assert resumed.get_params() == model.get_params()
    for one in (model, resumed):
        assert one.sketch() == before


@pytest.mark.parametrize("params", CHANGES)
def test_rows_after_set_params_are_sketched_under_the_new_ones_and_the_old_stay_at_stake(
    params: dict[str, Any],
) -> None:
    A = rows()
    model = SparseFrequentDirections(ell=10, failure_probability=0.01).fit(A[:150]).set_params(**params)
    resumed = through_a_state(model)
    for one in (model, resumed):
        sketch = one.partial_fit(A[150:]).sketch()
        assert sketch.ell == params.get("ell", 10)
        assert len(sketch.matrix) <= sketch.ell
        assert sketch.failure_probability == 0.01 + params.get("failure_probability", 0.01)
    assert resumed.sketch() == model.sketch()
    if "half_life_rows" not in params:
        assert obeys_its_bound(A, model.sketch())


def test_a_state_without_its_own_parameters_is_resumed_under_those_of_the_model() -> None:
    """States taken by earlier versions."""
    model = SparseFrequentDirections(ell=10, seed=2).fit(rows())
    state = model.get_state()
    del state["made_with"]
    assert SparseFrequentDirections.from_state(state).sketch() == model.sketch()


def test_parameters_that_make_no_sense_are_refused_and_change_nothing() -> None:
    model = SparseFrequentDirections(ell=10).fit(rows())
    before = model.sketch()
    with pytest.raises(ValueError, match="ell"):
        model.set_params(ell=0).partial_fit(rows())
    assert model.sketch() == before
