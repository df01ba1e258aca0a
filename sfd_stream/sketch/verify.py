"""Bounds the loss of a shrink: the paper's test, and an upper bound that holds with a stated probability.

Lanczos and the power method return lower estimates of the norm. The bounds here are upper bounds, with proofs in
`docs/guarantees.md`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from math import ceil, log, log2, pi, sqrt

import numpy as np
from scipy.special import betaincinv

from sfd_stream.sketch.rows import Float

ALPHA = 6 / 41
"""The paper's constant in Property 3."""

EPS = float(np.finfo(np.float64).eps)

ROOT_WITHIN = 1e-4
"""How far above the root a bound may be, as a share of the root."""

ROOM = 8
"""Number of vectors for which a Lanczos run allocates memory at once."""

Operator = Callable[[Float], Float]
"""X -> CX for a positive semi-definite C and one column or several."""


def failure_share(i: int, failure_probability: float) -> float:
    """delta_i of the i-th verification, i = 1, 2, ...: the paper's union bound. All add up to .823 of the whole."""
    return failure_probability / (2 * i * i)


def query_share(rows: int, attempt: int, failure_probability: float) -> float:
    """The share of one requested sketch after `rows` rows; over all states and attempts less than .1775 of the whole.

    The values of m = n + 2 with L = ceil(log2(m)) are those in (2^(L-1), 2^L], whose 1/m add up to less than ln 2. So
    the sum over n of 1/(m L^1.5) is below ln 2 * zeta(1.5) < 1.8108, and .098 * 1.8108 < 1 - pi^2/12.
    """
    length = ceil(log2(rows + 2))
    return 0.098 * failure_probability / ((rows + 2) * length * sqrt(length)) * 9 / 10.0**attempt


def topic_share(partition: int, failure_probability: float) -> float:
    """A partition's share of its topic's failure probability: 6/(pi^2 (j + 1)^2) of it for partition j.

    The shares of all partitions add up to less than 1, however many there are and are added later.
    """
    return failure_probability * 6 / (pi * (partition + 1)) ** 2


def verify_spectral(C: Operator, d: int, delta_i: float, rng: np.random.Generator) -> bool:
    """The paper's VerifySpectral: True if ||C|| <= 1; if ||C|| >= 2, False with probability at least 1 - delta_i.

    The constant c: with g = <x, v_1> for x uniform on the sphere, P(|g| <= t) <= t sqrt(2d/pi) (the density of g is at
    most its value at 0, which is below sqrt(d/(2 pi))). So |g| > delta_i / sqrt(2d/pi) except with probability delta_i,
    and ||C^q x|| >= |g| 2^q > 1 as soon as q >= log2(sqrt(2d/pi) / delta_i).
    """
    q = max(1, ceil(log2(sqrt(2 * d / pi) / delta_i)))
    x = uniform_on_sphere(d, rng)
    for _ in range(q):
        x = C(x)
        if not np.linalg.norm(x) < 1e100:  # far above 1 already: it can't pass any more
            return False
    return bool(np.linalg.norm(x) <= 1)


def uniform_on_sphere(d: int, rng: np.random.Generator) -> Float:
    x = rng.standard_normal(d)
    return np.asarray(x / np.linalg.norm(x))


@dataclass(frozen=True, slots=True)
class NormBound:
    """||C|| lies in [theta, upper]: theta always, upper except with the failure probability asked for."""

    theta: float
    upper: float
    steps: int
    witnesses: Callable[[], Float]
    """The strongest directions found (orthonormal columns): where a shrink that failed should look next. Asked for only
    then: this holds the whole run.
    """


class Basis:
    """Orthonormal vectors in blocks of a few: memory is allocated as needed, and nothing is moved."""

    def __init__(self, first: Float, at_once: int) -> None:
        self._blocks: list[Float] = []
        self._at_once = at_once
        self._count = 0
        self.newest = self.before = first
        self.append(first)

    def append(self, vector: Float) -> None:
        if self._count % self._at_once == 0:
            self._blocks.append(np.empty((self._at_once, len(vector))))
        self._blocks[-1][self._count % self._at_once] = vector
        self._count += 1
        self.newest, self.before = vector, self.newest

    def _filled(self) -> list[Float]:
        return [block[: self._count - i * self._at_once] for i, block in enumerate(self._blocks)]

    def without(self, w: Float) -> Float:
        """The part of w that is orthogonal to all vectors."""
        for block in self._filled():
            w = w - block.T @ (block @ w)
        return w

    def combined(self, weights: Float) -> Float:
        parts = np.split(weights, range(self._at_once, self._count, self._at_once))
        return np.asarray(sum(block.T @ part for block, part in zip(self._filled(), parts, strict=True)))


