"""Wrong sketches must be caught: each of these breaks the code on purpose and asks that a law or a count shows it."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp

from sfd_stream.sketch import builder, iteration, shrink
from sfd_stream.sketch.builder import Parameters
from sfd_stream.sketch.iteration import Ritz, orthonormal
from sfd_stream.sketch.rows import Float, RowBlock, squared_frobenius
from sfd_stream.sketch.shrink import Chance
from sfd_stream.sketch.stack import Stack
from sfd_stream.sketch.verify import ALPHA, certified_norm, failure_share, verify_spectral
from tests.unit.sketch.matrices import Case, as_it_comes, built, gram, obeys_its_bound, theorem_gaps

TRIED_MAX = 12


def case(family: str, method: str, ell: int = 15) -> Case:
    return Case(family, as_it_comes, 11, 300, 72, ell, 100, method)


def random_subspace(A: Any, k: int, eps: float, rng: np.random.Generator) -> Float:
    return orthonormal(rng.standard_normal((A.shape[0], k)))


def useless_pass(stack: Stack, starts: list[Float]) -> Ritz:
    """Rayleigh-Ritz on a random subspace, whatever the start was."""
    Z = orthonormal(np.random.default_rng(5).standard_normal((stack.rows, starts.pop().shape[1])))
    return iteration.ritz_of(np.ascontiguousarray((Z.T @ stack.dense()).T))


class TriedTooOftenError(Exception):
    pass


def limited_shares(failure: float) -> Any:
    for i in range(1, TRIED_MAX + 1):
        yield failure_share(i, failure)
    raise TriedTooOftenError


@pytest.mark.parametrize("family", ["spiked", "decaying"])
def test_the_paper_rejects_a_random_subspace(family: str, monkeypatch: pytest.MonkeyPatch) -> None:
    A = case(family, "paper").rows()
    chance = Chance(np.random.default_rng(1), np.random.default_rng(2), limited_shares(0.01))
    shrink.boosted_sparse_shrink(A, 15, replace(chance, shares=limited_shares(0.01)))  # the right one passes
    monkeypatch.setattr(shrink, "simultaneous_iteration", random_subspace)
    with pytest.raises(TriedTooOftenError):
        shrink.boosted_sparse_shrink(A, 15, chance)


def test_on_the_papers_own_rows_a_random_subspace_passes_which_is_why_others_are_used(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(shrink, "simultaneous_iteration", random_subspace)
    A = case("paper-like", "paper").rows()
    chance = Chance(np.random.default_rng(1), np.random.default_rng(2), limited_shares(0.01))
    assert shrink.boosted_sparse_shrink(A, 15, chance)[2] == 1


@pytest.mark.parametrize("family", ["spiked", "decaying", "turning", "burst"])
def test_a_useless_pass_shows_in_the_retries_and_the_law_is_kept(family: str, monkeypatch: pytest.MonkeyPatch) -> None:
    sound = case(family, "fused").built()
    monkeypatch.setattr(shrink, "one_pass", useless_pass)
    broken = case(family, "fused").built()
    assert sound.shrinks == broken.shrinks > 1
    assert broken.retries >= broken.shrinks * (shrink.PASSES_MAX - 1)  # all of them ended in an exact shrink
    assert sound.retries < broken.retries / 5
    assert obeys_its_bound(case(family, "fused").rows(), broken.sketch())


@pytest.mark.parametrize("family", ["spiked", "flat", "text"])
def test_a_healthy_stream_needs_no_retry(family: str) -> None:
    built = case(family, "fused").built()
    assert built.shrinks > 1
    assert built.retries == 0


@pytest.mark.parametrize("method", ["fused", "paper"])
def test_without_a_search_verification_is_all_that_stands_between_a_sketch_and_a_broken_law(
    method: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A random subspace that is accepted breaks the theorem: the rejections above are not pedantry."""
    monkeypatch.setattr(shrink, "simultaneous_iteration", random_subspace)
    monkeypatch.setattr(shrink, "one_pass", useless_pass)
    monkeypatch.setattr(shrink, "verify_spectral", lambda *_: True)
    monkeypatch.setattr(shrink, "MISSED", 1e9)
    monkeypatch.setattr(shrink, "MISSED_UNEVEN", 1e9)
    monkeypatch.setattr(shrink, "ALPHA", 1e-9)
    A = case("burst", method).rows()
    sketch = case("burst", method).built().sketch()
    assert min(min(gaps) for gaps in theorem_gaps(A, sketch, ALPHA)) < 0


