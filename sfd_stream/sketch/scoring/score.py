"""What one row means against a sketch: how much of it lies outside the k strongest directions, how far it lies inside.

Coordinates and residuals are functions of the row and of the published directions. What compares a row with the rows
of the sketch is an interval that contains the truth; docs/guarantees.md ("Scores") has the proofs.
"""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from sfd_stream.sketch.basis import Eigen, Projection, centred_eigen, checked, eigen, energy_inside, skew_of
from sfd_stream.sketch.features import Features, are_mappings
from sfd_stream.sketch.intervals import Interval, Intervals, interval
from sfd_stream.sketch.rows import Float, RowBlock, whole
from sfd_stream.sketch.scoring.causes import Explanation, Named, Spread, explained
from sfd_stream.sketch.scoring.histogram import ScoreHistogram
from sfd_stream.sketch.sketch import Sketch, check_k, check_width, energy_error, given_rows, query_error, signed_by_name
from sfd_stream.sketch.verify import EPS

WEAK = 4.0
"""A direction is weak where its eigenvalue is below this many times delta: the rows' own one may be a quarter more."""


@dataclass(frozen=True, eq=False)
class Scores:
    """What `Scorer.score` found, one entry for each row.

    >>> from sfd_stream import SparseFrequentDirections, paper_synthetic
    >>> X = paper_synthetic(500, 50, 5, seed=0)
    >>> scores = SparseFrequentDirections(ell=20).fit(X).sketch().scorer(k=3).score(X)
    >>> scores.coordinates.shape, scores.residual.shape, scores.t2.estimate.shape
    ((500, 3), (500,), (500,))
    """

    coordinates: Float
    """V z: the row in the coordinates of the k directions."""
    residual: Float
    """||z - V'Vz||^2, the energy outside the k directions. Process monitoring calls it Q or SPE."""
    residual_share: Float
    """The residual as a share of the row's own energy ||z||^2; 0 for a row without any."""
    residual_over_mean: Intervals
    """The residual over the mean residual of all rows of the sketch."""
    t2: Intervals
    """Hotelling's T^2: the squared distance from the mean along the k directions, in units of the rows' spread. Its
    mean over the rows of the sketch is k."""
    p_value: Float | None = None
    """The share of earlier rows at least as extreme, where a `ScoreHistogram` was given: calibrated, not certified."""


EIGENVALUE_MIN = 2.0**-1000
"""Below it quotients overflow: values whose squares underflow can't be scored."""


class Slack(NamedTuple):
    """-below*I <= S - N <= above*I for the rows' own matrix S and the sketch's N, rounding of N's directions included.

    N is B'B, or B'B - w mean mean' around the mean.
    """

    below: float
    above: float


