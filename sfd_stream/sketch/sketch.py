"""The sketch: a frozen matrix B with exact counters and a certified bound of what it lost.

For the rows A it was made of, -rounding*I <= A'A - B'B <= delta*I, the right side
except with probability `failure_probability`.
"""

from __future__ import annotations

import os
from collections.abc import Iterable
from dataclasses import dataclass, fields
from numbers import Integral
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import scipy.sparse as sp
from scipy.sparse.linalg import LinearOperator

from sfd_stream.sketch.basis import centred_eigen, energy_inside
from sfd_stream.sketch.drift import Drift, Spectrum, drift_of
from sfd_stream.sketch.features import Features, are_mappings, listed
from sfd_stream.sketch.intervals import Interval, interval
from sfd_stream.sketch.iteration import ritz_of
from sfd_stream.sketch.rows import Float, RowBlock, matrix_of, whole
from sfd_stream.sketch.stack import power_of_two_above
from sfd_stream.sketch.tables import frame_of, long_table, strongest
from sfd_stream.sketch.verify import EPS

if TYPE_CHECKING:
    from sfd_stream.sketch.scoring.score import Scorer

SQUARES_MAX = 2.0**1020
"""The limit of ||A||F^2. Below it, the square of every power of two that scales a matrix stays within float64."""

SUBNORMAL = float(np.finfo(np.float64).smallest_subnormal)
"""Added to a number that may have underflowed when it was scaled back."""


class PCA(NamedTuple):
    """Principal components of the centred rows: the result of `Sketch.pca`.

    The variances of the rows along their own components lie within `error` of `explained_variance`, on both sides.

    >>> from sfd_stream import SparseFrequentDirections, paper_synthetic
    >>> sketch = SparseFrequentDirections(ell=20).fit(paper_synthetic(500, 50, 5, seed=0)).sketch()
    >>> pca = sketch.pca(3)
    >>> pca.components.shape, pca.explained_variance.shape, pca.mean.shape, pca.error > 0
    ((3, 50), (3,), (50,), True)
    """

    components: Float
    explained_variance: Float
    error: float
    mean: Float


