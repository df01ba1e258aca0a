"""The matrices of the benchmark: the paper's four sweeps, the rows with a floor and a goal, and harder streams.

All are made from a seed; a file comes in by its path only.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import scipy.sparse as sp

from sfd_stream import paper_synthetic

SEED = 0


@dataclass(frozen=True, slots=True)
class Shape:
    """One run on the paper's generator; the defaults are the paper's."""

    n: int = 10_000
    d: int = 1_000
    ell: int = 50
    z: int = 100

    def matrix(self) -> Any:
        return paper_synthetic(self.n, self.d, self.z, SEED)


@dataclass(frozen=True, slots=True)
class Target:
    """How many times faster than FD by numpy's SVD `fused` must be (floor) and should be (goal)."""

    name: str
    shape: Shape
    floor: float
    goal: float

    def verdict(self, ratio: float) -> str:
        if ratio >= self.goal:
            return "goal reached"
        return "floor reached" if ratio >= self.floor else "below floor"


TARGETS = (
    Target("default (z=100)", Shape(), 25, 36),
    Target("z=5", Shape(z=5), 170, 280),
    Target("z=20", Shape(z=20), 90, 150),
    Target("z=500", Shape(z=500), 6, 10),
    Target("ell=10", Shape(ell=10), 20, 40),
    Target("ell=100", Shape(ell=100), 21, 32),
)

SWEEPS: dict[str, tuple[int, ...]] = {
    "n": (10_000, 20_000, 30_000, 40_000, 50_000, 60_000),
    "d": (1_000, 2_000, 3_000, 4_000, 5_000, 6_000),
    "ell": (5, 10, 20, 35, 50, 75, 100),
    "z": (5, 10, 20, 50, 100, 200, 500),
}

QUICK_SWEEPS: dict[str, tuple[int, ...]] = {"n": (10_000,), "d": (2_000,), "ell": (10,), "z": (5,)}


def sweep_shapes(sweeps: dict[str, tuple[int, ...]]) -> list[tuple[str, Shape]]:
    return [(axis, replace(Shape(), **{axis: value})) for axis, values in sweeps.items() for value in values]


def load(path: Path) -> Any:
    """A scipy .npz as float64 CSR."""
    matrix = sp.csr_array(sp.load_npz(path)).astype(np.float64)
    matrix.sum_duplicates()
    return matrix


def uniform(rows: int, d: int, density: float) -> Any:
    return sp.random_array((rows, d), density=density, rng=np.random.default_rng(SEED), format="csr")


def zipf_text(n: int = 10_000, d: int = 2_000) -> Any:
    """Rows like texts: about 80 words each, drawn with Zipf's frequencies from one of twenty topics or from all."""
    rng = np.random.default_rng(SEED)
    weights = 1 / np.arange(1, d + 1)
    topics = [rng.permutation(d) for _ in range(20)]
    lengths = rng.poisson(80, n) + 1
    words = rng.choice(d, size=int(lengths.sum()), p=weights / weights.sum())
    row = np.repeat(np.arange(n), lengths)
    of_topic = rng.random(len(words)) < 0.5
    mapping = np.array(topics)[rng.integers(0, 20, n)[row], words]
    columns = np.where(of_topic, mapping, words)
    return sp.csr_array((np.ones(len(words)), (row, columns)), shape=(n, d))


def turning(n: int = 30_000, d: int = 500, rank: int = 8, z: int = 50) -> Any:
    """A dominant subspace that turns by a quarter over the stream, seen through z random columns a row."""
    rng = np.random.default_rng(SEED)
    frame = np.linalg.qr(rng.standard_normal((d, 2 * rank)))[0]
    angle = np.linspace(0, np.pi / 2, n)[:, None, None]
    weights = rng.standard_normal((n, rank)) * np.linspace(3, 1, rank)
    along = np.einsum("nr,dr->nd", weights * np.cos(angle[:, 0]), frame[:, :rank])
    across = np.einsum("nr,dr->nd", weights * np.sin(angle[:, 0]), frame[:, rank:])
    seen = np.argsort(rng.random((n, d)), axis=1)[:, :z]
    values = np.take_along_axis(along + across + 0.02 * rng.standard_normal((n, d)), seen, axis=1)
    return sp.csr_array((values.ravel(), (np.repeat(np.arange(n), z), seen.ravel())), shape=(n, d))


def late_burst(n: int = 30_000, d: int = 1_000) -> Any:
    """The paper's rows in the first half of the columns; the last twentieth are strong rows in a few unused columns."""
    rng = np.random.default_rng(SEED)
    late = n // 20
    calm = paper_synthetic(n - late, d // 2, 50, SEED)
    calm.resize((n - late, d))
    directions = 5.0 * sp.random_array((6, d // 2), density=0.05, rng=rng, format="csr")
    burst = sp.csr_array(rng.standard_normal((late, 6))) @ directions
    return sp.vstack([calm, sp.hstack([sp.csr_array((late, d - d // 2)), burst])], format="csr")


@dataclass(frozen=True, slots=True)
class Stream:
    """A case of the certificate's table: how tight should delta be on it?"""

    name: str
    matrix: Callable[[], Any]
    ell: int
    most: float
    """delta / true error at most."""


STREAMS = (
    Stream("default", Shape().matrix, 50, 1.5),
    Stream("z=5", Shape(z=5).matrix, 50, 2.5),
    Stream("z=20", Shape(z=20).matrix, 50, 2.5),
    Stream("z=500", Shape(z=500).matrix, 50, 2.5),
    Stream("ell=10", Shape().matrix, 10, 2.5),
    Stream("ell=100", Shape().matrix, 100, 2.5),
    Stream("n=60,000", Shape(n=60_000).matrix, 50, 2.5),
    Stream("text-like (Zipf), ell=8", zipf_text, 8, 2.5),
    Stream("text-like (Zipf), ell=30", zipf_text, 30, 2.5),
    Stream("turning subspace, ell=8", turning, 8, 2.5),
    Stream("turning subspace, ell=30", turning, 30, 2.5),
    Stream("late burst, ell=8", late_burst, 8, 2.5),
    Stream("late burst, ell=30", late_burst, 30, 2.5),
)

RIVAL_STREAMS = (
    Stream("100 of 1,000 non-zero", Shape().matrix, 50, 1.5),
    Stream("10 of 1,000 non-zero", Shape(z=10).matrix, 50, 2.5),
    Stream("text-like (Zipf)", zipf_text, 50, 2.5),
    Stream("turning subspace", turning, 30, 2.5),
    Stream("late burst", late_burst, 30, 2.5),
)
"""Where `fused` is compared with what one would use instead: rows that stay alike, and rows that change."""
