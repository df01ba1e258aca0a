"""What was read, as a scikit-learn style transformer: behind a web service, refreshed while it serves.

A refresh swaps one reference, so that every `transform` uses one state from its first row to its last.
"""

from __future__ import annotations

from typing import Any, NamedTuple, Protocol, Self

import numpy as np

from sfd_stream.reader.merged import MergedSketch
from sfd_stream.sketch.estimator import NotFittedError
from sfd_stream.sketch.features import Features
from sfd_stream.sketch.rows import Float
from sfd_stream.sketch.sketch import Sketch, back, coordinates


class HasMerged(Protocol):
    """A `SnapshotReader`, or whatever else can give a merged sketch."""

    def merged(self) -> MergedSketch: ...


class _State(NamedTuple):
    components: Float
    mean: Float | None
    values: Float
    features: Features | None
    growing: bool


class SketchTransformer:
    """Rows to the coordinates of the k strongest directions of `source`: a sketch, or a reader of snapshots.

    `centre` takes the principal components of the centred rows, which needs the column sums; without it the
    directions are those of the rows as they are. A refresh keeps each direction's sign as near to the last one's as
    it can be, so that what was learned on the coordinates does not flip.

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

    def get_params(self, deep: bool = True) -> dict[str, Any]:  # noqa: ARG002 - scikit-learn's signature
        """The constructor's parameters by name.

        >>> model.get_params()["k"]
        3
        """
        return {"source": self.source, "k": self.k, "centre": self.centre}

    def set_params(self, **params: Any) -> Self:
        """Change parameters; they apply from the next `fit` or `refresh` on.

        >>> model.set_params(k=2).fit().transform(X[:2]).shape
        (2, 2)
        """
        for name, value in params.items():
            if name not in self.get_params():
                raise ValueError(f"SketchTransformer has no parameter {name!r}; it has {', '.join(self.get_params())}")
            setattr(self, name, value)
        return self

    def fit(self, X: object = None, y: object = None) -> Self:  # noqa: ARG002 - scikit-learn's signature
        """Take the directions from the source. X is not used: the sketch is of the rows already.

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
        """The rows that k coordinates stand for.

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
        """Of the directions; with `centre` the square roots of the explained variances."""
        return self._fitted().values

    @property
    def n_features_in_(self) -> int:
        """The number of the sketch's columns."""
        return int(self._fitted().components.shape[1])

    def get_feature_names_out(self, input_features: object = None) -> Any:  # noqa: ARG002 - scikit-learn's signature
        """A name for each column of what `transform` returns.

        >>> model.get_feature_names_out().tolist()[:2]
        ['sketch0', 'sketch1']
        """
        return np.array([f"sketch{i}" for i in range(len(self._fitted().components))], dtype=object)

    def __sklearn_is_fitted__(self) -> bool:
        return hasattr(self, "_state")

    def __sklearn_tags__(self) -> Any:
        from sklearn.utils import InputTags, Tags, TargetTags, TransformerTags  # noqa: PLC0415 - only it asks

        return Tags(
            estimator_type=None,
            target_tags=TargetTags(required=False),
            transformer_tags=TransformerTags(),
            input_tags=InputTags(sparse=True),
            requires_fit=True,
        )

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
    """Each direction turned towards the last one of its place."""
    k, d = min(len(fresh.components), len(last.components)), min(fresh.components.shape[1], last.components.shape[1])
    signs = np.ones(len(fresh.components))
    signs[:k] = np.where(np.sum(fresh.components[:k, :d] * last.components[:k, :d], axis=1) < 0, -1.0, 1.0)
    return fresh._replace(components=fresh.components * signs[:, None])