@dataclass(frozen=True, eq=False)
class Sketch:
    """A frozen matrix B of at most `ell` rows in place of many rows A, with exact counters and a certified error.

    -rounding*I <= A'A - B'B <= delta*I, the right side except with probability `failure_probability`. `rows`, `nnz`,
    `squared_frobenius` and `column_sums` are those of A, and exact for integers. A sketcher's `sketch()` returns one.
    The examples of the methods continue this one:

    >>> from sfd_stream import HashedColumns, SparseFrequentDirections
    >>> days = [{"sun": 2, "sea": 1}] * 6 + [{"moon": 2, "star": 1}] * 3
    >>> sketch = SparseFrequentDirections(ell=4, features=HashedColumns(1024)).fit(days).sketch()
    >>> sketch
    Sketch(ell=4, d=1,024, rows=9, nnz=18, delta=... = 0.00% of ||A||F^2)
    """

    matrix: Float
    ell: int
    delta: float
    failure_probability: float
    rows: int
    nnz: int
    squared_frobenius: float
    column_sums: Float | None
    """None if a snapshot was published without them. Centred queries are then not possible."""
    weight: float
    shrinks: int
    rounding: float = 0.0
    features: Features | None = None
    """The names of the columns, if they have any."""
    column_squares: Float | None = None
    """The (weighted) sum of squares of each column; None unless it was asked for from the first row on."""

    def __post_init__(self) -> None:
        for array in (self.matrix, self.column_sums, self.column_squares):
            if array is not None:
                array.flags.writeable = False

    @property
    def d(self) -> int:
        """The number of columns."""
        return int(self.matrix.shape[1])

    @property
    def k_max(self) -> int:
        """The number of directions of the sketch, which is the largest possible k."""
        return int(min(self.matrix.shape))

    def __eq__(self, other: object) -> bool:
        """Bit for bit."""
        if type(other) is not type(self):
            return NotImplemented
        return all(_same(getattr(self, f.name), getattr(other, f.name)) for f in fields(self))

    def __hash__(self) -> int:
        return hash((self.ell, self.d, self.rows, self.nnz, self.delta, self.squared_frobenius))

    def __reduce__(self) -> tuple[Any, ...]:
        """Copies and pickles call the constructor, so that their arrays are read-only, too."""
        return (_made, (type(self), {f.name: getattr(self, f.name) for f in fields(self)}))

    def __repr__(self) -> str:
        ratio = self.delta / self.squared_frobenius if self.squared_frobenius else 0.0
        return (
            f"Sketch(ell={self.ell}, d={self.d:,}, rows={self.rows:,}, nnz={self.nnz:,}, "
            f"delta={self.delta:.4g} = {ratio:.2%} of ||A||F^2)"
        )

    # Queries about the rows

    def singular_values(self, k: int | None = None) -> Float:
        """The k largest singular values of B; each squared is below A's squared by at most delta.

        >>> sketch.singular_values(2).round(2).tolist()
        [5.48, 3.87]
        """
        return np.asarray(self._svd()[0][: self._directions(k)])

    def components(self, k: int | None = None) -> Float:
        """The k strongest directions (k x d, orthonormal rows).

        The sign of a direction has no meaning. It is chosen so that the largest entry is positive; for hashed columns,
        the largest entry by name. `project` and `top` use the same sign.

        >>> sketch.components(2).shape
        (2, 1024)
        """
        return signed_by_name(self._svd()[1][: self._directions(k)], self.features)

    def project(self, X: Any, k: int | None = None) -> Float:
        """Rows of X in the coordinates of the k strongest directions (not centred).

        X has d columns; for a sketch of hashed columns it may be a list of mappings from names to values.

        >>> abs(sketch.project([{"sun": 1}, {"moon": 1}], 2)).round(2).tolist()
        [[0.89, 0.0], [0.0, 0.89]]
        """
        return coordinates(X, self.components(k), self.features)

    def explained(self, k: int) -> Interval:
        """The share of ||A||F^2 that the best subspace of dimension k holds.

        It is at least B's own, and above it by at most the k largest eigenvalues of C = A'A - B'B: at most k*delta, and
        at most the trace of C less its negative eigenvalues, of which there are no more than B has rows.

        >>> lower, estimate, upper = sketch.explained(1)
        >>> f"{lower:.1%} to {upper:.1%} of the squares"
        '66.7% to 66.7% of the squares'
        """
        k = check_k(k, self.d, f"the rows have {self.d} columns")
        if not self.nnz:
            return Interval(0.0, 0.0, 0.0)
        kept = float(np.sum(self._svd()[0][:k] ** 2))
        lost = max(self.squared_frobenius - _square(self.matrix), 0.0)
        lower = max(kept - k * self.rounding, 0.0) / (self.squared_frobenius + self.rounding)
        least = self.squared_frobenius - self.rounding
        most = kept + min(k * self.delta, lost + len(self.matrix) * self.rounding)
        upper = min(most / least, 1.0) if least > 0 else 1.0
        return Interval(lower, (lower + upper) / 2, upper)

    def gram(self) -> LinearOperator:
        """B'B + delta/2 I: within delta/2 of A'A on both sides (and rounding), half of B'B's own error.

        >>> sketch.gram().shape
        (1024, 1024)
        """
        B, shift = self._wide(), self.delta / 2

        def times(x: Float) -> Float:
            return np.asarray(B.T @ (B @ x) + shift * x)

        return LinearOperator((self.d, self.d), matvec=times, rmatvec=times, matmat=times, dtype=np.float64)

    @property
    def mean(self) -> Float:
        """The rows' exact (weighted) mean."""
        if self.column_sums is None:
            raise ValueError("this sketch has no column sums, which all that is centred needs: publish them")
        return self.column_sums / max(self.weight, np.finfo(float).tiny)

    @property
    def deviations(self) -> Float:
        """The standard deviation of each column, from the sums of squares; 0 where rounding hides it.

        They need `SparseFrequentDirections(column_squares=True)`, or `sketch.column_squares: true` in the settings.
        """
        if self.column_squares is None:
            raise ValueError("this sketch has no sums of squares by column: set column_squares from the first row on")
        weight = max(self.weight, np.finfo(float).tiny)
        squares = self.column_squares / weight
        variance = squares - self.mean**2
        return np.asarray(np.sqrt(np.where(variance > 4 * EPS * sums_terms(self) * squares, variance, 0.0)))

    @property
    def total_variance(self) -> float:
        """The sum of the variances of all columns (over rows - 1), of which `pca`'s `explained_variance` are parts."""
        mean = self.mean
        return max(self.squared_frobenius - self.weight * float(mean @ mean), 0.0) / self._over()

    def covariance(self, i: int | str, j: int | str) -> Interval:
        """Entry (i, j) of the rows' covariance, centred, over rows - 1, with its certified interval.

        i and j are columns, or names where columns are hashed (with all other names that share the column).

        C = A'A - B'B has 0 <= C <= delta*I, so C_ii lies in [0, delta] and C_ij in [-delta/2, delta/2].

        >>> lower, estimate, upper = sketch.covariance("sun", "moon")
        >>> round(estimate, 2)
        -1.0
        """
        (i, sign), (j, other_sign) = self._column(i), self._column(j)
        b = float(self.matrix[:, i].astype(np.float64) @ self.matrix[:, j].astype(np.float64))
        low, high = (0.0, self.delta) if i == j else (-self.delta / 2, self.delta / 2)
        scale = self._over()
        mean = self.weight * float(self.mean[i] * self.mean[j])
        rounding = self.rounding + query_error(self, centred=True)
        lower, upper = (b + low - rounding - mean) / scale, (b + high + rounding - mean) / scale
        if i == j:
            lower = max(lower, 0.0)
        if sign != other_sign:
            lower, upper = -upper, -lower
        return Interval(lower, (lower + upper) / 2, upper)

    def pca(self, k: int) -> PCA:
        """Principal components, centred exactly by the column sums.

        The centred A'A - w mean mean' lies between B'B - w mean mean' (less rounding) and that plus delta*I, and so do
        its eigenvalues. The result is the middle of that range, and `error` is half of its width.

        >>> pca = sketch.pca(1)
        >>> f"{pca.explained_variance[0] / sketch.total_variance:.0%} of the variance"
        '100% of the variance'
        """
        most = min(len(self.matrix) + 1, self.d)
        k = check_k(k, most, f"this sketch has {most} directions around the mean")
        values, directions = centred_eigen(self._wide(), self.mean, self.weight)
        top = values[:k]
        if len(values) < self.d:
            top = np.maximum(top, 0.0)  # outside the span of these rows the matrix is zero and not negative
        error = ((self.delta + self.rounding) / 2 + query_error(self, centred=True)) / self._over()
        variance = np.maximum(top + (self.delta - self.rounding) / 2, 0.0) / self._over()
        return PCA(signed_by_name(directions[:k], self.features), variance, error, self.mean)

    # By name

    def name(self, column: int) -> str:
        """The column's name if it is known, else its number.

        >>> sketch.name(sketch.to_table(1)["column"][0])
        'sun'
        """
        return str(column) if self.features is None else self.features.names.get(column, str(column))

    def components_by_name(self, k: int | None = None, *, centre: bool = False) -> Float:
        """The components, without the signs that hashing gave to columns: an entry is the weight of the column's name.

        A feature x enters column h(x) with the sign of its hash. `centre`: around the mean, as of `pca`.

        >>> sketch.components_by_name(2).max(axis=1).round(2).tolist()
        [0.89, 0.89]
        """
        return self.by_name(self.pca(self.k_max if k is None else k).components if centre else self.components(k))

    def by_name(self, components: Float) -> Float:
        """Directions over this sketch's columns, such as those of `pca`, without the signs that hashing gave them.

        >>> sketch.by_name(sketch.pca(1).components).shape
        (1, 1024)
        """
        return components if self.features is None else np.asarray(components * self.features.signs())

    def top(self, k: int | None = None, columns: int = 10, *, centre: bool = False) -> list[list[tuple[str, float]]]:
        """The k strongest directions (if not given 10, or as many as there are), each by the names and weights of its
        strongest columns. `centre`: around the mean, as of `pca`.

        >>> [[name for name, weight in words] for words in sketch.top(2, columns=2)]
        [['sun', 'sea'], ['moon', 'star']]
        """
        found = self.components_by_name(min(10, self.k_max) or None if k is None else k, centre=centre)
        chosen = strongest(found, whole("columns", columns, 1))
        return [
            [(self.name(int(column)), float(direction[column])) for column in best]
            for direction, best in zip(found, chosen, strict=True)
        ]

    def to_table(self, k: int | None = None, top: int | None = None, *, centre: bool = False) -> dict[str, Any]:
        """Components by name as a long table: `component` (from 1), `column`, `name`, `weight`; `top` of each, or all.

        The columns of the dict are arrays of one length: `pandas.DataFrame(...)` and `pyarrow.table(...)` take it as
        it is. A column without a name has its number for one. `centre`: around the mean, as of `pca`.

        >>> table = sketch.to_table(1, top=2)
        >>> list(zip(table["name"].tolist(), table["weight"].round(2).tolist()))
        [('sun', 0.89), ('sea', 0.45)]
        """
        return long_table(self.components_by_name(k, centre=centre), self.name, top)

    def to_frame(self, k: int | None = None, top: int | None = None, *, centre: bool = False) -> Any:
        """The same as a pandas.DataFrame; pandas must be installed.

        >>> sketch.to_frame(1, top=2)["name"].tolist()
        ['sun', 'sea']
        """
        return frame_of(self.to_table(k, top, centre=centre))

    def drift(self, other: Sketch, k: int) -> Drift:
        """How far these rows are from those of `other`, the reference: by the principal angles between the top-k
        subspaces, and by the energy outside the reference's k directions, each with its certified error.

        >>> drift = sketch.drift(sketch, 1)
        >>> bool(drift.angles.max() < 1e-6), drift.differs
        (True, False)
        """
        other = sketch_of(other)
        self._joined_features(other)
        d = max(self.d, other.d)
        mine, others = self.padded(d), other.padded(d)
        shares = (mine._share_outside, others._share_outside)  # noqa: SLF001 - another of our kind
        return drift_of(mine._spectrum(), others._spectrum(), k, shares)  # noqa: SLF001

    def scorer(self, k: int | None = None, centred: bool = True, *, growing: bool = False) -> Scorer:
        """A basis of the k strongest directions that scores rows: how much of a row lies outside, how far inside.

        k is ell/4 if not given; above ell/2 there is a warning. `centred`: around the mean, as of `pca`; else around
        zero. `growing`: rows may have fewer or more columns than the sketch; columns that it has never seen add their
        squares to the residual.

        >>> scores = sketch.scorer().score([{"sun": 2, "sea": 1}, {"sun": 2, "rain": 9}])
        >>> scores.residual_share.round(2).tolist()
        [0.0, 0.99]
        """
        from sfd_stream.sketch.scoring.score import scorer_of  # noqa: PLC0415 - it knows the sketch

        return scorer_of(self, k, centred=centred, growing=growing)

    def _spectrum(self) -> Spectrum:
        values, VT = self._svd()
        return Spectrum(values, VT, self.delta + self.rounding, self.failure_probability)

    def _share_outside(self, V: Float) -> Interval:
        """The share of the rows' energy outside the directions V."""
        total, slack = self.squared_frobenius, (len(V) + 1) * (query_error(self, centred=False) + energy_error(self))
        if total <= slack:  # nothing is known after squares have underflowed
            return interval(0.0, 1.0)
        inside = energy_inside(self._wide(), V, total, self.delta, self.rounding)
        shares = (1 - (inside.upper + slack) / total, 1 - (inside.lower - slack) / total)
        return interval(*(min(max(share, 0.0), 1.0) for share in shares))

    def _over(self) -> float:
        return max(self.weight - 1, 1.0) if self.weight > 1 else 1.0

    # In a file

    def save(self, file: str | os.PathLike[str]) -> None:
        """Write the sketch to a file: the bytes of a snapshot, as docs/reference/formats.md has them. `load` reads it.

        The file is replaced as a whole. Names of hashed columns are kept.

        >>> sketch.save("days.sketch")
        """
        from sfd_stream.wire import sketch_files  # noqa: PLC0415 - the format is not mathematics

        sketch_files.save(self, file)

    @classmethod
    def load(cls, file: str | os.PathLike[str], *, max_bytes: int | None = None) -> Sketch:
        """The sketch that `save` has written, bit for bit.

        FormatError if the file holds none, is damaged, or would need more than `max_bytes` (1 GiB if not given).

        >>> from sfd_stream import Sketch
        >>> sketch.save("days.sketch")
        >>> Sketch.load("days.sketch").rows
        9
        """
        from sfd_stream.wire import sketch_files  # noqa: PLC0415 - as in `save`

        return sketch_files.load(file, max_bytes)

    # Derived sketches

    def merge(self, other: Sketch) -> Sketch:
        """The float64 sketch of both inputs' rows. delta and failure probabilities add; this shrink adds to delta.

        >>> sketch.merge(sketch).rows
        18
        """
        other = sketch_of(other)
        if self.d != other.d:
            raise ValueError(f"sketches of {self.d} and {other.d} columns can't be merged; pad the smaller: padded(d)")
        if not self.squared_frobenius + other.squared_frobenius <= SQUARES_MAX:
            raise OverflowError(f"the squared Frobenius norm of all rows would exceed {SQUARES_MAX:.2g}")
        both = self._derived(
            matrix=np.vstack([self.matrix, other.matrix]).astype(np.float64),
            failure_probability=min(self.failure_probability + other.failure_probability, 1.0),
            features=self._joined_features(other),
            **{name: _sum(getattr(self, name), getattr(other, name)) for name in _SUMS},
        )
        return both.resized(max(self.ell, other.ell))

    @staticmethod
    def merge_all(sketches: Iterable[Sketch]) -> Sketch:
        """The sketch of the rows of all. Merges as a balanced tree: each part passes through about log2(parts) shrinks.

        >>> from sfd_stream import Sketch
        >>> Sketch.merge_all([sketch] * 5).rows
        45
        """
        layer = list(sketches)
        if not layer:
            raise ValueError("there is no sketch to merge")
        while len(layer) > 1:
            pairs = [layer[i : i + 2] for i in range(0, len(layer), 2)]
            layer = [pair[0].merge(pair[1]) if len(pair) == 2 else pair[0] for pair in pairs]
        return layer[0]

    def resized(self, ell: int) -> Sketch:
        """The sketch with at most ell rows. If it has more, one exact shrink adds lambda^2 to delta.

        >>> sketch.resized(1).matrix.shape
        (1, 1024)
        """
        ell = whole("ell", ell, 1)
        if len(self.matrix) <= ell:
            return self._derived(ell=ell)
        scale = power_of_two_above(float(np.max(np.abs(self.matrix))))
        M = self._wide() / scale
        ritz = ritz_of(np.ascontiguousarray(M.T))
        kept, lambda2 = ritz.shrunk(ell)
        rounding = 4 * EPS * (len(M) + self.d) * _square(M) * ritz.amplified
        shrunk = self._derived(
            matrix=kept * scale,
            ell=ell,
            delta=self.delta + (lambda2 + rounding) * scale * scale + SUBNORMAL,
            rounding=self.rounding + rounding * scale * scale + SUBNORMAL,
        )
        return shrunk.astype(self.matrix.dtype)

    def padded(self, d: int) -> Sketch:
        """The same rows with more columns, which are zero. Hashed columns lose their names: the hash depends on d.

        >>> sketch.padded(2000).d
        2000
        """
        if whole("d", d, 1) < self.d:
            raise ValueError(f"a sketch of {self.d} columns can't be cut down to {d}")
        wide = {name: widened(getattr(self, name), d) for name in ("matrix", "column_sums", "column_squares")}
        return self._derived(features=self.features if d == self.d else None, **wide)

    def astype(self, dtype: Any) -> Sketch:
        """B in another precision. Both sides of the bound are widened by the rounding error of B.

        With E the change, ||B'B - (B-E)'(B-E)|| <= ||E||F (2 ||B|| + ||E||F). OverflowError if B does not fit.

        >>> sketch.astype("float32").matrix.dtype
        dtype('float32')
        """
        if np.dtype(dtype).kind != "f":
            raise ValueError(f"a sketch is of float32 or float64, not {np.dtype(dtype)}")
        if np.dtype(dtype) == self.matrix.dtype:
            return self._derived()
        with np.errstate(over="ignore"):
            matrix = self.matrix.astype(dtype)
        if not np.isfinite(matrix).all():
            raise OverflowError(f"the sketch has values that {matrix.dtype} can't hold")
        if matrix.dtype == np.float64 or not matrix.size:
            return self._derived(matrix=matrix)
        scale = power_of_two_above(float(np.max(np.abs(self.matrix))))
        spectral = float(np.linalg.norm(self.matrix / scale, 2))
        error = float(np.sqrt(_square((self.matrix - matrix) / scale)))
        change = error * (2 * spectral + error) * (1 + 1e-6) * scale * scale + SUBNORMAL
        return self._derived(matrix=matrix, delta=self.delta + change, rounding=self.rounding + change)

    def _derived(self, **changes: Any) -> Sketch:
        """A sketch with these changes. It is a plain `Sketch`: the fields of a subclass may not hold for it."""
        return Sketch(**({each.name: getattr(self, each.name) for each in fields(Sketch)} | changes))

    def _directions(self, k: int | None) -> int:
        if k is None:
            return self.k_max
        return check_k(k, self.k_max, f"this sketch has {self.k_max} directions")

    def _column(self, i: Any) -> tuple[int, float]:
        """A column by number or name, and the sign of its name."""
        if isinstance(i, str) and self.features is not None:
            return self.features.column_of(i)
        if not isinstance(i, Integral) or not 0 <= int(i) < self.d:
            raise ValueError(f"a column must be a whole number in [0, {self.d}), not {i!r}")
        return int(i), 1.0

    def _joined_features(self, other: Sketch) -> Features | None:
        if self.features is None or other.features is None:
            return self.features or other.features
        return self.features.joined(other.features)

    def _svd(self) -> tuple[Float, Float]:
        _, singular, VT = np.linalg.svd(self._wide(), full_matrices=False)
        return singular, VT

    def _wide(self) -> Float:
        """B in float64, the precision of all queries."""
        return np.asarray(self.matrix, np.float64)


