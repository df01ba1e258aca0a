"""How far the top directions of one sketch are from those of another, and how much of that may be sketch error.

The proof of the bound is in docs/guarantees.md ("Drift").
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import scipy.linalg

from sfd_stream.sketch.rows import Float, whole
from sfd_stream.sketch.verify import EPS


@dataclass(frozen=True, eq=False)
class Drift:
    """Principal angles in radians, the largest first, between two subspaces of dimension k.

    Each of the true angles, those between the top-k subspaces of the rows themselves, lies within `error` of the one
    given here. An `error` of pi/2 says nothing: the spectrum has no gap after k that the sketches can see.

    >>> from sfd_stream import SparseFrequentDirections, paper_synthetic
    >>> old, new = (SparseFrequentDirections(ell=20).fit(paper_synthetic(500, 50, 5, seed=s)).sketch() for s in (0, 1))
    >>> drift = new.drift(old, k=2)
    >>> drift.angles.shape, bool((drift.lower <= drift.upper).all())
    ((2,), True)
    """

    angles: Float
    error: float
    failure_probability: float

    @property
    def lower(self) -> Float:
        """The least that each true angle can be."""
        return np.asarray(np.maximum(self.angles - self.error, 0.0))

    @property
    def upper(self) -> Float:
        """The most that each true angle can be."""
        return np.asarray(np.minimum(self.angles + self.error, np.pi / 2))

    @property
    def certain(self) -> bool:
        """Whether the subspaces differ beyond the sketch's error: those of the rows that were read, not only those of
        their sketches. It says nothing about the process that made the rows: two samples of one process differ, too.
        """
        return bool(self.lower[0] > 0)

    def __repr__(self) -> str:
        degrees = np.degrees([self.angles[0], self.error])
        return f"Drift(largest {degrees[0]:.2f} degrees, +- {degrees[1]:.2f}, k={len(self.angles)})"


class Spectrum(NamedTuple):
    """B's singular values and right vectors; `error` is delta + rounding, the width of the range of A'A - B'B."""

    values: Float
    VT: Float
    error: float
    failure_probability: float


def drift_of(one: Spectrum, other: Spectrum, k: int) -> Drift:
    rank = min(int(np.count_nonzero(one.values)), int(np.count_nonzero(other.values)))
    if whole("k", k, 1) > rank == 0:
        raise ValueError(f"k = {k}, but one of the sketches has no directions: its matrix is zero")
    if k > rank:
        raise ValueError(f"k = {k}, but both sketches have {rank} directions: ask for at most {rank}")
    return Drift(
        angles=principal_angles(one.VT[:k], other.VT[:k]),
        error=min(tilt(one, k) + tilt(other, k), np.pi / 2),
        failure_probability=min(one.failure_probability + other.failure_probability, 1.0),
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
