"""Shrinks: reduce the stack M = [B; A'] to at most ell rows, losing as little as possible and knowing how much.

Each gives a B' with 0 <= M'M - B'B' (the paper's Property 1) and a bound of that difference's norm.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from math import sqrt
from typing import Any

import numpy as np

from sfd_stream.sketch.iteration import (
    OVERSAMPLING,
    exact_ritz,
    is_uneven,
    one_pass,
    restart_columns,
    simultaneous_iteration,
    start_columns,
)
from sfd_stream.sketch.rows import Float, RowBlock, squared_frobenius
from sfd_stream.sketch.stack import Stack
from sfd_stream.sketch.verify import ALPHA, EPS, certified_norm, verify_spectral

MISSED = 3.0
"""A shrink whose remainder is this many times lambda^2 has missed a direction; healthy ones had 1.0 to 2.5."""

MISSED_UNEVEN = 1.3
"""The same limit for rows with uneven energy, as in a burst: there a missed direction costs most."""

PRECISE = 0.1
"""Rounding may be this share of the bound. If start columns are so nearly dependent that it is more, another pass
follows, from the directions found."""

PASSES_MAX = 6
"""After this many passes the directions are computed exactly, where min(rows, d) allows."""

EXACT_MAX = 4096
STEPS_MAX = 40
COPIES = 4
"""Number of copies in a certificate's Lanczos run if all columns are sparse: then four columns cost two to three times
one, and a run needs 6 steps, not 16. Dense columns cost four times one, and so do the vectors if few columns have
entries."""


@dataclass(frozen=True, slots=True)
class Shrunk:
    """A shrink's outcome: the rows kept, and what is known of M'M - B'B'."""

    B: Float
    bound: float
    """At least the norm, except with the failure probability that `attempts` shares add up to."""
    rounding: float
    """How far rounding may have pushed B'B' above M'M."""
    attempts: int = 0
    """Verifications used; 0 where nothing was random."""


@dataclass(frozen=True, slots=True)
class Chance:
    """All the randomness of one shrink: one stream to search for directions, another to test what was found, and the
    failure probability of each test. Tests must not share randomness with the search, or they prove nothing.
    """

    search: np.random.Generator
    probe: np.random.Generator
    shares: Iterator[float]
    tight: float = 1.4
    """A bound within this factor of what Lanczos has found is tight enough; a looser one costs fewer steps."""
    slack: float = 0.0
    """A bound this far above what Lanczos has found is tight enough too."""


def dense_shrink(M: Float, ell: int) -> tuple[Float, float]:
    """The paper's DenseShrink: B = sqrt(Lambda^2 - lambda_ell^2) V' by a full SVD, and lambda_ell^2."""
    _, singular, VT = np.linalg.svd(M, full_matrices=False)
    lambda2 = float(singular[ell - 1] ** 2) if len(singular) >= ell else 0.0
    shrunk = np.sqrt(np.maximum(singular[:ell] ** 2 - lambda2, 0.0))
    return np.ascontiguousarray(shrunk[shrunk > 0, None] * VT[:ell][shrunk > 0]), lambda2


def sparse_shrink(A: Any, ell: int, rng: np.random.Generator) -> Float:
    """The paper's SparseShrink: SimultaneousIteration in place of the SVD."""
    rank = min(ell, *A.shape)
    Z = simultaneous_iteration(A, rank, 1 / 4, rng)
    P = np.ascontiguousarray((A.T @ Z).T)
    return dense_shrink(P, ell)[0]


def boosted_sparse_shrink(A: Any, ell: int, chance: Chance) -> tuple[Float, float, int]:
    """The paper's BoostedSparseShrink: SparseShrink until VerifySpectral accepts. B', Delta and the tries it took."""
    total = squared_frobenius(A.data)
    for attempt, delta_i in enumerate(chance.shares, start=1):
        B = sparse_shrink(A, ell, chance.search)
        trace = max(total - squared_frobenius(B), 0.0)
        Delta = trace / (ALPHA * ell)
        if trace <= 4 * EPS * (sum(A.shape) + 2 * ell) * total:
            return B, trace, attempt  # nothing was lost but rounding: a test would judge noise, and might never pass

        def C(x: Float, B: Float = B, half: float = Delta / 2) -> Float:
            return np.asarray((A.T @ (A @ x) - B.T @ (B @ x)) / half)

        if verify_spectral(C, B.shape[1], delta_i, chance.probe):
            return B, min(Delta, trace), attempt
    raise AssertionError("shares of the failure probability never end")


def paper_shrink(B: Float, block: RowBlock, ell: int, chance: Chance) -> Shrunk:
    """Algorithm 1's two lines: B' = BoostedSparseShrink(A', ell, delta); B = DenseShrink([B; B'], ell)."""
    stack = Stack(B, block)
    Bprime, Delta, attempts = boosted_sparse_shrink(stack.A.scipy(), ell, chance)
    return _merged(stack, Bprime, Delta, ell, attempts)


def unverified_shrink(B: Float, block: RowBlock, ell: int, chance: Chance) -> Shrunk:
    """What the authors ran in their experiments: SparseShrink without verification. Only the trace bounds its error."""
    stack = Stack(B, block)
    Bprime = sparse_shrink(stack.A.scipy(), ell, chance.search)
    trace = max(squared_frobenius(stack.A.values) - squared_frobenius(Bprime), 0.0)
    return _merged(stack, Bprime, trace, ell, 0)


