"""Have the rows changed? Two statements that must not be confused, with their proofs in docs/guarantees.md ("Drift").

`Drift` is certified and about the rows of two sketches: do they differ by more than the sketches' error? Two samples
of one process do. `significance` is about the process: is the change beyond sampling noise?
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import scipy.linalg
from scipy.special import stdtr, stdtrit

from sfd_stream.sketch.basis import energy_inside
from sfd_stream.sketch.intervals import Interval, interval
from sfd_stream.sketch.rows import Float, whole
from sfd_stream.sketch.verify import EPS


@dataclass(frozen=True, eq=False)
class Drift:
    """How far the rows of one sketch are from those of another, the reference: what `Sketch.drift` returns.

    `angles` are the principal angles in radians, the largest first, between the top-k subspaces of the two sketches.
    Each of the true angles, those between the top-k subspaces of the rows themselves, lies within `error` of the one
    given here. An `error` of pi/2 says nothing: the spectrum has no gap after k that the sketches can see.

    `outside` is the share of these rows' energy outside the reference's k directions, `reference_outside` that of the
    reference's own rows.

    >>> from sfd_stream import SparseFrequentDirections, paper_synthetic
    >>> old, new = (SparseFrequentDirections(ell=20).fit(paper_synthetic(500, 50, 5, seed=s)).sketch() for s in (0, 1))
    >>> drift = new.drift(old, k=2)
    >>> drift.angles.shape, bool((drift.lower <= drift.upper).all()), drift.differs
    ((2,), True, True)
    """

    angles: Float
    error: float
    failure_probability: float
    outside: Interval
    reference_outside: Interval

    @property
    def lower(self) -> Float:
        """The least that each true angle can be."""
        return np.asarray(np.maximum(self.angles - self.error, 0.0))

    @property
    def upper(self) -> Float:
        """The most that each true angle can be."""
        return np.asarray(np.minimum(self.angles + self.error, np.pi / 2))

    @property
    def differs(self) -> bool:
        """Whether these rows have more or less of their energy outside the reference's directions than the reference's
        own rows, beyond the error of both sketches. It is certified, and about these rows alone: two samples of one
        process differ, too. Whether the process has changed is a question for `significance`.
        """
        own = self.reference_outside
        return self.outside.lower > own.upper or self.outside.upper < own.lower

    def __repr__(self) -> str:
        degrees = np.degrees([self.angles[0], self.error])
        shares = (f"{each.lower:.2%} to {each.upper:.2%}" for each in (self.outside, self.reference_outside))
        return (
            f"Drift(largest {degrees[0]:.2f} degrees, +- {degrees[1]:.2f}, k={len(self.angles)}, "
            "outside the reference {} of the energy, of its own rows {})".format(*shares)
        )


class Spectrum(NamedTuple):
    """B's singular values and right vectors; `error` is delta + rounding, the width of the range of A'A - B'B."""

    values: Float
    VT: Float
    error: float
    failure_probability: float


class Energy(NamedTuple):
    """A sketch's matrix and what bounds the energy of its rows; `slack` is what rounding may change in it."""

    B: Float
    squared_frobenius: float
    delta: float
    rounding: float
    slack: float

    def share_outside(self, V: Float) -> Interval:
        """The share of the rows' energy outside the directions V."""
        total, slack = self.squared_frobenius, (len(V) + 1) * self.slack
        if total <= slack:  # squares that have underflowed say nothing
            return interval(0.0, 1.0)
        inside = energy_inside(self.B, V, total, self.delta, self.rounding)
        shares = (1 - (inside.upper + slack) / total, 1 - (inside.lower - slack) / total)
        return interval(*(min(max(share, 0.0), 1.0) for share in shares))


def drift_of(one: Spectrum, other: Spectrum, k: int, energies: tuple[Energy, Energy]) -> Drift:
    """The drift of one sketch from another, the reference; `energies` are of both, in this order."""
    rank = min(int(np.count_nonzero(one.values)), int(np.count_nonzero(other.values)))
    if whole("k", k, 1) > rank == 0:
        raise ValueError(f"k = {k}, but one of the sketches has no directions: its matrix is zero")
    if k > rank:
        raise ValueError(f"k = {k}, but both sketches have {rank} directions: ask for at most {rank}")
    outside, reference_outside = (energy.share_outside(other.VT[:k]) for energy in energies)
    return Drift(
        angles=principal_angles(one.VT[:k], other.VT[:k]),
        error=min(tilt(one, k) + tilt(other, k), np.pi / 2),
        failure_probability=min(one.failure_probability + other.failure_probability, 1.0),
        outside=outside,
        reference_outside=reference_outside,
    )