def _made(kind: type[Sketch], values: dict[str, Any]) -> Sketch:
    return kind(**values)


def query_error(sketch: Sketch, *, centred: bool) -> float:
    """What rounding may change in a query's products and decompositions and, if it is centred, in the column sums; see
    docs/guarantees.md ("Rounding").
    """
    sums = 4 * sums_terms(sketch) if centred else 0
    query = 8 * (len(sketch.matrix) + 1 + sketch.d)
    return EPS * (sums + query) * sketch.squared_frobenius


def sums_terms(sketch: Sketch) -> int:
    """At most how many roundings a sum over a column went through."""
    return sketch.rows + sketch.shrinks + 8


def energy_error(sketch: Sketch) -> float:
    """A bound of the rounding error of ||A||F^2, which is a sum of nnz squares, scaled at each shrink."""
    return (EPS * sketch.squared_frobenius + SUBNORMAL) * (sketch.nnz + 8 * sketch.shrinks + 8)


_SUMS = ("delta", "rounding", "rows", "nnz", "squared_frobenius", "weight", "shrinks", "column_sums", "column_squares")
"""The fields of a merged sketch that are sums of those of its parts."""


def _sum(a: Any, b: Any) -> Any:
    return None if a is None or b is None else a + b


def widened(array: Any, d: int) -> Any:
    """The array with columns of zeros up to d columns. None stays None."""
    return None if array is None else np.pad(array, [(0, 0)] * (array.ndim - 1) + [(0, d - array.shape[-1])])


