"""The columns behind a row's scores: what the row has there, and what the sketch expected."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from sfd_stream.sketch.rows import Float
from sfd_stream.sketch.verify import EPS


class Cause(NamedTuple):
    """One column behind a score. `share` is its part of the score, `actual` what the row has there.

    `z` is how many standard deviations of the column `actual` is above the column's mean. It is None if the sketch has
    no sums of squares (`column_squares`), or if the column never varied.

    >>> from sfd_stream import HashedColumns, SparseFrequentDirections
    >>> days = [{"sun": 2, "sea": 1}] * 6 + [{"moon": 2, "star": 1}] * 3
    >>> sketch = SparseFrequentDirections(ell=4, features=HashedColumns(1024)).fit(days).sketch()
    >>> cause = sketch.scorer().explain({"moon": 2}).residual[0]
    >>> cause.name, round(cause.share, 2), cause.actual, round(cause.expected, 2), cause.missing
    ('star', 0.9, 0.0, 0.9, True)
    """

    column: int
    name: str
    share: float
    actual: float
    expected: float
    z: float | None = None

    @property
    def missing(self) -> bool:
        """Whether the row has nothing where the sketch expected something."""
        return self.actual == 0 and self.expected != 0


@dataclass(frozen=True)
class Explanation:
    """The columns behind the scores of one row, the strongest first: what `Scorer.explain` returns.

    The shares of `residual` over all columns add up to 1. A share of `t2` is the part of T^2 that would go if the
    column alone had the value `expected`, between its mean and what it has; these shares do not add up to 1.

    >>> from sfd_stream import SparseFrequentDirections, paper_synthetic
    >>> X = paper_synthetic(500, 50, 5, seed=0)
    >>> found = SparseFrequentDirections(ell=20).fit(X).sketch().scorer().explain(X[:1], top=3)
    >>> len(found.residual), len(found.t2), 0 <= found.missing_share <= 1
    (3, 3, True)
    """

    residual: tuple[Cause, ...]
    missing_share: float
    """The part of the residual in columns where the row has nothing: expected but missing."""
    t2: tuple[Cause, ...]


class Spread(NamedTuple):
    """The rows' mean and standard deviation, by column."""

    mean: Float
    deviation: Float

    def z(self, column: int, value: float) -> float | None:
        if column >= len(self.deviation) or self.deviation[column] == 0:
            return None
        return float((value - self.mean[column]) / self.deviation[column])


Named = Callable[[int], tuple[str, float]]
"""A column's name and the sign that its values have there."""


def explained(
    x: Float, mean: Float, V: Float, scale: Float, top: int, named: Named, spread: Spread | None = None
) -> Explanation:
    """The causes of one dense row x, which may have columns from d on that the directions V lack.

    `scale` has the eigenvalue by which T^2 divides each squared coordinate.
    """
    y = V @ (x[: V.shape[1]] - mean)
    expected = np.zeros_like(x)
    expected[: V.shape[1]] = mean + V.T @ y
    squares = (x - expected) ** 2
    shares = squares / max(float(squares.sum()), np.finfo(float).tiny)
    return Explanation(
        residual=_strongest(shares, x, expected, top, named, spread),
        missing_share=float(shares[x == 0].sum()),
        t2=_t2_causes(x, mean, V, scale, top, named, spread),
    )


def _t2_causes(
    x: Float, mean: Float, V: Float, scale: Float, top: int, named: Named, spread: Spread | None
) -> tuple[Cause, ...]:
    """With M = V' diag(1/scale) V, T^2 = z'Mz drops by 2 s (Mz)_j - s^2 M_jj if column j changes by -s.

    The best s is (Mz)_j/M_jj, but no further than to the mean: s lies between 0 and z_j. Without that limit a column
    that the directions hardly touch could explain every T^2, by an absurd value.
    """
    z = x[: V.shape[1]] - mean
    y = V @ z
    slope = V.T @ (y / scale)
    curvature = (V**2).T @ (1 / scale)
    best = np.divide(slope, curvature, out=np.zeros_like(slope), where=curvature > 0)
    step = np.clip(best, np.minimum(z, 0.0), np.maximum(z, 0.0))
    drops = step * (2 * slope - step * curvature)
    t2 = max(float(np.sum(y**2 / scale)), np.finfo(float).tiny)
    return _strongest(drops / t2, x[: len(z)], x[: len(z)] - step, top, named, spread)


def _strongest(
    shares: Float, actual: Float, expected: Float, top: int, named: Named, spread: Spread | None
) -> tuple[Cause, ...]:
    order = np.argsort(-shares, kind="stable")[:top]
    causes = []
    for column in order[shares[order] > EPS].tolist():
        name, sign = named(column)
        # The sum with 0.0 turns -0.0 into 0.0, which a person reads without wondering.
        values = (sign * float(actual[column]) + 0.0, sign * float(expected[column]) + 0.0)
        z = None if spread is None else spread.z(column, float(actual[column]))
        causes.append(Cause(column, name, float(shares[column]), *values, None if z is None else sign * z + 0.0))
    return tuple(causes)