@dataclass(frozen=True, eq=False)
class Scorer:
    """A basis prepared once for many rows: what `Sketch.scorer` returns.

    Score rows before the sketch counts them: a row that is already in it looks ordinary to it. The examples of the
    methods continue this one:

    >>> from sfd_stream import HashedColumns, SparseFrequentDirections
    >>> days = [{"sun": 2, "sea": 1}] * 6 + [{"moon": 2, "star": 1}] * 3
    >>> sketch = SparseFrequentDirections(ell=4, features=HashedColumns(1024)).fit(days).sketch()
    >>> scorer = sketch.scorer()
    >>> scorer
    Scorer(k=1, centred, of 9 rows)
    """

    eigenvalues: Float
    """The eigenvalue of the sketch along each direction."""
    components: Float
    """The k directions (k x d, orthonormal rows): those of `Sketch.pca`, or `Sketch.components` if not centred."""
    mean: Float | None
    """The rows' mean, from which distances are measured; None: from zero."""
    mean_residual: Interval
    """The mean residual over all rows of the sketch."""
    weak: npt.NDArray[np.bool_]
    """Directions whose eigenvalue is below 4 delta: their part of T^2 is not known well."""
    rows: int
    weight: float
    failure_probability: float
    """The failure probability of all intervals together: that of the sketch."""
    slack: Slack
    basis: Eigen
    """All directions of the sketch, for `leverage`."""
    features: Features | None = None
    growing: bool = False
    spread: Spread | None = None
    """The standard deviation of each column; None if the sketch has no sums of squares."""

    def __repr__(self) -> str:
        around = "not centred" if self.mean is None else "centred"
        weak = f" ({self.weak.sum()} weak)" if self.weak.any() else ""
        return f"Scorer(k={self.k}{weak}, {around}, of {self.rows:,} rows)"

    @property
    def k(self) -> int:
        """The number of directions."""
        return len(self.components)

    def score(self, X: Any, histogram: ScoreHistogram | None = None) -> Scores:
        """Scores of the rows of X: sparse, dense, one row of one dimension, or a list of mappings from names to values.

        ValueError, with the row's number, if a value is NaN or infinite. With a histogram of earlier rows of this basis
        there are p-values, too; count the rows afterwards by `histogram.plus(scores)`.

        >>> scores = scorer.score([{"sun": 2, "sea": 1}, {"sun": 2, "rain": 9}])
        >>> scores.residual.round(1).tolist(), scores.residual_share.round(2).tolist()
        ([0.0, 81.9], [0.0, 0.99])
        """
        y, inside, outside, error, outside_error = self._projection(self._given(X))
        scores = Scores(
            coordinates=y,
            residual=outside,
            residual_share=_over(outside, inside + outside, nothing=0.0),
            residual_over_mean=_over_mean(outside, outside_error, self.mean_residual),
            t2=self._t2(y, error),
        )
        return scores if histogram is None else replace(scores, p_value=histogram.p_value(scores))

    def explain(self, x: Any, top: int = 5, *, names: Mapping[int, str] | None = None) -> Explanation:
        """The columns behind the scores of one row, the strongest first, with actual and expected values.

        x is one row in any form that `score` takes, or one mapping. It takes time in proportion to k*d: explain the
        rows that are reported, not all. `names` are names of hashed columns that the sketch may not know.

        >>> [(cause.name, cause.actual) for cause in scorer.explain({"sun": 2, "sea": 1, "rain": 9}, top=1).residual]
        [('rain', 9.0)]
        """
        if isinstance(x, Mapping) and not hasattr(x, "shape"):  # scipy's dictionary of keys is a matrix
            x = [x]
        given = self._given(x)
        rows = given.csr().toarray() if isinstance(given, RowBlock) else given
        if len(rows) != 1:
            raise ValueError(f"explain takes one row, not {len(rows)}")
        row = np.pad(rows[0], (0, max(self._d - rows.shape[1], 0)))
        mean = np.zeros(self._d) if self.mean is None else self.mean
        scale = self.eigenvalues + self.slack.above / 2
        named = self._names_with(x, names or {})
        return explained(row, mean, self.components, scale, whole("top", top, 1), named, self.spread)

    def leverage(self, X: Any, lam: float, *, counted: float = 0.0) -> Intervals:
        """Ridge leverage z'(S + lam I)^-1 z with S = A'A, centred if the scorer is: for experts.

        It certifies, with lam of a few delta, how much a row weighs beside all others; to find anomalies, use `score`.
        `counted` is the weight with which each row is already among the rows of the sketch (1 without a half-life):
        then the leverage is the one that the row had without itself.

        >>> lower, estimate, upper = scorer.leverage([{"sun": 2, "sea": 1}], lam=1.0)
        >>> bool(lower[0] <= estimate[0] <= upper[0])
        True
        """
        if not 0 < lam < np.inf:
            raise ValueError(f"lam must be above 0 and finite, not {lam}")
        if not 0 <= counted < max(self.weight, 1.0):
            raise ValueError(f"counted must be at least 0 and below the weight of all rows, {self.weight:g}")
        y, inside, outside, error, outside_error = self._whole_projection(self._given(X))
        values, (below, above) = self.basis.values, self.slack
        most = (inside + outside + outside_error) / lam
        lower = _inverse(y**2, outside - outside_error, -error, values + above + lam, above + lam)
        upper = most
        if min(float(values[-1]), 0.0) + lam > below:
            upper = np.minimum(_inverse(y**2, outside + outside_error, error, values - below + lam, lam - below), most)
        middle = _inverse(y**2, outside, 0 * error, values + above / 2 + lam, above / 2 + lam)
        return Intervals(*(self._without_itself(each, counted) for each in _between(lower, middle, upper)))

    @cached_property
    def _projection(self) -> Projection:
        return Projection(self.components, self.mean)

    @cached_property
    def _whole_projection(self) -> Projection:
        return Projection(self.basis.directions, self.mean)

    @property
    def _d(self) -> int:
        return int(self.components.shape[1])

    def _given(self, X: Any) -> Any:
        """Rows as a block, or as an array where they are dense. A block was checked where it was made."""
        matrix = X if isinstance(X, RowBlock) else given_rows(X, self.features)[0]
        if not self.growing:
            check_width(matrix, self._d)
        rows = matrix if isinstance(matrix, RowBlock) else checked(matrix)
        if isinstance(rows, np.ndarray) and rows.shape[1] < self._d:
            return np.pad(rows, ((0, 0), (0, self._d - rows.shape[1])))
        return rows

    def _names_with(self, row: Any, names: Mapping[int, str]) -> Named:
        """A column's name, or its number where none is known, and the sign that its values have there.

        A row of names brings its own: a name that the sketch has never seen is often the cause.
        """
        features = self.features
        if features is None:
            return lambda column: (str(column), 1.0)
        if are_mappings(row, features):
            names = {**names, **{features.column_of(name)[0]: str(name) for name in row[0]}}

        def named(column: int) -> tuple[str, float]:
            name = names.get(column, features.names.get(column))
            if name is None:
                return str(column), 1.0
            hashed_to, sign = features.column_of(name)
            return name, sign if hashed_to == column else 1.0  # a name that was cut has another hash

        return named

    def _t2(self, y: Float, error: Float) -> Intervals:
        """Sums of y^2 over the least, the middle and the most that the rows' own eigenvalues can be."""
        (below, above), theta = self.slack, self.eigenvalues
        known = theta[-1] > below
        scales = np.stack([theta + above, theta + above / 2, theta - below if known else np.full(self.k, np.inf)])
        sums = (y * y) @ (1 / scales).T
        relative = 2 * EPS * weight_terms(self.rows, self.weight)
        lower = _widened(sums[:, 0], -error, scales[0]) * (self.weight * (1 - relative))
        upper = np.full(len(y), np.inf)
        if known:
            upper = _widened(sums[:, 2], error, scales[2]) * (self.weight * (1 + relative))
        return _between(lower, self.weight * sums[:, 1], upper)

    def _without_itself(self, leverage: Float, counted: float) -> Float:
        """The leverage that each row had before it was counted: increasing in the one that it has now."""
        w = self.weight
        factor, share = (1.0, counted) if self.mean is None else ((w / (w - counted)) ** 2, w * counted / (w - counted))
        return np.where(share * leverage < 1, factor * leverage / np.maximum(1 - share * leverage, EPS), np.inf)


