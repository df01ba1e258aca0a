"""Streams to score, and the true scores of their rows in extended precision."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any

import numpy as np
import scipy.sparse as sp

from sfd_stream import Scorer, Sketch
from tests.unit.sketch.matrices import (
    FAMILIES,
    Parameters,
    alternating,
    as_it_comes,
    built,
    late_burst,
    one_direction_first,
    strongest_first,
    weakest_first,
)

N, D = 240, 60
ELLS = (4, 15, 30)
FORMS = ("fused", "dense", "half-life", "float32", "merged")
HALF_LIFE = 60.0
LONG = np.longdouble
TOLERANCE = 0.0 if np.finfo(LONG).eps < 1e-18 else 1e-9
"""Of the truth itself: none where it is computed in more digits than the scores are."""


def around_a_far_mean(rng: np.random.Generator, n: int, d: int) -> Any:
    return FAMILIES["spiked"](rng, n, d) + 1000.0


def rescaled(rng: np.random.Generator, n: int, d: int) -> Any:
    """The last third is thirty times as large and in columns that no row has used before."""
    A = FAMILIES["flat"](rng, n, d)
    A[: 2 * n // 3, d // 2 :] = 0.0
    A[2 * n // 3 :, : d // 2] = 0.0
    A[2 * n // 3 :] *= 30.0
    return A


def dense(family: Any) -> Any:
    return lambda rng, n, d: family(rng, n, d).toarray()


STREAMS: dict[str, tuple[Any, Any]] = {
    **{name: (family, as_it_comes) for name, family in FAMILIES.items()},
    "late burst": (dense(late_burst), as_it_comes),
    "rescaled": (rescaled, as_it_comes),
    "far mean": (around_a_far_mean, as_it_comes),
    "weakest first": (FAMILIES["decaying"], weakest_first),
    "strongest first": (FAMILIES["spiked"], strongest_first),
    "one direction first": (FAMILIES["spiked"], one_direction_first),
    "alternating": (FAMILIES["decaying"], alternating),
}


@dataclass(frozen=True)
class Setting:
    """How a stream is sketched and scored."""

    stream: str
    ell: int
    form: str
    centred: bool
    seed: int = 0

    def rows(self) -> Any:
        return stream_rows(self.stream, self.seed)

    def weights(self) -> Any:
        ages = np.arange(N)[::-1].astype(LONG)
        return LONG(2) ** (-ages / LONG(HALF_LIFE)) if self.form == "half-life" else np.ones(N, LONG)

    def sketch(self) -> Sketch:
        return made_sketch(self.stream, self.ell, self.form, self.seed)

    def scorer(self, delta_factor: float = 1.0) -> Scorer:
        sketch = self.sketch()
        return replace(sketch, delta=sketch.delta * delta_factor).scorer(centred=self.centred)


@lru_cache(maxsize=4)
def stream_rows(stream: str, seed: int) -> Any:
    family, order = STREAMS[stream]
    return order(family(np.random.default_rng([seed, 7]), N, D))


@lru_cache(maxsize=16)
def made_sketch(stream: str, ell: int, form: str, seed: int) -> Sketch:
    A = sp.csr_array(stream_rows(stream, seed))
    entries = max(54 * (A.nnz + N) // N, 1)
    parameters = Parameters(D, ell, "dense" if form == "dense" else "fused", seed=seed, buffer_entries_max=entries)
    if form == "half-life":
        parameters = replace(parameters, half_life_rows=HALF_LIFE)
    if form == "merged":
        thirds = [built(A[start::3], parameters).sketch() for start in range(3)]
        return Sketch.merge_all(thirds)
    sketch = built(A, parameters).sketch()
    return sketch.astype("float32") if form == "float32" else sketch


class Truth:
    """The scores of all rows of a setting by all rows themselves, in extended precision."""

    def __init__(self, setting: Setting, scorer: Scorer) -> None:
        X, w = np.asarray(setting.rows(), LONG), setting.weights()
        self.V = np.asarray(scorer.components, LONG)
        published = np.zeros(D, LONG) if scorer.mean is None else np.asarray(scorer.mean, LONG)
        mean = (w @ X) / w.sum() if setting.centred else np.zeros(D, LONG)
        self.S = (X - mean).T @ ((X - mean) * w[:, None])
        self.weights, self.weight = w, w.sum()
        self.Z = X - published
        self.y = self.Z @ self.V.T

    def residual(self) -> Any:
        return np.sum((self.Z - self.y @ self.V) ** 2, axis=1)

    def mean_residual(self) -> Any:
        return self.weights @ self.residual() / self.weight

    def t2(self) -> Any:
        return self.weight * quadratic(self.V @ self.S @ self.V.T, self.y)

    def leverage(self, lam: float, rows: slice) -> Any:
        return quadratic(self.S + LONG(lam) * np.eye(D, dtype=LONG), self.Z[rows])


def quadratic(M: Any, rows: Any) -> Any:
    """y'M^-1 y of each row, by Cholesky's factor of M; infinite where M is singular. numpy has none of long numbers."""
    L, right = M.astype(LONG), rows.T.astype(LONG)
    for j in range(len(L)):
        if L[j, j] <= 0:
            return np.full(len(rows), np.inf, LONG)
        L[j:, j] /= np.sqrt(L[j, j])
        L[j + 1 :, j + 1 :] -= np.outer(L[j + 1 :, j], L[j + 1 :, j])
        right[j] /= L[j, j]
        right[j + 1 :] -= np.outer(L[j + 1 :, j], right[j])
    return np.sum(right**2, axis=0)


def outside(truth: Any, lower: Any, upper: Any) -> int:
    """How many truths are not in their interval."""
    room = TOLERANCE * np.abs(truth)
    return int(np.sum((truth < lower - room) | (truth > upper + room)))
