"""A merged sketch as a scikit-learn style transformer, for example behind a web service, refreshed while it serves.

A refresh replaces one reference, so that every call of `transform` uses one state for all of its rows.
"""

from __future__ import annotations

from typing import Any, NamedTuple, Protocol, Self

import numpy as np

from sfd_stream.reader.merged import MergedSketch
from sfd_stream.sketch.estimator import NotFittedError, Tunable
from sfd_stream.sketch.features import Features
from sfd_stream.sketch.rows import Float
from sfd_stream.sketch.sketch import Sketch, back, coordinates


class HasMerged(Protocol):
    """A `SnapshotReader`, or any other source of a merged sketch."""

    def merged(self) -> MergedSketch: ...


class _State(NamedTuple):
    components: Float
    mean: Float | None
    values: Float
    features: Features | None
    growing: bool


class SketchTransformer(Tunable):
    """Maps rows to the coordinates of the k strongest directions of `source`: a sketch, or a reader of snapshots.

    With `centre` the directions are the principal components of the centred rows, which needs the column sums. A
    refresh keeps the sign of each direction as near to the last one as possible, so that models trained on the
    coordinates stay valid.

        model = SketchTransformer(reader, k=10).fit()
        for merged in reader.watch():        # in a thread of its own
            model.refresh(merged)

    >>> from sfd_stream import SketchTransformer, SparseFrequentDirections, paper_synthetic
    >>> X = paper_synthetic(1000, 50, 5, seed=0)
    >>> sketch = SparseFrequentDirections(ell=20).fit(X).sketch()
    >>> model = SketchTransformer(sketch, k=3).fit()
    >>> model.transform(X[:2]).shape
    (2, 3)
    """

    def __init__(self, source: Sketch | MergedSketch | HasMerged, k: int = 10, *, centre: bool = False) -> None:
        self.source = source
        self.k = k
        self.centre = centre

    def fit(self, X: object = None, y: object = None) -> Self:  # noqa: ARG002 - scikit-learn's signature
        """Take the directions from the source. X is not used: the sketch contains the rows already.

        >>> model.fit().n_features_in_
        50
        """
        self._state = self._state_of(_sketch_of(self.source))
        return self

    def refresh(self, sketch: Sketch | MergedSketch) -> Self:
        """Use the directions of this newer sketch from the next `transform` on.

        >>> model.refresh(sketch).n_features_in_
        50
        """
        fresh = self._state_of(_sketch_of(sketch))
        last: _State | None = getattr(self, "_state", None)
        self._state = fresh if last is None else _aligned(fresh, last)
        return self

    def transform(self, X: Any) -> Float:
        """Rows (dense, sparse, or mappings from names to values where columns are hashed) in k coordinates.

        Where columns grow, rows may be narrower than the sketch: they are zero in the rest.

        >>> model.fit().transform(X[:2]).shape[0]
        2
        """
        state = self._fitted()
        found = coordinates(X, state.components, state.features, growing=state.growing)
        return found if state.mean is None else found - state.mean @ state.components.T

    def fit_transform(self, X: Any, y: object = None) -> Float:
        """`fit`, then `transform` of X.

        >>> model.fit_transform(X[:2]).shape[0]
        2
        """
        return self.fit(X, y).transform(X)

    def inverse_transform(self, Z: Any) -> Float:
        """Rows of d columns from k coordinates.

        >>> model.inverse_transform(model.transform(X[:2])).shape
        (2, 50)
        """
        state = self._fitted()
        found = back(Z, state.components)
        return found if state.mean is None else found + state.mean

    @property
    def components_(self) -> Float:
        """The directions (k x d)."""
        return self._fitted().components

    @property
    def mean_(self) -> Float | None:
        """The mean of the rows; None without `centre`."""
        return self._fitted().mean

    @property
    def singular_values_(self) -> Float:
        """The singular values of the directions; with `centre` the square roots of the explained variances."""
        return self._fitted().values

    @property
    def n_features_in_(self) -> int:
        """The number of the sketch's columns."""
        return int(self._fitted().components.shape[1])

    def get_feature_names_out(self, input_features: object = None) -> Any:  # noqa: ARG002 - scikit-learn's signature
        """A name for each column of the result of `transform`.

        >>> model.get_feature_names_out().tolist()[:2]
        ['sketch0', 'sketch1']
        """
        return np.array([f"sketch{i}" for i in range(len(self._fitted().components))], dtype=object)

    def __sklearn_is_fitted__(self) -> bool:
        return hasattr(self, "_state")

    def __repr__(self) -> str:
        return f"SketchTransformer({self.source!r}, k={self.k}, centre={self.centre})"

    def _fitted(self) -> _State:
        if not hasattr(self, "_state"):
            raise NotFittedError("this SketchTransformer has no directions yet: call fit or refresh first")
        return self._state

    def _state_of(self, sketch: Sketch | MergedSketch) -> _State:
        growing = isinstance(sketch, MergedSketch) and sketch.columns == "growing"
        if not self.centre:
            return _State(sketch.components(self.k), None, sketch.singular_values(self.k), sketch.features, growing)
        found = sketch.pca(self.k)
        return _State(found.components, found.mean, np.sqrt(found.explained_variance), sketch.features, growing)


def _sketch_of(given: Sketch | MergedSketch | HasMerged) -> Sketch | MergedSketch:
    if isinstance(given, Sketch):
        return given
    if not hasattr(given, "merged"):
        hint = ": call its sketch()" if hasattr(given, "sketch") else ""
        raise TypeError(f"a sketch or a SnapshotReader is needed, not a {type(given).__name__}{hint}")
    return given.merged()


def _aligned(fresh: _State, last: _State) -> _State:
    """Rotates each new direction towards the last one at the same position."""
    k, d = min(len(fresh.components), len(last.components)), min(fresh.components.shape[1], last.components.shape[1])
    signs = np.ones(len(fresh.components))
    signs[:k] = np.where(np.sum(fresh.components[:k, :d] * last.components[:k, :d], axis=1) < 0, -1.0, 1.0)
    return fresh._replace(components=fresh.components * signs[:, None])