def _same(a: Any, b: Any) -> bool:
    if isinstance(a, np.ndarray) and isinstance(b, np.ndarray):
        return bool(a.dtype == b.dtype and a.shape == b.shape and a.tobytes() == b.tobytes())
    return bool(a == b)


def _square(X: Float) -> float:
    wide = np.asarray(X, np.float64).ravel()
    return float(wide @ wide)


def check_k(k: Any, most: int, reason: str) -> int:
    if whole("k", k, 1) > most:
        raise ValueError(f"k = {k}, but {reason}: ask for at most {most}")
    return int(k)


def at_most(k: int | None, sketch: Sketch) -> int | None:
    """The smaller of k and the sketch's number of directions. None means all."""
    most = sketch_of(sketch).k_max
    return None if k is None or k >= most else k


def sketch_of(given: Any) -> Sketch:
    if not isinstance(given, Sketch):
        hint = ": call its sketch()" if callable(getattr(given, "sketch", None)) else ""
        raise TypeError(f"a sketch is needed, not a {type(given).__name__}{hint}")
    return given


def coordinates(X: Any, components: Float, features: Features | None = None, *, growing: bool = False) -> Float:
    """Rows in the coordinates of these directions. One row may be one-dimensional, named rows may be mappings.

    `growing`: rows from before the columns grew are narrower, and zero in the columns that they lack.
    """
    matrix, single = given_rows(X, features)
    check_width(matrix, components.shape[1], growing=growing)
    if not np.isfinite(matrix.data if sp.issparse(matrix) else matrix).all():
        raise ValueError("a row has a value that is NaN or infinite")
    found = np.asarray(matrix @ components[:, : matrix.shape[1]].T)
    return found[0] if single else found


