"""The sketch: a frozen matrix B with exact counters and a certified bound of what it lost.

For the rows A it was made of, -rounding*I <= A'A - B'B <= delta*I, the right side but for `failure_probability`.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, fields, replace
from typing import Any, NamedTuple, Protocol

import numpy as np
import scipy.linalg
from scipy.sparse.linalg import LinearOperator

from sfd_stream.sketch.drift import Drift, Spectrum, drift_of
from sfd_stream.sketch.iteration import ritz_of
from sfd_stream.sketch.rows import Float
from sfd_stream.sketch.stack import power_of_two_above
from sfd_stream.sketch.tables import frame_of, long_table
from sfd_stream.sketch.verify import EPS

SQUARES_MAX = 2.0**1020
"""What ||A||F^2 may come to: then the square of every power of two that scales a matrix stays within float64."""


class Interval(NamedTuple):
    """A certified range with the value in its middle."""

    lower: float
    estimate: float
    upper: float


class PCA(NamedTuple):
    """Principal components of the centred rows. `explained_variance` lies within `error` on both sides."""

    components: Float
    explained_variance: Float
    error: float
    mean: Float


class HasSketch(Protocol):
    """What stands for a sketch, as a merge that was read does."""

    @property
    def sketch(self) -> Sketch: ...


@dataclass(frozen=True, eq=False)
class Sketch:
    matrix: Float
    ell: int
    delta: float
    failure_probability: float
    rows: int
    nnz: int
    squared_frobenius: float
    column_sums: Float | None
    """None where a snapshot was published without them: then nothing centred can be asked."""
    weight: float
    shrinks: int
    rounding: float = 0.0

    def __post_init__(self) -> None:
        for array in (self.matrix, self.column_sums):
            if array is not None:
                array.flags.writeable = False

    @property
    def d(self) -> int:
        return int(self.matrix.shape[1])

    def __eq__(self, other: object) -> bool:
        """Bit for bit."""
        if not isinstance(other, Sketch):
            return NotImplemented
        return all(_same(getattr(self, f.name), getattr(other, f.name)) for f in fields(self))

    def __hash__(self) -> int:
        return hash((self.ell, self.d, self.rows, self.nnz, self.delta, self.squared_frobenius))

    def __reduce__(self) -> tuple[Any, ...]:
        """Copies and pickles go through the constructor, so that their arrays can't be written to either."""
        return (type(self), tuple(getattr(self, f.name) for f in fields(self)))

    def __repr__(self) -> str:
        ratio = self.delta / self.squared_frobenius if self.squared_frobenius else 0.0
        return (
            f"Sketch(ell={self.ell}, d={self.d:,}, rows={self.rows:,}, nnz={self.nnz:,}, "
            f"delta={self.delta:.4g} = {ratio:.2%} of ||A||F^2)"
        )

    # What it says of the rows

    def singular_values(self, k: int | None = None) -> Float:
        """The k largest singular values of B; each squared is below A's squared by at most delta."""
        return np.asarray(self._svd()[0][: self._rank(k)])

    def components(self, k: int | None = None) -> Float:
        """The k strongest directions (k x d, orthonormal rows), signed so that the largest entry is positive."""
        return signed(self._svd()[1][: self._rank(k)])

    def project(self, X: Any, k: int | None = None) -> Float:
        """Rows of X in the coordinates of the k strongest directions (not centred).

        Rows may be narrower than the sketch, as from before its columns grew: they are zero in the rest.
        """
        return coordinates(X, self.components(k))

    def explained(self, k: int) -> Interval:
        """The share of ||A||F^2 that the best subspace of dimension k holds.

        It is at least B's own, and above it by at most the k largest eigenvalues of C = A'A - B'B: at most k*delta, and
        at most the trace of C less its negative eigenvalues, of which there are no more than B has rows.
        """
        self._rank(k)
        if self.squared_frobenius == 0:
            return Interval(0.0, 0.0, 0.0)
        kept = float(np.sum(self._svd()[0][:k] ** 2))
        lost = max(self.squared_frobenius - _square(self.matrix), 0.0)
        lower = max(kept - k * self.rounding, 0.0) / self.squared_frobenius
        upper = min((kept + min(k * self.delta, lost + len(self.matrix) * self.rounding)) / self.squared_frobenius, 1.0)
        return Interval(lower, (lower + upper) / 2, upper)

    def gram(self) -> LinearOperator:
        """B'B + delta/2 I: within delta/2 of A'A on both sides (and rounding), half of B'B's own error."""
        B, shift = self.matrix, self.delta / 2

        def times(x: Float) -> Float:
            return np.asarray(B.T @ (B @ x) + shift * x)

        return LinearOperator((self.d, self.d), matvec=times, rmatvec=times, matmat=times, dtype=np.float64)

    @property
    def mean(self) -> Float:
        """The rows' exact (weighted) mean."""
        if self.column_sums is None:
            raise ValueError("this sketch has no column sums, which all that is centred needs: publish them")
        return self.column_sums / max(self.weight, np.finfo(float).tiny)

    def covariance(self, i: int, j: int) -> Interval:
        """Entry (i, j) of the rows' covariance, centred, over rows - 1, with its certified interval.

        C = A'A - B'B has 0 <= C <= delta*I, so C_ii lies in [0, delta] and C_ij in [-delta/2, delta/2].
        """
        b = float(self.matrix[:, i] @ self.matrix[:, j])
        low, high = (0.0, self.delta) if i == j else (-self.delta / 2, self.delta / 2)
        scale = self._over()
        mean = self.weight * float(self.mean[i] * self.mean[j])
        lower, upper = (b + low - self.rounding - mean) / scale, (b + high + self.rounding - mean) / scale
        if i == j:
            lower = max(lower, 0.0)
        return Interval(lower, (lower + upper) / 2, upper)

    def pca(self, k: int) -> PCA:
        """Principal components, centred exactly by the column sums.

        The centred A'A - w mean mean' lies between B'B - w mean mean' (less rounding) and that plus delta*I, and so do
        its eigenvalues; the middle of that range is given, and `error` is half of it.
        """
        self._rank(k)
        rows = np.vstack([self.matrix, np.sqrt(self.weight) * self.mean])
        scale = power_of_two_above(float(np.max(np.abs(rows), initial=0.0)))
        Q = scipy.linalg.qr((rows / scale).T, mode="economic")[0]
        small = Q.T @ (rows / scale).T
        signs = np.append(np.ones(len(self.matrix)), -1.0)
        values, vectors = scipy.linalg.eigh((small * signs) @ small.T)
        k = min(k, len(values))
        top = values[::-1][:k] * scale**2
        if len(values) < self.d:
            top = np.maximum(top, 0.0)  # outside the span of these rows the matrix is zero, not negative
        error = (self.delta + self.rounding) / 2 / self._over()
        variance = np.maximum(top + (self.delta - self.rounding) / 2, 0.0) / self._over()
        return PCA(signed((Q @ vectors[:, ::-1][:, :k]).T), variance, error, self.mean)

    def to_table(self, k: int | None = None, top: int | None = None) -> dict[str, Any]:
        """The components as a long table: `component` (from 1), `column`, `name`, `weight`; `top` of each, or all.

        Arrays of one length by name, which data frames take as they are. A column's name is its number here.
        """
        return long_table(self.components(k), str, top)

    def to_frame(self, k: int | None = None, top: int | None = None) -> Any:
        """The same as a pandas.DataFrame; pandas must be installed."""
        return frame_of(self.to_table(k, top))

    def drift(self, other: Sketch | HasSketch, k: int) -> Drift:
        """Principal angles between the top-k subspaces of both, with a bound of how far the true ones may be off."""
        other = other if isinstance(other, Sketch) else other.sketch
        d = max(self.d, other.d)
        mine, others = self.padded(d), other.padded(d)
        return drift_of(mine._spectrum(), others._spectrum(), k)  # noqa: SLF001 - another of our kind

    def _spectrum(self) -> Spectrum:
        values, VT = self._svd()
        return Spectrum(values, VT, self.delta + self.rounding, self.failure_probability)

    def _over(self) -> float:
        return max(self.weight - 1, 1.0) if self.weight > 1 else 1.0

    # Making others of it

    def merge(self, other: Sketch) -> Sketch:
        """The sketch of both inputs' rows. delta adds up, plus what this shrink loses; failure probabilities add."""
        if self.d != other.d:
            raise ValueError(f"sketches of {self.d} and {other.d} columns can't be merged; pad the smaller: padded(d)")
        if not self.squared_frobenius + other.squared_frobenius <= SQUARES_MAX:
            raise OverflowError(f"the squared Frobenius norm of all rows would exceed {SQUARES_MAX:.2g}")
        both = replace(
            self,
            matrix=np.vstack([self.matrix, other.matrix]),
            ell=max(self.ell, other.ell),
            failure_probability=min(self.failure_probability + other.failure_probability, 1.0),
            **{
                name: getattr(self, name) + getattr(other, name)
                for name in (
                    "delta",
                    "rounding",
                    "rows",
                    "nnz",
                    "squared_frobenius",
                    "weight",
                    "shrinks",
                )
            },
            column_sums=_sum(self.column_sums, other.column_sums),
        )
        return both.resized(both.ell)

    @staticmethod
    def merge_all(sketches: Iterable[Sketch]) -> Sketch:
        """Merged as a balanced tree: every part goes through about log2(parts) shrinks, not through all of them."""
        layer = list(sketches)
        if not layer:
            raise ValueError("there is no sketch to merge")
        while len(layer) > 1:
            pairs = [layer[i : i + 2] for i in range(0, len(layer), 2)]
            layer = [pair[0].merge(pair[1]) if len(pair) == 2 else pair[0] for pair in pairs]
        return layer[0]

    def resized(self, ell: int) -> Sketch:
        """At most ell rows: as it is if it has no more, else one exact shrink, which adds lambda^2 to delta."""
        if ell < 1:
            raise ValueError(f"ell must be at least 1, not {ell}")
        if len(self.matrix) <= ell:
            return replace(self, ell=ell)
        scale = power_of_two_above(float(np.max(np.abs(self.matrix))))
        M = np.asarray(self.matrix, np.float64) / scale
        ritz = ritz_of(np.ascontiguousarray(M.T))
        kept, lambda2 = ritz.shrunk(ell)
        rounding = 4 * EPS * (len(M) + self.d) * _square(M) * ritz.amplified
        shrunk = replace(
            self,
            matrix=kept * scale,
            ell=ell,
            delta=self.delta + (lambda2 + rounding) * scale**2,
            rounding=self.rounding + rounding * scale**2,
        )
        return shrunk.astype(self.matrix.dtype)

    def padded(self, d: int) -> Sketch:
        """The same rows with more columns, all zero there."""
        if d < self.d:
            raise ValueError(f"a sketch of {self.d} columns can't be cut down to {d}")
        extra = d - self.d
        return replace(
            self,
            matrix=np.pad(self.matrix, ((0, 0), (0, extra))),
            column_sums=None if self.column_sums is None else np.pad(self.column_sums, (0, extra)),
        )

    def astype(self, dtype: Any) -> Sketch:
        """B in another precision; both sides of the bound are widened by what rounding B may change.

        With E the change, ||B'B - (B-E)'(B-E)|| <= ||E||F (2 ||B|| + ||E||F). OverflowError if B does not fit.
        """
        with np.errstate(over="ignore"):
            matrix = self.matrix.astype(dtype)
        if not np.isfinite(matrix).all():
            raise OverflowError(f"the sketch has values that {matrix.dtype} can't hold")
        if matrix.dtype == np.float64 or not matrix.size:
            return replace(self, matrix=matrix)
        scale = power_of_two_above(float(np.max(np.abs(self.matrix))))
        spectral = float(np.linalg.norm(self.matrix / scale, 2))
        change = float(np.sqrt(_square((self.matrix - matrix) / scale)))
        widened = change * (2 * spectral + change) * (1 + 1e-6) * scale**2
        return replace(self, matrix=matrix, delta=self.delta + widened, rounding=self.rounding + widened)

    def _rank(self, k: int | None) -> int:
        if k is not None and k < 1:
            raise ValueError(f"k must be at least 1, not {k}")
        return self.d if k is None else k

    def _svd(self) -> tuple[Float, Float]:
        _, singular, VT = np.linalg.svd(np.asarray(self.matrix, np.float64), full_matrices=False)
        return singular, VT


def _sum(a: Float | None, b: Float | None) -> Float | None:
    return None if a is None or b is None else a + b


def _same(a: Any, b: Any) -> bool:
    if isinstance(a, np.ndarray) and isinstance(b, np.ndarray):
        return bool(a.dtype == b.dtype and a.shape == b.shape and a.tobytes() == b.tobytes())
    return bool(a == b)


def _square(X: Float) -> float:
    wide = np.asarray(X, np.float64).ravel()
    return float(wide @ wide)


def coordinates(X: Any, components: Float) -> Float:
    """Rows in the coordinates of these directions; columns that the rows lack are zero."""
    width, d = np.shape(X)[-1], components.shape[1]
    if width > d:
        raise ValueError(f"rows of {width} columns, but the sketch has {d}: take a newer sketch, or fewer columns")
    return np.asarray(X @ components[:, :width].T)


def signed(components: Float) -> Float:
    """Signs fixed so that each direction's largest entry is positive: the same picture on every machine."""
    if not components.size:
        return components
    largest = components[np.arange(len(components)), np.argmax(np.abs(components), axis=1)]
    return np.asarray(components * np.where(largest < 0, -1.0, 1.0)[:, None])
