"""Both tests of a norm fail at most as often as they promise, and the shares of all tests stay below the whole."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
from scipy.stats import binomtest

from sfd_stream.sketch import verify
from sfd_stream.sketch.rows import Float
from sfd_stream.sketch.verify import Basis, certified_norm, failure_share, query_share, verify_spectral

D = 50
RUNS = 400


def never(theta: float) -> float:
    """A bound that no step proves: all steps are taken."""
    return theta * (1 - 1e-9)


SPECTRA: dict[str, Float] = {
    "a spike over a cluster": np.append(1.0, np.full(D - 1, 0.7)),
    "a spike close over a cluster": np.append(1.0, np.full(D - 1, 0.95)),
    "the extremes of a Chebyshev polynomial": np.append(1.0, 0.4 * (1 + np.cos(np.linspace(0, np.pi, D - 1)))),
    "flat": np.ones(D),
    "one direction alone": np.append(1.0, np.zeros(D - 1)),
    "falling": 0.8 ** np.arange(D),
}


def operator(spectrum: Float) -> Callable[[Float], Float]:
    Q = np.linalg.qr(np.random.default_rng(7).standard_normal((D, D)))[0]
    C = (Q * spectrum) @ Q.T
    return lambda x: np.asarray(C @ x)


@pytest.mark.parametrize("copies", [1, 4])
@pytest.mark.parametrize("failure_probability", [0.1, 0.3])
@pytest.mark.parametrize("steps", [2, 4])
@pytest.mark.parametrize("spectrum", SPECTRA)
def test_the_certificate_fails_no_more_often_than_it_says(
    spectrum: str, steps: int, failure_probability: float, copies: int
) -> None:
    C = operator(SPECTRA[spectrum])
    failures = 0
    for run in range(RUNS):
        rng = np.random.default_rng([run, steps])
        bound = certified_norm(C, D, failure_probability, rng, target=never, steps_max=steps, copies=copies)
        failures += bound.upper < 1 - 1e-12
        assert bound.theta <= 1 + 1e-12
    assert binomtest(failures, RUNS, failure_probability, alternative="greater").pvalue > 0.01


@pytest.mark.parametrize("copies", [1, 4])
def test_the_certificate_is_sharp_on_the_worst_spectrum(copies: int) -> None:
    """It fails about as often as it may: a smaller bound would be a false one."""
    C = operator(SPECTRA["one direction alone"])
    bounds = [
        certified_norm(C, D, 0.3, np.random.default_rng(run), target=never, steps_max=1, copies=copies).upper
        for run in range(RUNS)
    ]
    assert sum(bound < 1 - 1e-9 for bound in bounds) / RUNS > 0.2


@pytest.mark.parametrize("spectrum", SPECTRA)
def test_the_certificate_is_within_the_factor_that_was_asked_for(spectrum: str) -> None:
    C = operator(SPECTRA[spectrum])
    for run in range(20):
        rng = np.random.default_rng(run)
        bound = certified_norm(C, D, 1e-6, rng, target=lambda theta: 1.4 * theta, steps_max=30)
        assert 1 - 1e-12 <= bound.upper <= 1.4
        assert bound.steps < 30


def test_more_steps_only_lower_the_bound_and_an_exhausted_space_gives_the_norm() -> None:
    C = operator(SPECTRA["falling"])
    uppers = [
        certified_norm(C, D, 0.01, np.random.default_rng(3), target=never, steps_max=steps).upper
        for steps in (1, 2, 4, 8, 16, D)
    ]
    assert uppers == sorted(uppers, reverse=True)
    assert uppers[-1] == pytest.approx(1.0, rel=5e-4)  # the root is found to 4e-4, from above


def gap_of_a_run(falls: float, monkeypatch: pytest.MonkeyPatch) -> float:
    """How far the vectors of a run of 30 steps are from orthonormal."""
    taken: list[Float] = []

    class Recorded(Basis):
        def append(self, vector: Float) -> None:
            taken.append(vector)
            super().append(vector)

    monkeypatch.setattr(verify, "Basis", Recorded)
    certified_norm(operator(falls ** np.arange(D)), D, 1e-9, np.random.default_rng(3), target=never, steps_max=30)
    V = np.vstack(taken)
    return float(np.abs(V @ V.T - np.eye(len(V))).max())


@pytest.mark.parametrize("falls", [0.99, 0.9, 0.3])
def test_the_vectors_of_a_run_stay_orthonormal(falls: float, monkeypatch: pytest.MonkeyPatch) -> None:
    """The theorem is about an exact recurrence. Against the last two vectors alone it would not be one."""
    assert gap_of_a_run(falls, monkeypatch) < 1e-14
    monkeypatch.setattr(Basis, "without", lambda _, w: w)
    assert gap_of_a_run(falls, monkeypatch) > 1e-14


def test_the_certificate_of_nothing_is_zero_and_of_one_column_exact() -> None:
    rng = np.random.default_rng(0)
    nothing = certified_norm(np.zeros_like, 5, 0.01, rng, target=never, steps_max=9)
    assert (nothing.theta, nothing.upper) == (0, 0)
    one = certified_norm(lambda x: 3 * x, 1, 0.01, rng, target=never, steps_max=9)
    assert one.upper == pytest.approx(3, rel=1e-12)


def test_more_copies_prove_as_much_in_fewer_steps() -> None:
    C = operator(SPECTRA["falling"])
    steps = [
        certified_norm(
            C, D, 1e-10, np.random.default_rng(3), target=lambda theta: 1.4 * theta, steps_max=D, copies=copies
        ).steps
        for copies in (1, 2, 4)
    ]
    assert steps == sorted(steps, reverse=True)
    assert steps[-1] < steps[0]


@pytest.mark.parametrize("copies", [1, 4])
def test_witnesses_point_to_what_was_missed(copies: int) -> None:
    spectrum = SPECTRA["one direction alone"]
    C = operator(spectrum)
    bound = certified_norm(C, D, 0.01, np.random.default_rng(1), target=never, steps_max=6, copies=copies)
    assert np.linalg.norm(C(bound.witnesses()[:, 0])) == pytest.approx(1, rel=1e-9)


@pytest.mark.parametrize("spectrum", SPECTRA)
def test_verify_spectral_always_accepts_a_norm_below_one(spectrum: str) -> None:
    C = operator(SPECTRA[spectrum] * (1 - 1e-12))
    assert all(verify_spectral(C, D, 0.01, np.random.default_rng(run)) for run in range(100))


@pytest.mark.parametrize("delta_i", [0.5, 0.3, 0.1])
@pytest.mark.parametrize("rest", [0.0, 0.5])
def test_verify_spectral_rejects_a_norm_of_two_but_for_delta_i(delta_i: float, rest: float) -> None:
    C = operator(np.append(2.0, np.full(D - 1, rest)))
    wrong = sum(verify_spectral(C, D, delta_i, np.random.default_rng(run)) for run in range(RUNS))
    assert binomtest(wrong, RUNS, delta_i, alternative="greater").pvalue > 0.01


def test_verify_spectral_rejects_what_is_far_too_large_without_overflow() -> None:
    assert not verify_spectral(lambda x: x * 1e40, D, 1e-300, np.random.default_rng(0))


def test_the_shares_of_shrinks_and_of_looks_add_up_to_less_than_the_whole() -> None:
    whole = 0.01
    count = 20_000
    shrinks = sum(failure_share(i, whole) for i in range(1, count)) + whole / (2 * (count - 1))
    # One look at every state: n + 2 in (2^(L-1), 2^L] add up to at most ln 2/L^1.5, beyond 2^L0 to 2 ln 2/sqrt(L0).
    levels = 14
    looks = sum(query_share(n, attempt, whole) for n in range(2**levels - 1) for attempt in range(1, 30))
    looks += 0.098 * whole * 2 * np.log(2) / np.sqrt(levels)
    assert shrinks < 0.8225 * whole
    assert looks < 0.1775 * whole
    assert shrinks + looks < whole


def test_no_share_is_zero_in_a_stream_that_never_ends() -> None:
    assert failure_share(10**9, 1e-6) > 0
    assert query_share(10**15, 24, 1e-6) > 0
