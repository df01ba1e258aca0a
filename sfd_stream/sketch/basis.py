"""Directions of a sketch, around zero or around the mean, and rows in their coordinates with bounds of the rounding."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import scipy.linalg
import scipy.sparse as sp

from sfd_stream.sketch.csr import Csr
from sfd_stream.sketch.intervals import Interval, interval
from sfd_stream.sketch.rows import VALUE_MAX, Float, RowBlock
from sfd_stream.sketch.stack import power_of_two_above
from sfd_stream.sketch.verify import EPS


class Eigen(NamedTuple):
    """Eigenvalues in descending order and their directions (orthonormal rows). All other eigenvalues are zero."""

    values: Float
    directions: Float


def eigen(B: Float) -> Eigen:
    """The eigenvalues and directions of B'B."""
    _, singular, directions = np.linalg.svd(B, full_matrices=False)
    return Eigen(singular**2, directions)


def centred_eigen(B: Float, mean: Float, weight: float) -> Eigen:
    """The eigenvalues and directions of B'B - weight mean mean'. At most one eigenvalue is negative."""
    rows = np.vstack([B, np.sqrt(weight) * mean])
    scale = power_of_two_above(float(np.max(np.abs(rows), initial=0.0)))
    Q = scipy.linalg.qr((rows / scale).T, mode="economic")[0]
    small = Q.T @ (rows / scale).T
    signs = np.append(np.ones(len(B)), -1.0)
    values, vectors = scipy.linalg.eigh((small * signs) @ small.T)
    return Eigen(values[::-1] * scale**2, (Q @ vectors[:, ::-1]).T)


def skew_of(V: Float) -> float:
    """An upper bound of ||VV' - I||, the deviation of V's rows from orthonormal ones."""
    return float(np.linalg.norm(V @ V.T - np.eye(len(V)))) + EPS * V.size


def alignment(V: Float, reference: Float) -> Float:
    """The rotation R (k x k) for which RV is nearest to `reference`: orthogonal Procrustes, by ||RV - reference||F.

    Both have k orthonormal rows; one that has fewer columns than the other is zero in the rest.
    """
    d = min(V.shape[1], reference.shape[1])
    U, _, W = np.linalg.svd(reference[:, :d] @ V[:, :d].T)
    return np.asarray(U @ W)


def energy_inside(B: Float, V: Float, squared_frobenius: float, delta: float, rounding: float) -> Interval:
    """The energy tr VA'AV' that the rows A of a sketch have in the directions V.

    It is ||BV'||^2 + tr VCV' with C = A'A - B'B. The trace is at most k delta and at most C's positive part; at least
    -k rounding and at least tr C less what the other d - k directions can take.
    """
    k, d = V.shape
    inside, lost = float(np.sum((B @ V.T) ** 2)), max(squared_frobenius - float(np.sum(B**2)), 0.0)
    least = max(-k * rounding, lost - (d - k) * delta)
    most = min(k * delta, lost + len(B) * rounding)
    return interval(inside + least, inside + most)


class Projected(NamedTuple):
    """Rows z = x - mean in the coordinates y = Vz. Rounding changed no coordinate by more than `error`."""

    coordinates: Float
    inside: Float
    """||y||^2"""
    outside: Float
    """||z - V'y||^2, not negative."""
    error: Float
    outside_error: Float
    """An upper bound of the rounding error of `outside`."""


class Projection:
    """The map x -> V(x - mean), prepared once for many rows. V has orthonormal rows; no mean: around zero."""

    def __init__(self, V: Float, mean: Float | None) -> None:
        self.mean = mean
        # The product with [V', mean] gives the coordinates and x'mean in one pass over the rows.
        self._columns = np.ascontiguousarray((V if mean is None else np.vstack([V, mean])).T)
        self._at_mean = np.zeros(len(V)) if mean is None else V @ mean
        self._mean_square = 0.0 if mean is None else float(mean @ mean)
        self._skew = skew_of(V)

    @property
    def d(self) -> int:
        return len(self._columns)

    def __call__(self, X: Any) -> Projected:
        """Rows of a matrix (sparse or dense). Columns from d on are outside of every direction."""
        y, squares, lengths, terms = self._dense(X) if isinstance(X, np.ndarray) else self._sparse(X)
        unit = EPS * (terms + 8.0)
        error = unit * lengths
        inside = np.einsum("nk,nk->n", y, y)
        outside_error = 4 * (1 + np.sqrt(y.shape[1])) * error * lengths + self._skew * inside
        return Projected(y, inside, np.maximum(squares - inside, 0.0), error, outside_error)

    def _dense(self, X: Float) -> tuple[Float, Float, Float, Float]:
        """y, ||z||^2, a bound of ||x|| + ||mean||, and how many terms a coordinate was summed from."""
        known = X[:, : self.d]
        Z = known if self.mean is None else known - self.mean
        squares, outside_d = (np.einsum("nd,nd->n", part, part) for part in (Z, X[:, self.d :]))
        lengths = np.sqrt(np.einsum("nd,nd->n", X, X)) + np.sqrt(self._mean_square)
        terms = np.full(len(X), float(X.shape[1]))
        return Z @ self._columns[:, : len(self._at_mean)], squares + outside_d, lengths, terms

    def _sparse(self, block: RowBlock) -> tuple[Float, Float, Float, Float]:
        known = block if block.d <= self.d else RowBlock.from_csr(block.csr()[:, : self.d])
        k, products = len(self._at_mean), np.zeros((block.rows, self._columns.shape[1]))
        Csr.of(known).add_times(self._columns, products)
        squares = _row_squares(block)
        lengths = np.sqrt(squares) + np.sqrt(self._mean_square)
        terms = np.diff(block.indptr).astype(np.float64)
        if self.mean is None:
            return products, squares, lengths, terms
        centred = np.maximum(squares - 2 * products[:, k] + self._mean_square, 0.0)
        return products[:, :k] - self._at_mean, centred, lengths, terms + self.d


def _row_squares(block: RowBlock) -> Float:
    """The squared length of each row."""
    squares = np.zeros(block.rows)
    filled = block.indptr[:-1] < block.indptr[1:]
    if filled.any():
        squares[filled] = np.add.reduceat(block.values**2, block.indptr[:-1][filled])
    return squares


def checked(matrix: Any) -> Any:
    """Rows as a `RowBlock`, or as an array if they are dense. ValueError names the first invalid row."""
    if sp.issparse(matrix):
        return RowBlock.from_csr(matrix, copy=False)
    rows = np.asarray(matrix, np.float64)
    wrong = ~(np.abs(rows) <= VALUE_MAX).all(axis=1)
    if wrong.any():
        row = int(np.argmax(wrong))
        large = np.isfinite(rows[row]).all()
        what = f"above {VALUE_MAX:g} in magnitude" if large else "that is NaN or infinite"
        raise ValueError(f"row {row} has a value {what}")
    return rows