def tilt(spectrum: Spectrum, k: int) -> float:
    """At most how far (radians) the sketch's top-k subspace is from that of the rows.

    With the gap after k, sin(2 tilt) <= error/gap when that is below 1; else nothing is known.
    """
    squares = np.append(spectrum.values**2, 0.0)
    gap = float(squares[k - 1] - squares[k])
    slack = 8 * EPS * (len(squares) + spectrum.VT.shape[1]) * float(squares.sum())  # of the decomposition itself
    if gap <= spectrum.error + slack:
        return float(np.pi / 2)
    return float(np.arcsin((spectrum.error + slack) / gap) / 2)


def principal_angles(V: Float, W: Float) -> Float:
    """Between the spans of orthonormal rows, the largest first; small angles as exact as large ones."""
    return np.asarray(scipy.linalg.subspace_angles(V.T, W.T))


def mean_squared_sine(V: Float, W: Float) -> float:
    """Of the principal angles between the spans of orthonormal rows: 0 the same, 1 orthogonal.

    V may have fewer columns than W, as from before the columns grew: it is zero in the rest.
    """
    k = min(len(V), len(W))
    if k == 0:
        return 0.0
    cosines = V[:k] @ W[:k, : V.shape[1]].T
    return float(np.clip(1.0 - np.sum(cosines**2) / k, 0.0, 1.0))


def moved_columns(V: Float, reference: Float) -> Float:
    """By column: its share of what the directions V have outside those of the reference. Zeros where nothing is.

    Both have k orthonormal rows and the same columns; the squares add up to those of the sines of all angles.
    """
    squares = np.sum((V - (V @ reference.T) @ reference) ** 2, axis=0)
    whole_share = float(squares.sum())
    return np.asarray(squares / whole_share if whole_share > len(V) * EPS else np.zeros_like(squares))


class Significance(NamedTuple):
    """Whether a stream has changed beyond sampling noise: what `significance` returns.

    `p_value` takes all looks and windows into account: it is significant where it is at most alpha. The last `window`
    blocks deviate most; their mean is off that of the baseline by `change`. The change of the process itself lies
    between `lower` and `upper`: with probability 1 - alpha at all looks together.

    >>> from sfd_stream import significance
    >>> baseline = [0.10, 0.11, 0.09, 0.10, 0.12, 0.10, 0.09, 0.11]
    >>> significance(baseline, [0.10, 0.31, 0.30]).window
    2
    """

    significant: bool
    p_value: float
    window: int
    change: float
    lower: float
    upper: float


def significance(
    baseline: npt.ArrayLike, blocks: npt.ArrayLike, alpha: float = 1e-4, *, looks: int | None = None
) -> Significance:
    """Whether the newest blocks of a stream differ from a baseline beyond sampling noise, at level alpha.

    Both are means over blocks of the same number of rows, in the order of the stream, such as means of the residual
    share: `baseline` of blocks after the basis was fixed (40 are good), `blocks` of all since then. Ask after every
    block: over all looks together a stream that does not change is called significant with probability alpha at most,
    if blocks are independent and long enough for their means to be normal. A block should have at least ten times as
    many rows as are correlated with each other. Who has kept only the last blocks says how many there were: `looks`.

    >>> from sfd_stream import significance
    >>> baseline = [0.10, 0.11, 0.09, 0.10, 0.12, 0.10, 0.09, 0.11]
    >>> significance(baseline, [0.10, 0.11]).significant, significance(baseline, [0.10, 0.31]).significant
    (False, True)
    """
    baseline, blocks = (np.asarray(each, np.float64) for each in (baseline, blocks))
    if len(baseline) < 2 or not len(blocks):
        raise ValueError(f"{len(baseline)} blocks before and {len(blocks)} after: at least 2 and 1 are needed")
    if looks is not None and looks < len(blocks):
        raise ValueError(f"looks = {looks}, but there are {len(blocks)} blocks")
    windows = 2 ** np.arange(len(blocks).bit_length())
    changes = np.array([blocks[-window:].mean() for window in windows]) - baseline.mean()
    spread = baseline.std(ddof=1) * np.sqrt(1 / windows + 1 / len(baseline))
    distances = np.divide(np.abs(changes), spread, out=np.where(changes == 0, 0.0, np.inf), where=spread > 0)
    tails = 2 * stdtr(len(baseline) - 1, -distances)
    best = int(np.argmin(tails))
    # Look t may spend 6/(pi^2 t^2) of alpha, shared by its windows: over all looks that adds up to alpha.
    spent = len(windows) * (np.pi * (looks or len(blocks))) ** 2 / 6
    p_value = min(float(tails[best] * spent), 1.0)
    change, width = float(changes[best]), float(-stdtrit(len(baseline) - 1, alpha / spent / 2) * spread[best])
    return Significance(p_value <= alpha, p_value, int(windows[best]), change, change - width, change + width)
