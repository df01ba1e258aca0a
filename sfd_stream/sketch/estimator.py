"""The sketch as a scikit-learn estimator: `partial_fit`, `transform`, `sketch()`. scikit-learn is not required."""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from dataclasses import asdict, replace
from functools import cached_property
from math import inf
from typing import Any, Self

import numpy as np
import scipy.sparse as sp

from sfd_stream.sketch.buffer import joined
from sfd_stream.sketch.builder import BUFFER_FACTOR, SHRINKS, Parameters, SketchBuilder
from sfd_stream.sketch.features import Features, are_mappings, listed
from sfd_stream.sketch.rows import Float, RowBlock, matrix_of, whole
from sfd_stream.sketch.sketch import Sketch, back


class NotFittedError(ValueError, AttributeError):
    """Raised when a result is requested before any rows were given. It has both bases of scikit-learn's own.

    >>> from sfd_stream import SparseFrequentDirections
    >>> try:
    ...     SparseFrequentDirections(ell=4).sketch()
    ... except ValueError:  # NotFittedError is one, and so is scikit-learn's own, raised where that is in use
    ...     print("give it rows first: partial_fit or fit")
    give it rows first: partial_fit or fit
    """


class _Current:
    """The current sketch of a builder, computed on first use and kept: `transform` must not shrink at every call."""

    def __init__(self, builder: SketchBuilder, dtype: str, features: Features | None) -> None:
        self._builder, self._dtype, self._features = builder, dtype, features

    @cached_property
    def sketch(self) -> Sketch:
        found = self._builder.sketch().astype(self._dtype)
        return found if self._features is None else replace(found, features=self._features.known())

    @cached_property
    def components(self) -> Float:
        return self.sketch.components()


class Tunable:
    """What scikit-learn asks of every transformer: its parameters by name, and what rows it takes."""

    def get_params(self, deep: bool = True) -> dict[str, Any]:  # noqa: ARG002 - scikit-learn's signature
        """The constructor's parameters by name.

        >>> type(model)(**model.get_params()).get_params() == model.get_params()
        True
        """
        return {name: getattr(self, name) for name in self._names()}

    def set_params(self, **params: Any) -> Self:
        """Change parameters. They apply to future rows, or from the next `fit` or `refresh` on.

        >>> model.set_params(**model.get_params()) is model
        True
        """
        for name, value in params.items():
            if name not in self._names():
                raise ValueError(f"{type(self).__name__} has no parameter {name!r}; it has {', '.join(self._names())}")
            setattr(self, name, value)
        return self

    @classmethod
    def _names(cls) -> list[str]:
        return [name for name in inspect.signature(cls).parameters if name != "self"]

    def __sklearn_tags__(self) -> Any:
        from sklearn.utils import InputTags, Tags, TargetTags, TransformerTags  # noqa: PLC0415 - only it asks

        return Tags(
            estimator_type=None,
            target_tags=TargetTags(required=False),
            transformer_tags=TransformerTags(),
            input_tags=InputTags(sparse=True),
        )