def certified_norm(
    C: Operator,
    d: int,
    failure_probability: float,
    rng: np.random.Generator,
    *,
    target: Callable[[float], float | None],
    steps_max: int,
    copies: int = 1,
) -> NormBound:
    """An upper bound of ||C|| by Lanczos from a random start: g^2 K(||C||) <= 1 with K the sum of the squares of the
    run's orthonormal polynomials, and g^2 >= tau^2 except with the failure probability.

    The run is on `copies` copies of C at once, diag(C, ..., C): the same norm, but a start that is far less likely to
    miss its direction in all of them, so fewer steps; and C times a few columns costs little more than times one.
    The only random event is the start, so the bound holds after any number of steps. The run ends when it has
    proved `target(theta)`, or when that is None.
    """
    tau2 = float(betaincinv(copies / 2, copies * (d - 1) / 2, failure_probability)) if d > 1 else 1.0
    basis = Basis(uniform_on_sphere(copies * d, rng), max(ROOM // copies, 1))
    alphas: list[float] = []
    betas: list[float] = []
    T = np.zeros((steps_max, steps_max))  # only its lower half is read
    while True:
        step = len(alphas)
        w = C(basis.newest.reshape(d, copies)).ravel()
        alphas.append(float(basis.newest @ w))
        T[step, step] = alphas[-1]
        w = w - alphas[-1] * basis.newest
        if betas:
            T[step, step - 1] = betas[-1]
            w -= betas[-1] * basis.before
        w = basis.without(w)  # once more, against all vectors: removes what rounding left
        betas.append(sqrt(w @ w))
        theta = max(float(np.linalg.eigvalsh(T[: step + 1, : step + 1])[-1]), 0.0)
        exhausted = betas[-1] <= 8 * EPS * max(theta, 1e-300) or step + 1 >= d
        goal = target(theta)
        if exhausted or goal is None or step + 1 >= steps_max or christoffel(alphas, betas, goal) >= 1 / tau2:
            upper = theta if exhausted else christoffel_root(alphas, betas, theta, 1 / tau2)
            return NormBound(theta, upper, step + 1, partial(_strongest, basis, T[: step + 1, : step + 1], copies))
        basis.append(w / betas[-1])


def _strongest(basis: Basis, T: Float, copies: int) -> Float:
    found = basis.combined(np.linalg.eigh(T)[1][:, -1]).reshape(-1, copies)
    return np.linalg.svd(found, full_matrices=False)[0][:, :2]


def christoffel(alphas: list[float], betas: list[float], t: float) -> float:
    """K(t) = p_0(t)^2 + ... + p_k(t)^2, for the orthonormal polynomials of k Lanczos steps. Rises for t > theta."""
    before, now, total, last_beta = 0.0, 1.0, 1.0, 0.0
    for alpha, beta in zip(alphas, betas, strict=True):
        before, now, last_beta = now, ((t - alpha) * now - last_beta * before) / beta, beta
        total += now * now
        if total > 1e280:
            break
    return total


def christoffel_root(alphas: list[float], betas: list[float], theta: float, target: float) -> float:
    """The t >= theta with K(t) = target, from above."""

    def excess(t: float) -> float:
        return log(christoffel(alphas, betas, t) / target)

    if excess(theta) >= 0:
        return theta
    low, high = theta, 2 * theta + betas[-1]
    while excess(high) < 0:
        low, high = high, 2 * high
    below, above = excess(low), excess(high)
    while high - low > ROOT_WITHIN * high:  # false position; an end that stays counts half (Illinois)
        middle = (low * above - high * below) / (above - below)
        middle = min(max(middle, low + 0.01 * (high - low)), high - 0.01 * (high - low))
        found = excess(middle)
        if found < 0:
            low, below, above = middle, found, above / 2
        else:
            high, above, below = middle, found, below / 2
    return high
