"""Finding the strong directions: the paper's SimultaneousIteration, and the single warm pass of the fused shrink."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise
from math import ceil, log, sqrt
from typing import Any

import numpy as np
import scipy.linalg

from sfd_stream.sketch.rows import Float, Int, equal_counts
from sfd_stream.sketch.stack import Stack
from sfd_stream.sketch.verify import EPS

POWER_CONSTANT = 0.25
"""The constant of the paper's q = Theta(log(n/eps)/eps). VerifySpectral detects a q that is too small."""

OVERSAMPLING = 6
GAUSSIANS = 2
"""Start columns that are not made of rows: they find a burst in columns that the groups' sums cancel."""

UNEVEN = 2.0
"""Energy is uneven where one of some groups with equal numbers of rows has at least this many times their mean."""

MORE_WHERE_UNEVEN, MORE_D_MAX = 18, 1 << 16
"""How many more start columns there are where energy is uneven: with them two passes separate a burst from noise that
is about as strong. Rows with more than `MORE_D_MAX` columns get `OVERSAMPLING` more: there each one costs memory."""

SQUARE_MIN = 1e-200
"""A squared length below this may have lost digits to underflow."""

DEPENDENT = 1e-8
"""Directions with a smaller eigenvalue of the products' scaled Gram matrix are left out: they amplify rounding."""


def simultaneous_iteration(A: Any, k: int, eps: float, rng: np.random.Generator) -> Float:
    """The paper's SimultaneousIteration: Z (n x k, orthonormal) spans about the top k left singular vectors of A.

    Z = GramSchmidt(A (A'A)^q G), orthonormalised after every factor: the plain power would keep one direction only.
    """
    n, d = A.shape
    q = ceil(POWER_CONSTANT * log(max(n, 2) / eps) / eps)
    Z = orthonormal(A @ rng.standard_normal((d, k)))
    for _ in range(q):
        Z = orthonormal(A @ orthonormal(A.T @ Z))
    return Z


def orthonormal(Y: Float) -> Float:
    return np.asarray(scipy.linalg.qr(Y, mode="economic", check_finite=False)[0])


@dataclass(frozen=True, slots=True)
class Ritz:
    """P = Z'M = T'W' for some orthonormal Z, and the eigenvectors of PP': H'P has P's singular directions as rows.

    P is not formed: with TH = T times these eigenvectors, H'P = (TH)'W'.
    """

    W: Float
    """d x s."""
    TH: Float
    values2: Float
    """Squared singular values of P, descending."""
    amplified: float
    """The rounding error of P, as a multiple of that of a product with M."""

    def directions(self) -> Float:
        """Orthonormal directions (d x s) spanning the rows of P."""
        keep = self.values2 > EPS_RANK * self.values2[0] if len(self.values2) else np.zeros(0, bool)
        V = self.W @ self.TH[:, keep]
        return np.asarray(V / np.linalg.norm(V, axis=0))

    def shrunk(self, ell: int) -> tuple[Float, float]:
        """B' = sqrt(Lambda^2 - lambda^2) V' with lambda the (ell+1)-th singular value, and lambda^2.

        As B' = diag(f) H'P with all f <= 1, B'B' <= P'P whatever the accuracy of the small eigenproblem.
        """
        lambda2 = max(float(self.values2[ell]), 0.0) if len(self.values2) > ell else 0.0
        top = self.values2[:ell]
        top = top[top > max(lambda2, 0.0)]
        f = np.sqrt(1 - lambda2 / top)
        return np.ascontiguousarray((self.TH[:, : len(top)] * f).T @ self.W.T), lambda2


EPS_RANK = 1e-14

DENSE_ENTRIES_MAX = 1 << 24
"""A stack with more entries is never formed, not even to shrink it exactly."""


def one_pass(stack: Stack, starts: list[Float]) -> Ritz:
    """Rayleigh-Ritz on span(MX): one pass over the rows. Z = MX T is never formed, T being a small whitening.

    X is taken out of the list: it is as large as the sketch, and the pass lets it go when it can.
    """
    G, W, additions = stack.gram_pass(starts.pop())
    T, amplified = whitening(G, additions)
    values2, H = _eigen(T.T @ (W.T @ W) @ T)
    return Ritz(W, T @ H, values2, amplified)


def ritz_of(PT: Float) -> Ritz:
    """The result for P itself: T is the identity."""
    values2, H = _eigen(PT.T @ PT)
    return Ritz(PT, H, values2, sqrt(len(H)))


def _eigen(G: Float) -> tuple[Float, Float]:
    """Eigenvalues, descending, and eigenvectors of a symmetric matrix."""
    values, vectors = scipy.linalg.eigh(G, check_finite=False, driver="evd")
    return values[::-1], np.ascontiguousarray(vectors[:, ::-1])


def whitening(G: Float, additions: int) -> tuple[Float, float]:
    """T with T'GT = I on what is not dependent, and how much T amplifies rounding.

    G is scaled to a unit diagonal first, as columns differ by magnitudes. Then what the rounding of all these additions
    may have hidden is added to it: G is at least the exact Y'Y, and so Z'Z <= I for Z = YT.
    """
    s = len(G)
    diagonal = np.sqrt(np.maximum(np.diag(G), 0.0))
    alive = diagonal > sqrt(SQUARE_MIN)
    scaling = np.where(alive, 1 / np.where(alive, diagonal, 1.0), 0.0)
    scaled = scaling[:, None] * G * scaling
    scaled[np.diag_indices(s)] += 2 * EPS * s * (additions + s)
    T = _triangular_whitening(scaled)
    if T is None:
        gamma, U = scipy.linalg.eigh(scaled, check_finite=False, driver="evd")
        keep = gamma > DEPENDENT
        T = U[:, keep] / np.sqrt(gamma[keep])
    return scaling[:, None] * T, sqrt(s) * float(np.linalg.norm(T))


