"""Who runs, and how what they give is judged: one face for our methods and for everybody else's."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict, dataclass
from math import nan
from typing import Any

import numpy as np
from scipy.sparse.linalg import svds

from benchmarks import baselines
from benchmarks.timing import Timed, interleaved
from sfd_stream import Sketch, SparseFrequentDirections, covariance_error
from sfd_stream.sketch.sketch import at_most

K = 10
"""The paper's k for the projection error."""

FUSED, FD_SVD = "fused", "FD by SVD"
STREAMING = ["gensim LSI", "IncrementalPCA", "Tropp one-pass"]
AT_REST = ["TruncatedSVD", "scipy svds", "randomized SVD", "fbpca"]
RIVALS = [FUSED, *STREAMING, *AT_REST]
"""Alternatives, as docs/experiments.md compares them: first those that read a stream once, then those that need the
matrix at rest."""

Contender = Callable[[Any, int], Sketch]


def ours(method: str) -> Contender:
    def run(A: Any, ell: int) -> Sketch:
        return SparseFrequentDirections(ell=ell, method=method).fit(A).sketch()

    return run


def theirs(function: Callable[[Any, int], Any]) -> Contender:
    def run(A: Any, ell: int) -> Sketch:
        return bare_sketch(function(A, ell), ell)

    return run


def bare_sketch(B: Any, ell: int) -> Sketch:
    """Somebody else's matrix as a `Sketch` that promises nothing, so that the same measures take it."""
    return Sketch(
        matrix=B,
        ell=ell,
        delta=nan,
        failure_probability=1.0,
        rows=0,
        nnz=0,
        squared_frobenius=0.0,
        column_sums=np.zeros(B.shape[1]),
        weight=0.0,
        shrinks=0,
    )


def contenders() -> dict[str, Contender]:
    """In the order they take turns; gensim and fbpca only where they are installed."""
    everybody = {
        FUSED: ours("fused"),
        "paper": ours("paper"),
        "sparse-shrink": ours("sparse-shrink"),
        FD_SVD: theirs(baselines.fd_by_svd),
        "FD by Gram": theirs(baselines.fd_by_gram),
        "TruncatedSVD": theirs(baselines.truncated_svd),
        "IncrementalPCA": theirs(baselines.incremental_pca),
    }
    everybody |= {
        "Tropp one-pass": theirs(baselines.tropp_one_pass),
        "scipy svds": theirs(baselines.lanczos),
        "randomized SVD": theirs(baselines.without_power_steps),
    }
    if baselines.is_installed("gensim"):
        everybody["gensim LSI"] = theirs(baselines.lsi_one_pass)
    if baselines.is_installed("fbpca"):
        everybody["fbpca"] = theirs(baselines.by_fbpca)
    return everybody


@dataclass(frozen=True, slots=True)
class Score:
    """One contender on one matrix."""

    name: str
    cpu_s: float
    wall_s: float
    runs: int
    cov_err: float
    proj_err: float
    tightness: float
    """Certified delta over the true error; not a number for those who certify nothing."""

    def as_dict(self) -> dict[str, Any]:
        return asdict(self)


class Truth:
    """What is known of a matrix once and asked for every contender."""

    def __init__(self, A: Any) -> None:
        self.A = A
        self.total = float(A.data @ A.data)
        start = np.random.default_rng(0).standard_normal(min(A.shape))
        top = svds(A, k=K, v0=start, return_singular_vectors=False)
        self.best = self.total - float(top @ top)

    def score(self, name: str, timed: Timed) -> Score:
        sketch: Sketch = timed.outcome
        cov_err = covariance_error(self.A, sketch)
        projected = self.A @ sketch.components(at_most(K, sketch)).T
        proj_err = (self.total - float(np.sum(projected * projected))) / self.best
        tightness = sketch.delta / (cov_err * self.total)
        return Score(name, timed.cpu_s, timed.wall_s, timed.runs, cov_err, proj_err, tightness)


def compare(A: Any, ell: int, names: list[str], *, rounds: int, budget_s: float) -> list[Score]:
    """The named contenders in turns on one matrix, each judged."""
    everybody = contenders()
    jobs = {name: _job(everybody[name], A, ell) for name in names if name in everybody}
    truth = Truth(A)
    return [truth.score(name, timed) for name, timed in interleaved(jobs, rounds=rounds, budget_s=budget_s).items()]


def _job(contender: Contender, A: Any, ell: int) -> Callable[[], Sketch]:
    return lambda: contender(A, ell)