class _Estimator(Tunable):
    """The base of both estimators. Constructors only store; the state is created with the first rows."""

    ell: int
    features: Features | None
    n_features_in_: int
    _builder: SketchBuilder
    _current: _Current
    _given: Features | None  # as it was at the first rows
    _taught: Features | None  # the same, with the names learned since then

    def __repr__(self) -> str:
        defaults = {name: p.default for name, p in inspect.signature(type(self)).parameters.items()}
        given = ", ".join(f"{name}={value!r}" for name, value in self.get_params().items() if value != defaults[name])
        return f"{type(self).__name__}({given})"

    def __sklearn_is_fitted__(self) -> bool:
        return hasattr(self, "_current")

    def fit(self, X: Any, y: object = None) -> Self:  # noqa: ARG002 - scikit-learn's signature
        """Discard all earlier rows, then add the rows of X.

        >>> model.fit(X).n_samples_seen_
        1000
        """
        for name in ("_builder", "_current", "_given", "_taught", "n_features_in_"):
            self.__dict__.pop(name, None)
        return self.partial_fit(X)

    def partial_fit(self, X: Any, y: object = None) -> Self:  # noqa: ARG002 - scikit-learn's signature
        """Add the rows of X: sparse or dense, any number of them. The result does not depend on how they are split.

        With `features`, X may be a list of mappings from names to values. Parameters changed since the last rows apply
        to these rows. The failure probability of the old ones is added to that of the new ones.

        >>> model.fit(X[:500]).partial_fit(X[500:]).n_samples_seen_
        1000
        """
        block, taught = self._block(X, copy=False)
        parameters = self._parameters(block.d)
        if hasattr(self, "_builder"):
            self._builder.change(parameters)
        else:
            self._builder = SketchBuilder(parameters)
            self.n_features_in_ = block.d
        self._builder.absorb(block, lent=True)
        self._given, self._taught = self.features, taught
        self._current = _Current(self._builder, getattr(self, "dtype", "float64"), taught)
        return self

    def sketch(self) -> Sketch:
        """The sketch of all rows so far. The state does not change.

        >>> model.fit(X).sketch().rows
        1000
        """
        return self._fitted().sketch

    def get_state(self) -> dict[str, Any]:
        """All that is needed to resume bit for bit, as plain numbers, strings and arrays, for `from_state`.

        It contains `features` as an object, if set, with the names learned so far.

        >>> sorted(model.get_state())
        ['arrays', 'd', 'made_with', 'numbers', 'params']
        """
        self._fitted()
        numbers, arrays, pending = self._builder.state()
        rows = joined(pending, self._builder.d)
        buffered = {"indptr": rows.indptr, "indices": rows.indices, "values": rows.values}
        return {
            "params": self.get_params() | {"features": self._taught},
            "made_with": asdict(self._builder.parameters),  # `params` may have been set since
            "d": rows.d,
            "numbers": numbers,
            "arrays": {**arrays, **buffered},
        }

    @classmethod
    def from_state(cls, state: Mapping[str, Any]) -> Self:
        """Continue from the result of `get_state`, with the same bits on the same machine and number of BLAS threads.

        >>> type(model).from_state(model.get_state()).sketch() == model.sketch()
        True
        """
        model, arrays = cls(**state["params"]), state["arrays"]
        pending = RowBlock.from_arrays(arrays["indptr"], arrays["indices"], arrays["values"], state["d"])
        made_with = state.get("made_with")  # states of earlier versions lack it
        parameters = Parameters(**made_with) if made_with else model._parameters(state["d"])
        model._builder = SketchBuilder.resume(parameters, state["numbers"], arrays, (pending,) if pending.rows else ())
        model.n_features_in_ = pending.d
        model._given = model._taught = model.features
        model._current = _Current(model._builder, getattr(model, "dtype", "float64"), model.features)
        return model

    @property
    def components_(self) -> Float:
        """The sketch's directions (at most ell x d), strongest first."""
        return self._fitted().components

    @property
    def singular_values_(self) -> Float:
        """The singular values of the sketch's matrix, the largest first."""
        return self.sketch().singular_values()

    @property
    def n_samples_seen_(self) -> int:
        """The number of rows so far."""
        self._fitted()
        return self._builder.rows

    def transform(self, X: Any) -> Float:
        """Rows of X in the coordinates of the sketch's directions (uncentred).

        >>> model.fit(X).transform(X[:3]).shape[0]
        3
        """
        components = self._fitted().components
        return np.asarray(self._block(X)[0].csr() @ components.T)

    def fit_transform(self, X: Any, y: object = None) -> Float:  # noqa: ARG002 - scikit-learn's signature
        """`fit`, then `transform` of the same rows.

        >>> model.fit_transform(X).shape[0]
        1000
        """
        return self.fit(X).transform(X)

    def inverse_transform(self, X: Any) -> Float:
        """Rows of d columns from coordinates.

        >>> model.inverse_transform(model.transform(X[:3])).shape
        (3, 200)
        """
        return back(X, self.components_)

    def get_feature_names_out(self, input_features: object = None) -> Any:  # noqa: ARG002 - scikit-learn's signature
        """A name for each column of the result of `transform`.

        >>> len(model.get_feature_names_out()) == len(model.components_)
        True
        """
        prefix = type(self).__name__.lower()
        return np.array([f"{prefix}{i}" for i in range(len(self.components_))], dtype=object)

    def _fitted(self) -> _Current:
        if not hasattr(self, "_current"):
            name = type(self).__name__
            raise _not_fitted(f"This {name} instance is not fitted yet: call partial_fit or fit with some rows first")
        return self._current

    def _block(self, X: Any, *, copy: bool = True) -> tuple[RowBlock, Features | None]:
        """The rows of X, and the features with the names learned from them."""
        features: Features | None = getattr(self, "_taught", self.features)
        if getattr(self, "_given", self.features) is not self.features:
            raise ValueError("features can't be changed after the first rows: call fit to begin again")
        if features is not None and not hasattr(features, "block_of"):
            raise ValueError(f"features must be HashedColumns(d) or None, not {features!r}")
        X = listed(X)
        if not are_mappings(X, features):
            return RowBlock.from_csr(self._matrix(X), copy=copy), features
        if features is None:
            name = type(self).__name__
            raise ValueError(f"rows given as mappings need hashed columns: {name}(..., features=HashedColumns(d))")
        return features.block_of(X)

    def _matrix(self, X: Any) -> Any:
        """X as CSR with the right number of columns; a `ValueError` names the fault."""
        matrix = matrix_of(X)
        expected = getattr(self, "n_features_in_", matrix.shape[1] if self.features is None else self.features.d)
        if matrix.shape[1] != expected:
            name = type(self).__name__
            hint = "" if self.features is None else "; rows with names are mappings, as of df.to_dict('records')"
            raise ValueError(
                f"X has {matrix.shape[1]} features, but {name} is expecting {expected} features as input{hint}"
            )
        if matrix.shape[1] == 0:
            raise ValueError(f"0 feature(s) (shape={matrix.shape}) while a minimum of 1 is required.")
        return sp.csr_array(matrix)

    def _parameters(self, d: int) -> Parameters:
        """The parameters for rows of d columns. ValueError names the one that is wrong."""
        raise NotImplementedError