def _triangular_whitening(G: Float) -> Float | None:
    """R^-1 for G = R'R: an eighth of an eigenproblem's time. None where columns may be dependent."""
    R, fault = scipy.linalg.lapack.dpotrf(G)
    if fault:
        return None
    T = np.triu(scipy.linalg.lapack.dtrtri(R)[0])
    return T if np.einsum("ij,ij", T, T) < 1 / DEPENDENT else None


def exact_ritz(stack: Stack, ell: int) -> Ritz:
    """Ritz of all of M, if it has few rows or few columns. Nothing is random. At least ell + 1 directions."""
    if stack.rows <= stack.d:
        small = stack.rows * stack.d <= DENSE_ENTRIES_MAX
        return ritz_of(np.ascontiguousarray(stack.dense().T) if small else _top_of_few_rows(stack, ell + 1))
    G = stack.B.T @ stack.B
    for rows in stack.dense_tiles():
        G += rows.T @ rows
    values2, V = _eigen(G)
    values2 = np.maximum(values2, 0.0)
    return Ritz(np.ascontiguousarray(V * np.sqrt(values2)), np.eye(len(G)), values2, sqrt(len(G)))


def _top_of_few_rows(stack: Stack, count: int) -> Float:
    """Z'M transposed for the strongest left singular vectors Z of M, by MM': M has few rows but is too wide to form."""
    A = stack.A.scipy()
    AB = A @ stack.B.T
    MM = np.block([[stack.B @ stack.B.T, AB.T], [AB, (A @ A.T).toarray()]])
    top = (max(stack.rows - count, 0), stack.rows - 1)
    Z = scipy.linalg.eigh(MM, check_finite=False, subset_by_index=top)[1]
    return np.asarray(stack.B.T @ Z[: len(stack.B)] + A.T @ Z[len(stack.B) :])


def start_columns(stack: Stack, width: int, rng: np.random.Generator, *, uneven: bool = False) -> Float:
    """X (d x width): the sketch's own directions, signed sums of groups of rows, and a few Gaussian columns.

    The groups have equal numbers of rows. Where the energy of the rows is `uneven` they have equal energy, and there
    are more of them: else the strong rows would share too few columns.
    """
    known = len(stack.B)
    fresh = max(width - known, GAUSSIANS + 1)
    if uneven:
        more = MORE_WHERE_UNEVEN if stack.d <= MORE_D_MAX else OVERSAMPLING
        fresh += min(more, min(stack.rows, stack.d) - known - fresh)
    bounds = _equal_energy(stack, fresh - GAUSSIANS) if uneven else equal_counts(stack.block.rows, fresh - GAUSSIANS)
    groups = len(bounds) - 1
    X = np.empty((stack.d, known + fresh))
    X[:, :known] = stack.B.T
    _make_unit(X[:, :known])
    X[:, known : known + groups] = group_sums(stack, bounds, rng).T
    X[:, known + groups :] = rng.standard_normal((stack.d, fresh - groups))
    return _aside(X, known)


def is_uneven(stack: Stack) -> bool:
    """Whether some rows have far more energy than as many others: a burst, or a stream with changing scale."""
    return bool(stack.energies.max() > UNEVEN * stack.energies.mean())


def _equal_energy(stack: Stack, groups: int) -> Int:
    """The bounds of groups with about equal sums of squares. A row above a group's share is a group of its own."""
    squares = np.square(stack.A.values)
    before = np.append(0.0, np.cumsum(squares))[stack.A.indptr]
    marks = np.searchsorted(before, np.linspace(0, before[-1], groups + 1)[1:-1])
    return np.unique(np.concatenate([[0], marks, [stack.block.rows]]))


def restart_columns(ritz: Ritz, witnesses: Float, width: int, rng: np.random.Generator) -> Float:
    """Start columns after a shrink that missed a direction: those found, the witnesses, and new Gaussian columns."""
    V = ritz.directions()[:, :width]
    fresh = max(width - V.shape[1], GAUSSIANS)
    return _aside(np.hstack([V, witnesses, rng.standard_normal((len(V), fresh))]), V.shape[1])


def _aside(X: Float, known: int) -> Float:
    """X with the columns after the `known` ones made orthogonal to those and of unit length, in place."""
    V, N = X[:, :known], X[:, known:]
    if known:
        N -= V @ (V.T @ N)
    _make_unit(N)
    return X


def _make_unit(X: Float) -> None:
    """Scales each column to unit length, in place. A column of zeros stays zero.

    A column whose squares would underflow is divided by its largest entry first.
    """
    squares = np.einsum("ij,ij->j", X, X)
    faint = np.flatnonzero(squares < SQUARE_MIN)
    if len(faint):
        columns = X[:, faint]
        columns /= np.maximum(np.abs(columns).max(axis=0, initial=0.0), np.finfo(np.float64).smallest_subnormal)
        X[:, faint] = columns
        squares[faint] = np.einsum("ij,ij->j", columns, columns)
    X /= np.sqrt(np.where(squares > 0, squares, 1.0))


def group_sums(stack: Stack, bounds: Int, rng: np.random.Generator) -> Float:
    """Signed sums of contiguous groups of the buffered rows (groups x d): an addition for each non-zero."""
    sums = np.zeros((len(bounds) - 1, stack.d))
    signs = rng.integers(0, 2, stack.block.rows) * 2.0 - 1.0
    for (start, stop), row in zip(pairwise(bounds), sums, strict=True):
        stack.A.add_sum_of(start, stop, signs[start:stop], row)
    return sums