def test_a_halved_certificate_breaks_a_law(monkeypatch: pytest.MonkeyPatch) -> None:
    def halved(*args: Any, **kwargs: Any) -> Any:
        bound = certified_norm(*args, **kwargs)
        return replace(bound, upper=bound.upper / 2)

    monkeypatch.setattr(shrink, "certified_norm", halved)
    one_shrink = replace(case("spiked", "fused"), buffer_rows=1000)
    A = one_shrink.rows()
    assert not obeys_its_bound(A, one_shrink.built(A).sketch())


def outnumbered() -> Any:
    """Ell strong rows, then ever more weak ones of one direction, which in each buffer is too weak to be kept."""
    A = np.zeros((300, 72))
    A[np.arange(15), np.arange(15)] = 10.0
    A[15:, 15] = 1.0
    return sp.csr_array(A)


@pytest.mark.parametrize("method", ["fused", "paper", "dense"])
def test_an_unsubtracted_lambda_breaks_a_law(method: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing is subtracted and nothing counted as lost: a direction that comes in small parts is lost silently."""

    def unsubtracted(self: Ritz, ell: int) -> tuple[Float, float]:
        kept = self.TH[:, : min(ell, len(self.values2))]
        return np.ascontiguousarray(kept.T @ self.W.T), 0.0

    def dense_unsubtracted(M: Float, ell: int) -> tuple[Float, float]:
        _, singular, VT = np.linalg.svd(M, full_matrices=False)
        return singular[:ell, None] * VT[:ell], 0.0

    A = outnumbered()
    parameters = Parameters(d=72, ell=15, method=method, buffer_entries_max=120)
    assert obeys_its_bound(A, built(A, parameters).sketch())
    monkeypatch.setattr(Ritz, "shrunk", unsubtracted)
    monkeypatch.setattr(shrink, "dense_shrink", dense_unsubtracted)
    monkeypatch.setattr(shrink, "verify_spectral", lambda *_: True)  # it would reject this for ever
    assert not obeys_its_bound(A, built(A, parameters).sketch())


def test_a_certificate_started_in_the_sketchs_own_span_misses_a_burst(monkeypatch: pytest.MonkeyPatch) -> None:
    """Why every test starts from fresh randomness: warm, from what was found, Lanczos can't see what was not."""
    burst = case("burst", "fused", ell=8)
    A = burst.rows()
    before = A[: burst.n - burst.n // 12]
    B = burst.built(before).sketch().matrix
    C = gram(A) - B.T @ B
    norm = float(np.linalg.norm(C, 2))

    def bound(start: Float) -> float:
        monkeypatch.setattr("sfd_stream.sketch.verify.uniform_on_sphere", lambda *_: start / np.linalg.norm(start))
        return certified_norm(
            lambda x: C @ x,
            burst.d,
            0.01,
            np.random.default_rng(0),
            target=lambda theta: theta * (1 - 1e-9),
            steps_max=12,
        ).upper

    assert bound(np.random.default_rng(0).standard_normal(8) @ B) < norm / 10
    assert bound(np.random.default_rng(0).standard_normal(burst.d)) >= norm * (1 - 1e-9)


def test_verification_reads_what_it_is_given() -> None:
    """The operator is (A'A - B'B)/(Delta/2): with B = 0 on spiked rows it must be rejected."""
    A = case("spiked", "paper").rows()
    half = squared_frobenius(A.data) / (ALPHA * 15) / 2
    assert not verify_spectral(lambda x: A.T @ (A @ x) / half, 72, 0.01, np.random.default_rng(0))


def test_every_method_is_one_that_can_be_chosen() -> None:
    assert set(builder.SHRINKS) == {"fused", "paper", "sparse-shrink", "dense"}
    block = RowBlock.from_csr(case("flat", "fused").rows())
    for name, function in builder.SHRINKS.items():
        chance = Chance(np.random.default_rng(1), np.random.default_rng(2), limited_shares(0.01))
        assert len(function(np.zeros((0, 72)), block, 9, chance).B) <= 9, name