class SparseFrequentDirections(_Estimator):
    """A certified low-rank sketch of sparse rows (Ghashami, Liberty, Phillips 2016).

    Cost: time O(nnz * ell) and memory O(ell * d), whatever the number of rows. Guarantee, with
    probability 1 - `failure_probability` and for all times at once: 0 <= A'A - B'B <= delta*I with the delta of
    `sketch()`, and the paper's theorem (docs/guarantees.md has its one exception). Rows must not depend on the seed.

    Parameters
    ----------
    ell : rows of the sketch.
    method : "fused" (one warm verified shrink; the default), "paper" (its Algorithms 1 to 6, unchanged) or
        "sparse-shrink" (without verification, as in the paper's experiments; its delta is the trace bound).
    failure_probability : of the certificate, over the whole stream.
    seed : of all randomness.
    dtype : of the sketch's matrix, "float64" or "float32"; the rounding's effect is added to delta.
    buffer_factor : rows are shrunk when non-zeros + rows reach buffer_factor * ell * d (and at least 2^19).
    half_life_rows : a row this many rows old counts half; None: nothing is forgotten.
    features : HashedColumns(d) to accept rows as mappings from names to values; None: rows of numbers.
    column_squares : also sum up the squares of each column: `sketch().deviations`, z-scores of causes.

    >>> import scipy.sparse
    >>> from sfd_stream import SparseFrequentDirections
    >>> X = scipy.sparse.random_array((1000, 200), density=0.05, rng=0, format="csr")
    >>> model = SparseFrequentDirections(ell=20).fit(X)
    >>> model.sketch().matrix.shape
    (20, 200)
    """

    def __init__(
        self,
        ell: int = 50,
        *,
        method: str = "fused",
        failure_probability: float = 0.01,
        seed: int = 0,
        dtype: str = "float64",
        buffer_factor: float = BUFFER_FACTOR,
        half_life_rows: float | None = None,
        features: Features | None = None,
        column_squares: bool = False,
    ) -> None:
        self.ell = ell
        self.method = method
        self.failure_probability = failure_probability
        self.seed = seed
        self.dtype = dtype
        self.buffer_factor = buffer_factor
        self.half_life_rows = half_life_rows
        self.features = features
        self.column_squares = column_squares

    def _parameters(self, d: int) -> Parameters:
        ell = whole("ell", self.ell, 1)
        methods = [name for name in SHRINKS if name != "dense"]
        if self.method not in methods:
            raise ValueError(f"method must be one of {', '.join(methods)}, not {self.method!r}")
        if not 0 < self.failure_probability < 1:
            raise ValueError(f"failure_probability must be between 0 and 1, not {self.failure_probability}")
        seed = whole("seed", self.seed, 0)
        if not 0 < self.buffer_factor < inf:
            raise ValueError(f"buffer_factor must be above 0 and finite, not {self.buffer_factor}")
        if self.dtype not in ("float64", "float32"):
            raise ValueError(f"dtype must be float64 or float32, not {self.dtype!r}")
        if self.half_life_rows is not None and not self.half_life_rows > 0:
            raise ValueError(f"half_life_rows must be above 0, not {self.half_life_rows}")
        return Parameters(
            d=d,
            ell=ell,
            method=self.method,
            failure_probability=self.failure_probability,
            seed=seed,
            buffer_factor=self.buffer_factor,
            half_life_rows=self.half_life_rows,
            column_squares=bool(self.column_squares),
        )


class FrequentDirections(_Estimator):
    """The dense baseline (Liberty 2013): DenseShrink by a full SVD whenever there are 2*ell rows.

    Cost: O(n d ell) whatever the sparsity. Its delta, the sum of all lambda_ell^2, holds with certainty.

    >>> from sfd_stream import FrequentDirections, paper_synthetic
    >>> X = paper_synthetic(1000, 200, 5, seed=0)
    >>> model = FrequentDirections(ell=20).fit(X)
    >>> model.sketch().failure_probability
    0.0
    """

    def __init__(self, ell: int = 50, *, features: Features | None = None) -> None:
        self.ell = ell
        self.features = features

    def _parameters(self, d: int) -> Parameters:
        return Parameters(d=d, ell=whole("ell", self.ell, 1), method="dense")


def _not_fitted(message: str) -> Exception:
    """The error: scikit-learn's own NotFittedError if scikit-learn is imported, because its tools expect that one."""
    import sys  # noqa: PLC0415

    module = sys.modules.get("sklearn.exceptions")
    return module.NotFittedError(message) if module else NotFittedError(message)