def _between(lower: Float, estimate: Float, upper: Float) -> Intervals:
    """The interval with its estimate inside; rounding may have brought it out."""
    return Intervals(lower, np.minimum(np.maximum(estimate, lower), upper), upper)


def _inverse(squares: Float, outside: Float, error: Float, along: Float, elsewhere: float) -> Float:
    """The sum of y^2/along and of outside/elsewhere, with each coordinate y off by `error`."""
    return np.asarray(_widened(squares @ (1 / along), error, along) + np.maximum(outside, 0.0) / elsewhere)


def _widened(sums: Float, error: Float, scales: Float) -> Float:
    """The most that a sum of y^2/scales can be if each y is off by `error`; the least, if that is negative."""
    relative = np.sign(error) * EPS * 4 * (len(scales) + 8)
    return np.asarray(np.maximum(np.sqrt(sums) + error * np.sqrt(np.sum(1 / scales)), 0.0) ** 2 * (1 + relative))


def _over(values: Float, by: Any, *, nothing: float) -> Float:
    """The quotient, with 0/0 = `nothing`, and infinity where only `by` is zero."""
    if np.ndim(by) == 0 and by > 0:
        return np.asarray(values / by)
    by = np.broadcast_to(np.asarray(by, np.float64), values.shape)
    return np.asarray(np.divide(values, by, out=np.where(values > 0, np.inf, nothing), where=by > 0))


