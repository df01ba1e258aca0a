"""Two different tests for changed rows. Their proofs are in docs/guarantees.md ("Drift").

`Drift` is certified. It compares the rows of two sketches: do they differ by more than the sketches' error? Two samples
of one process usually do. `significance` tests the process: is the change larger than sampling noise?
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import scipy.linalg
from scipy.special import stdtr, stdtrit

from sfd_stream.sketch.intervals import Interval
from sfd_stream.sketch.rows import Float, whole
from sfd_stream.sketch.verify import EPS


@dataclass(frozen=True, eq=False)
class Drift:
    """How far the rows of one sketch are from those of another, the reference: what `Sketch.drift` returns.

    `angles` are the principal angles in radians, the largest first, between the top-k subspaces of the two sketches.
    Each of the true angles, those between the top-k subspaces of the rows themselves, lies within `error` of the one
    given here. An `error` of pi/2 means that nothing is known: the sketches show no gap in the spectrum after k.

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
        """The lower bound of each true angle."""
        return np.asarray(np.maximum(self.angles - self.error, 0.0))

    @property
    def upper(self) -> Float:
        """The upper bound of each true angle."""
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


Outside = Callable[[Float], Interval]
"""Directions to the share of a sketch's rows' energy that is outside of them."""


def drift_of(one: Spectrum, other: Spectrum, k: int, shares: tuple[Outside, Outside]) -> Drift:
    """The drift of one sketch from another, the reference; `shares` are of both, in this order."""
    rank = min(int(np.count_nonzero(one.values)), int(np.count_nonzero(other.values)))
    if whole("k", k, 1) > rank == 0:
        raise ValueError(f"k = {k}, but one of the sketches has no directions: its matrix is zero")
    if k > rank:
        raise ValueError(f"k = {k}, but both sketches have {rank} directions: ask for at most {rank}")
    outside, reference_outside = (share(other.VT[:k]) for share in shares)
    return Drift(
        angles=np.asarray(scipy.linalg.subspace_angles(one.VT[:k].T, other.VT[:k].T)),
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


def mean_squared_sine(V: Float, W: Float) -> float:
    """The sines of the principal angles between the spans of orthonormal rows: 0 the same, 1 orthogonal.

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
    many rows as are correlated with each other. If only the last blocks were kept, `looks` is the number of all.

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
