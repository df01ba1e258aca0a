"""Rows that break a wrong sketch, and what to measure one by. Small, so that the truth is one eigenproblem."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from itertools import pairwise
from typing import Any

import numpy as np
import scipy.sparse as sp
from hypothesis import HealthCheck, Phase, settings
from hypothesis import strategies as st

from sfd_stream.sketch.builder import Parameters, SketchBuilder
from sfd_stream.sketch.rows import Float, RowBlock
from sfd_stream.sketch.sketch import Sketch
from sfd_stream.sketch.synthetic import paper_synthetic

EFFORT = int(os.environ.get("SFD_TEST_EFFORT", "1"))
"""Multiplies the examples of every law and, above 1, draws new ones in every run."""

METHODS = ("fused", "paper", "sparse-shrink", "dense")
CERTIFIED = ("fused", "paper")


def examples(number: int) -> settings:
    """A number of examples, the same in every run: a certificate may fail with 1 %, a test must not."""
    return settings(
        max_examples=number * EFFORT,
        deadline=None,
        derandomize=EFFORT == 1,
        database=None,
        phases=[Phase.explicit, Phase.generate],  # a case is readable as it is; making it smaller takes minutes
        suppress_health_check=[HealthCheck.too_slow],
    )


def spiked(rng: np.random.Generator, n: int, d: int) -> Any:
    """A few strong directions over sparse noise."""
    noise = np.where(rng.random((n, d)) < 0.1, rng.standard_normal((n, d)), 0.0)
    strengths = np.array([8.0, 5.0, 3.0, 2.0])[:d]
    directions = np.linalg.qr(rng.standard_normal((d, len(strengths))))[0]
    return noise + (rng.standard_normal((n, len(strengths))) * strengths) @ directions.T


def spiked_rows(n: int, d: int) -> Any:
    return sp.csr_array(spiked(np.random.default_rng(4), n, d))


def decaying(rng: np.random.Generator, n: int, d: int) -> Any:
    """Singular values that fall by a third each: what is missed is most of what there is."""
    Q = np.linalg.qr(rng.standard_normal((d, d)))[0]
    return (rng.standard_normal((n, d)) * 0.67 ** np.arange(d)) @ Q


def flat(rng: np.random.Generator, n: int, d: int) -> Any:
    return np.where(rng.random((n, d)) < 0.15, np.sign(rng.standard_normal((n, d))), 0.0)


def paper_like(rng: np.random.Generator, n: int, d: int) -> Any:
    return paper_synthetic(n, d, max(d // 10, 1), int(rng.integers(2**31))).toarray()


def turning(rng: np.random.Generator, n: int, d: int) -> Any:
    """The dominant subspace is another one in each quarter of the stream."""
    parts = [(rng.standard_normal((n, 5)) @ rng.standard_normal((5, d))) * 2.0**quarter for quarter in range(4)]
    quarter_of = np.arange(n) * 4 // n
    return np.stack(parts)[quarter_of, np.arange(n)] + 0.3 * rng.standard_normal((n, d))


def burst(rng: np.random.Generator, n: int, d: int) -> Any:
    """Late rows, few and strong, in columns that no row has used before."""
    A = flat(rng, n, d)
    used = d - d // 4
    A[:, used:] = 0.0
    late = np.arange(n - max(n // 12, 1), n)
    A[late] = 0.0
    A[late[:, None], np.arange(used, d)] = 12.0 * rng.standard_normal(d - used)
    return A


def text(rng: np.random.Generator, n: int, d: int) -> Any:
    """Counts of words whose frequency falls like 1/rank, in documents of very different length."""
    p = 1 / np.arange(1, d + 1)
    lengths = rng.integers(1, 60, n)
    return np.stack([rng.multinomial(length, p / p.sum()) for length in lengths]).astype(float)


def low_rank(rng: np.random.Generator, n: int, d: int) -> Any:
    return rng.standard_normal((n, 5)) @ np.where(rng.random((5, d)) < 0.4, rng.standard_normal((5, d)), 0.0)


def late_burst(rng: np.random.Generator, n: int, d: int, rank: int = 6, late: int = 20) -> Any:
    """The paper's rows, and at the end strong ones of this rank in columns that no row has used before."""
    count, half = n // late, d // 2
    calm = paper_synthetic(n - count, half, max(d // 20, 1), int(rng.integers(2**31)))
    calm.resize((n - count, d))
    directions = 5.0 * sp.random_array((rank, half), density=0.05, rng=rng, format="csr")
    strong = sp.csr_array(rng.standard_normal((count, rank))) @ directions
    return sp.vstack([calm, sp.hstack([sp.csr_array((count, d - half)), strong])], format="csr")


def rescaled(rng: np.random.Generator, n: int, d: int) -> Any:
    """After two thirds other columns are used, and all is thirty times as large."""
    z, turn = 30, 2 * n // 3
    columns = np.argsort(rng.random((n, d // 3)), axis=1)[:, :z]
    columns[turn:] += d // 3
    values = rng.standard_normal((n, z))
    values[turn:] *= 30.0
    return sp.csr_array((values.ravel(), (np.repeat(np.arange(n), z), columns.ravel())), shape=(n, d))


FAMILIES: dict[str, Callable[[np.random.Generator, int, int], Any]] = {
    "spiked": spiked,
    "decaying": decaying,
    "flat": flat,
    "paper-like": paper_like,
    "turning": turning,
    "burst": burst,
    "text": text,
    "low-rank": low_rank,
}


def as_it_comes(A: Any) -> Any:
    return A


def weakest_first(A: Any) -> Any:
    return A[np.argsort(np.linalg.norm(A, axis=1), kind="stable")]


def strongest_first(A: Any) -> Any:
    return weakest_first(A)[::-1]


def one_direction_first(A: Any) -> Any:
    """All rows that lean to the first right singular vector before all others."""
    top = np.linalg.svd(A, full_matrices=False)[2][0]
    return A[np.argsort(-np.abs(A @ top), kind="stable")]


def alternating(A: Any) -> Any:
    """Strong, weak, strong, weak; and every second pair turned around in sign."""
    ranked = weakest_first(A)
    order = np.empty(len(A), dtype=int)
    order[0::2] = np.arange(len(A) - len(A) // 2)[::-1] + len(A) // 2
    order[1::2] = np.arange(len(A) // 2)
    return ranked[order] * np.where(np.arange(len(A)) % 4 < 2, 1.0, -1.0)[:, None]


ORDERS = (as_it_comes, weakest_first, strongest_first, one_direction_first, alternating)


@dataclass(frozen=True)
class Case:
    """Rows, and how they are sketched: with a buffer of about `buffer_rows`, so that a small test has many shrinks."""

    family: str
    order: Callable[[Any], Any]
    seed: int
    n: int
    d: int
    ell: int
    buffer_rows: int
    method: str

    def rows(self) -> Any:
        return _rows(self)

    def parameters(self, **other: Any) -> Parameters:
        entries = max(self.buffer_rows * (self.rows().nnz + self.n) // self.n, 1)
        common = Parameters(self.d, self.ell, self.method, seed=self.seed % 97, buffer_entries_max=entries)
        return replace(common, **other)

    def built(self, A: Any | None = None, cuts: Sequence[int] = (), **other: Any) -> SketchBuilder:
        return built(self.rows() if A is None else A, self.parameters(**other), cuts)


@lru_cache(maxsize=4)
def _rows(case: Case) -> Any:
    rng = np.random.default_rng(case.seed)
    return sp.csr_array(case.order(FAMILIES[case.family](rng, case.n, case.d)))


def cases(
    methods: Sequence[str] = METHODS,
    families: Sequence[str] = tuple(FAMILIES),
    ells: tuple[int, int] = (1, 24),
    columns: tuple[int, int] = (1, 80),
    rows: tuple[int, int] = (1, 260),
    buffer_rows: tuple[int, int] = (8, 120),
) -> st.SearchStrategy[Case]:
    return st.builds(
        Case,
        family=st.sampled_from(families),
        order=st.sampled_from(ORDERS),
        seed=st.integers(0, 2**20),
        n=st.integers(*rows),
        d=st.integers(*columns),
        ell=st.integers(*ells),
        buffer_rows=st.integers(*buffer_rows),
        method=st.sampled_from(methods),
    )


def random_route(methods: Sequence[str] = CERTIFIED, families: Sequence[str] = tuple(FAMILIES)) -> Any:
    """Cases large enough that the fused shrink looks at random and is verified, with alpha*ell > 2."""
    return cases(methods, families, ells=(14, 20), columns=(56, 80), rows=(120, 300), buffer_rows=(54, 120))


def built(A: Any, parameters: Parameters, cuts: Sequence[int] = ()) -> SketchBuilder:
    """A builder that took the rows of A in, split at `cuts`."""
    block = RowBlock.from_csr(A)
    builder = SketchBuilder(parameters)
    bounds = [0, *sorted(min(cut, block.rows) for cut in cuts), block.rows]
    for start, stop in pairwise(bounds):
        builder.absorb(block.take(start, stop))
    return builder


def gram(A: Any) -> Float:
    return np.asarray((A.T @ A).toarray() if sp.issparse(A) else A.T @ A)


def error_range(A: Any, sketch: Sketch) -> tuple[float, float]:
    """The least and the largest eigenvalue of A'A - B'B."""
    B = np.asarray(sketch.matrix, np.float64)
    values = np.linalg.eigvalsh(gram(A) - B.T @ B)
    return float(values[0]), float(values[-1])


def noise(A: Any) -> float:
    """What computing the truth itself may be wrong by."""
    return 1e-13 * float(np.trace(gram(A))) + 1e-300


def obeys_its_bound(A: Any, sketch: Sketch) -> bool:
    """-rounding*I <= A'A - B'B <= delta*I"""
    low, high = error_range(A, sketch)
    return low >= -sketch.rounding - noise(A) and high <= sketch.delta + noise(A)


def theorem_gaps(A: Any, sketch: Sketch, alpha: float) -> list[tuple[float, float]]:
    """For every 0 <= k < alpha*ell: how far both sides of the theorem are from being broken (negative: broken)."""
    values = np.maximum(np.linalg.eigvalsh(gram(A))[::-1], 0.0)
    total, slack = float(values.sum()), sketch.d * sketch.rounding + noise(A)
    low, high = error_range(A, sketch)
    gaps = []
    for k in range(int(np.ceil(alpha * sketch.ell))):
        tail = float(values[k:].sum())
        V = sketch.components()[:k] if len(sketch.matrix) else np.zeros((0, sketch.d))
        projected = total - float(np.sum((A @ V.T) ** 2))
        spectral = tail / (alpha * sketch.ell - k) - max(high, -low)
        frobenius = sketch.ell / (sketch.ell - k / alpha) * tail - projected
        gaps.append((spectral + slack, frobenius + slack))
    return gaps