def given_rows(X: Any, features: Features | None) -> tuple[Any, bool]:
    """Rows in any form as a matrix, and whether X was a single one-dimensional row."""
    X = listed(X)
    if are_mappings(X, features):
        if features is None:
            raise ValueError("rows given as mappings need a sketch of hashed columns; the columns here have no names")
        X = features.block_of(X)[0].csr()
    single = not sp.issparse(X) and np.ndim(X) == 1
    return matrix_of([X] if single else X), single


def check_width(matrix: Any, d: int, *, growing: bool = False) -> None:
    width = matrix.d if isinstance(matrix, RowBlock) else matrix.shape[1]
    if width > d or (width < d and not growing):
        raise ValueError(f"rows of {width} columns, but the sketch has {d}: the rows must have the sketch's columns")


def back(Z: Any, components: Float) -> Float:
    """The rows with these coordinates."""
    Z = np.asarray(Z)
    if Z.ndim not in (1, 2) or Z.shape[-1] != len(components):
        raise ValueError(f"coordinates of shape {Z.shape}, but there are {len(components)} directions: one column each")
    return np.asarray(Z @ components)


def signed_by_name(components: Float, features: Features | None) -> Float:
    """Each direction's sign is chosen so that its largest weight, by name where there are names, is positive."""
    if features is None:
        return signed(components)
    signs = features.signs()
    return np.asarray(signed(components * signs) * signs)


def signed(components: Float) -> Float:
    """The directions with signs such that the largest entry of each is positive: the same on every machine."""
    if not components.size:
        return components
    largest = components[np.arange(len(components)), np.argmax(np.abs(components), axis=1)]
    return np.asarray(components * np.where(largest < 0, -1.0, 1.0)[:, None])