def _over_mean(residual: Float, error: Float, mean: Interval) -> Intervals:
    lower = _over(np.maximum(residual - error, 0.0), mean.upper, nothing=0.0)
    upper = _over(residual + error, mean.lower, nothing=np.inf)
    return _between(lower, _over(residual, mean.estimate, nothing=0.0), upper)


def scorer_of(sketch: Sketch, k: int | None, *, centred: bool, growing: bool) -> Scorer:
    """The scorer of a sketch; `Sketch.scorer` has the documentation."""
    mean = sketch.mean if centred else None
    B = np.asarray(sketch.matrix, np.float64)
    basis = eigen(B) if mean is None else centred_eigen(B, mean, sketch.weight)
    rounding = query_error(sketch, centred=centred)
    k = _chosen_k(k, sketch.ell, int(np.count_nonzero(basis.values > max(rounding, EIGENVALUE_MIN))))
    V = signed_by_name(basis.directions[:k], sketch.features)
    skew = skew_of(basis.directions)
    return Scorer(
        eigenvalues=basis.values[:k],
        components=V,
        mean=mean,
        mean_residual=_mean_residual(sketch, V, mean, rounding),
        weak=basis.values[:k] < WEAK * sketch.delta,
        rows=sketch.rows,
        weight=sketch.weight,
        failure_probability=sketch.failure_probability,
        slack=Slack(sketch.rounding * (1 + skew) + rounding, sketch.delta * (1 + skew) + rounding),
        basis=basis,
        features=sketch.features,
        growing=growing,
        spread=_spread_of(sketch),
    )


def _spread_of(sketch: Sketch) -> Spread | None:
    if sketch.column_sums is None or sketch.column_squares is None:
        return None
    return Spread(sketch.mean, sketch.deviations)


def _chosen_k(k: int | None, ell: int, most: int) -> int:
    """The k asked for, or ell/4 where the sketch has as many directions."""
    if most == 0:
        raise ValueError("a scorer needs a direction, and this sketch has none: no rows, equal rows, or tiny values")
    if k is None:
        return min(max(ell // 4, 1), most)
    k = check_k(k, most, f"this sketch has {most} directions to score rows by")
    if 2 * k > ell:
        message = f"k = {k} is above ell/2 = {ell / 2:g}: scores will be far from those of exact PCA; ell >= 4k is good"
        warnings.warn(message, UserWarning, stacklevel=4)
    return k


def _mean_residual(sketch: Sketch, V: Float, mean: Float | None, rounding: float) -> Interval:
    """The mean over the sketch's rows of the energy outside V."""
    B, w = np.asarray(sketch.matrix, np.float64), max(sketch.weight, np.finfo(float).tiny)
    outside = sketch.squared_frobenius
    if mean is not None:
        outside -= w * (float(mean @ mean) - float(np.sum((V @ mean) ** 2)))
    inside = energy_inside(B, V, sketch.squared_frobenius, sketch.delta, sketch.rounding)
    slack = energy_error(sketch) + (len(V) + 1) * rounding
    relative = EPS * weight_terms(sketch.rows, sketch.weight)
    lower, upper = outside - inside.upper - slack, outside - inside.lower + slack
    return interval(max(lower, 0.0) / w * (1 - relative), max(upper, 0.0) / w * (1 + relative))


def weight_terms(rows: int, weight: float) -> float:
    """How many roundings the weight of all rows may have: none where each row weighs 1."""
    return 0.0 if weight == rows else 8.0 * (rows + 8)