def _merged(stack: Stack, Bprime: Float, lost: float, ell: int, attempts: int) -> Shrunk:
    merged, lambda2 = dense_shrink(np.vstack([stack.B, Bprime]), ell)
    return _shrunk(stack, merged, lost + lambda2, amplified=sqrt(ell), attempts=attempts)


def full_dense_shrink(B: Float, block: RowBlock, ell: int, chance: Chance) -> Shrunk:  # noqa: ARG001 - one face for all
    """Frequent Directions' own step: DenseShrink of everything."""
    stack = Stack(B, block)
    shrunk, lambda2 = dense_shrink(stack.dense(), ell)
    return _shrunk(stack, shrunk, lambda2, amplified=sqrt(ell))


def fused_shrink(B: Float, block: RowBlock, ell: int, chance: Chance) -> Shrunk:
    """One shrink of [B; A'], warm from B's directions, verified. A failed one continues from the directions found."""
    stack = Stack(B, block)
    width = ell + OVERSAMPLING
    if min(stack.rows, stack.d) <= 2 * width:
        return exact_shrink(stack, ell)
    uneven = is_uneven(stack)
    starts = [start_columns(stack, width, chance.search, uneven=uneven)]
    if uneven:  # one pass does not find all of a burst, so the first one needs no certificate
        starts.append(one_pass(stack, starts).directions())
    for passes, delta_i in enumerate(chance.shares, start=1):
        ritz = one_pass(stack, starts)
        kept, lambda2 = ritz.shrunk(ell)
        last = passes >= PASSES_MAX
        missed = (MISSED_UNEVEN if uneven else MISSED) * lambda2
        upper, directions = _certify(stack, kept, missed, ell, delta_i, chance, amplified=ritz.amplified, last=last)
        if directions is not None and last and min(stack.rows, stack.d) <= EXACT_MAX:
            return exact_shrink(stack, ell, attempts=passes)
        if directions is None or passes >= 4 * PASSES_MAX:
            return _shrunk(stack, kept, upper, amplified=ritz.amplified, attempts=passes)
        starts.append(restart_columns(ritz, directions, width, chance.search))
    raise AssertionError("shares of the failure probability never end")


def exact_shrink(stack: Stack, ell: int, attempts: int = 0) -> Shrunk:
    """By all singular values: nothing is random, and what is lost is lambda^2 in every direction kept."""
    ritz = exact_ritz(stack, ell)
    shrunk, lambda2 = ritz.shrunk(ell)
    return _shrunk(stack, shrunk, lambda2, amplified=ritz.amplified, attempts=attempts)


def _certify(
    stack: Stack,
    B: Float,
    missed: float,
    ell: int,
    delta_i: float,
    chance: Chance,
    *,
    amplified: float,
    last: bool,
) -> tuple[float, Float | None]:
    """The bound, and the directions to start from next: None if the shrink is accepted.

    It is accepted if the paper's Property 2 holds (upper <= Delta) or the bound shows that no direction was missed
    (upper <= missed), the lower estimate finds none either (theta <= missed), and rounding is small beside what was
    lost, or as small as it can be.
    """
    least = (ell + OVERSAMPLING) * rounding_of(stack, ell)  # that of a pass from columns that are well apart
    rounding = amplified * rounding_of(stack, ell)
    trace = max(stack.squared_frobenius - squared_frobenius(B), 0.0) + rounding
    Delta = trace / (ALPHA * ell)
    missed += least
    slack = chance.slack / stack.scale / stack.scale  # divided twice: the square of the scale may underflow

    def C(x: Float) -> Float:
        product = stack.gram_times(x)
        product -= B.T @ (B @ x)
        return product

    def enough(theta: float) -> float | None:
        """The largest bound that would do, or None to stop at once."""
        if theta > missed and not last:
            return None
        tight = max(chance.tight * theta, theta + slack)
        wanted = min(tight, max(Delta, missed))  # however loose a bound may be, it must be accepted
        return wanted if wanted < trace else None

    copies = COPIES if not len(stack.split.hot) and stack.block.nnz > COPIES * stack.d else 1
    steps_max = STEPS_MAX // copies  # the memory for their vectors is the same
    bound = certified_norm(C, stack.d, delta_i, chance.probe, target=enough, steps_max=steps_max, copies=copies)
    capped = min(bound.upper, trace)
    precise = rounding <= max(PRECISE * capped, 2 * least)
    accepted = precise and bound.theta <= missed and (capped <= Delta or capped <= missed)
    return capped, None if accepted else bound.witnesses()


def rounding_of(stack: Stack, ell: int) -> float:
    """Every product behind a bound is a sum of at most rows + d + 2 ell terms; see docs/guarantees.md."""
    return 4 * EPS * (stack.rows + stack.d + 2 * ell + STEPS_MAX) * stack.squared_frobenius


def _shrunk(stack: Stack, B: Float, bound: float, *, amplified: float, attempts: int = 0) -> Shrunk:
    """Back to the rows' own scale, which is a power of two: exact except at the edge of the number range."""
    unit = stack.scale
    rounding = amplified * rounding_of(stack, len(B))
    tiny = float(np.finfo(np.float64).smallest_subnormal) * (stack.block.nnz + 8)
    return Shrunk(B * unit, (bound + rounding) * unit * unit + tiny, rounding * unit * unit + tiny, attempts)


Shrink = Callable[[Float, RowBlock, int, Chance], Shrunk]
