"""Angles of blocks: small turns are significant, noise is not, and the batches in which rows arrive do not matter."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp
from hypothesis import given, settings
from hypothesis import strategies as st

from sfd_stream.sketch.basis import Projection
from sfd_stream.sketch.drift import Significance, significance
from sfd_stream.sketch.rows import RowBlock
from sfd_stream.sketch.scoring.block_angles import (
    FOLDED,
    LEADING,
    BlockAngles,
    FoldedReference,
    angle_of,
    folded,
)
from sfd_stream.sketch.scoring.block_means import BASELINE_BLOCKS
from tests.support.slow import smoke_first

D, K, BLOCK = 40, 4, 500
STRENGTHS = [5, 4, 3, 2]


def frame_of(rng: np.random.Generator) -> Any:
    """The reference's directions, and as many orthogonal to them."""
    return np.linalg.qr(rng.standard_normal((D, 2 * K)))[0].T


def turned(frame: Any, degrees: float) -> Any:
    angle = np.radians(degrees)
    return np.cos(angle) * frame[:K] + np.sin(angle) * frame[K:]


def angles_of(rows: Any, V: Any, block_rows: int = BLOCK, mean: Any = None, before: Any = None) -> BlockAngles:
    projected = Projection(V, mean)(rows)
    folded = FoldedReference(V, mean).rows(
        RowBlock.from_csr(sp.csr_array(rows)), projected.coordinates, projected.outside
    )
    return (before or BlockAngles.of(block_rows, folded.k)).plus(folded)


@pytest.mark.parametrize("degrees", [0.0, 1.0, 5.0, 30.0])
def test_the_angle_of_rows_without_noise_is_that_by_which_their_directions_are_turned(degrees: float) -> None:
    """Folding keeps lengths up to its random error; 40 columns are fewer than it has."""
    rng = np.random.default_rng(1)
    frame = frame_of(rng)
    found = angles_of((rng.standard_normal((BLOCK, K)) * STRENGTHS) @ turned(frame, degrees), frame[:K])
    assert angle_of(found.roots.baseline[0]) == pytest.approx(degrees, rel=0.15, abs=1e-4)


def test_the_angle_is_the_regression_of_what_is_outside_on_the_coordinates() -> None:
    """Of unit rows, with as few columns as are not folded upon each other."""
    rng = np.random.default_rng(2)
    V = np.linalg.qr(rng.standard_normal((4, 2)))[0].T
    rows = rng.standard_normal((BLOCK, 4)) * [4, 3, 2, 1]
    unit = rows / np.linalg.norm(rows, axis=1, keepdims=True)
    y = unit @ V.T
    outside = unit - y @ V
    along = y @ np.linalg.lstsq(y, outside, rcond=None)[0]
    share = np.sum(along**2) / (np.sum(along**2) + np.sum(y**2))
    assert angles_of(rows, V).roots.baseline[0] == pytest.approx(np.cbrt(share))


def test_rows_are_measured_from_the_mean_of_a_centred_reference() -> None:
    rng = np.random.default_rng(3)
    frame, mean = frame_of(rng), rng.standard_normal(D)
    rows = rng.standard_normal((BLOCK, K)) @ turned(frame, 20.0) + 0.1 * rng.standard_normal((BLOCK, D))
    around = angles_of(rows + mean, frame[:K], mean=mean)
    assert around.roots.baseline == pytest.approx(angles_of(rows, frame[:K]).roots.baseline)


@settings(deadline=None)
@given(st.lists(st.integers(0, 60), max_size=8), st.integers(1, 50))
def test_the_batches_in_which_rows_arrive_do_not_matter(sizes: list[int], block_rows: int) -> None:
    rng = np.random.default_rng(4)
    frame, rows = frame_of(rng), rng.standard_normal((sum(sizes), D))
    whole = parts = BlockAngles.of(block_rows, K)
    whole = angles_of(rows, frame[:K], before=whole)
    for part in np.split(rows, np.cumsum(sizes)[:-1]) if sizes else []:
        parts = angles_of(part, frame[:K], before=parts)
    assert parts.rows == whole.rows == len(rows) % block_rows
    assert np.allclose(parts.products, whole.products)
    assert np.allclose(parts.roots.baseline, whole.roots.baseline)
    assert parts.roots.looks == whole.roots.looks


def test_rows_without_any_energy_and_columns_that_the_reference_has_not_seen_do_no_harm() -> None:
    rng = np.random.default_rng(5)
    V = np.eye(2, 3)
    nothing = angles_of(np.zeros((10, 3)), V, 10)
    assert nothing.roots.baseline == (0.0,)
    wide = rng.standard_normal((10, 9))
    folded = FoldedReference(V, None).rows(
        RowBlock.from_csr(sp.csr_array(wide)), wide[:, :2], (wide[:, 2:] ** 2).sum(1)
    )
    assert 0 < BlockAngles.of(10, 2).plus(folded).roots.baseline[0] < 1


@pytest.mark.parametrize("scale", [2.0**-530, 2.0**-400, 2.0**400])
def test_rows_of_any_size_have_the_same_angle_or_none(scale: float) -> None:
    rows = np.random.default_rng(9).standard_normal((10, D))
    found, wanted = (angles_of(times * rows, np.eye(K, D), 10).roots.baseline[0] for times in (scale, 1.0))
    assert found == pytest.approx(wanted if scale > 2.0**-500 else 0.0)


def test_a_column_is_folded_as_the_format_says() -> None:
    columns = np.array([0, 1, 2, 100, 2**31 - 1])
    wanted = [((0x9E3779B1 * int(j)) % 2**32) >> 25 for j in columns]
    assert folded(columns).tolist() == wanted


def test_only_the_leading_directions_are_followed_and_what_is_kept_is_small() -> None:
    V, rows = np.eye(30, D), np.random.default_rng(6).standard_normal((20, D))
    found = angles_of(rows, V, 7)
    assert found.products.shape == (FOLDED + LEADING, LEADING)
    assert found.products.nbytes <= 5_000


def test_equal_values_are_equal() -> None:
    rows = np.random.default_rng(7).standard_normal((25, D))
    one, same, other = (angles_of(rows[:n], np.eye(K, D), 10) for n in (25, 25, 24))
    assert one == same
    assert hash(one) == hash(same)
    assert one != other
    assert one != 1


# -- significance --------------------------------------------------------------------------------------------


def looks(roots: Any, baseline: int = BASELINE_BLOCKS) -> Iterator[Significance]:
    return (significance(roots[:baseline], roots[baseline : baseline + t]) for t in range(1, len(roots) - baseline + 1))


@pytest.mark.parametrize(("noise", "degrees"), [(0.1, 2), (0.1, 5), (1.0, 5), (1.0, 8), (1.0, 20)])
def test_directions_that_turn_by_a_few_degrees_are_significant_within_1_000_rows(noise: float, degrees: float) -> None:
    """The share of energy outside has turned by too little for that: docs/experiments.md has the delays of both."""
    rng = np.random.default_rng(5)
    frame = frame_of(rng)

    def rows(V: Any, n: int) -> Any:
        return (rng.standard_normal((n, K)) * STRENGTHS) @ V + noise * rng.standard_normal((n, D))

    before = angles_of(rows(frame[:K], BASELINE_BLOCKS * BLOCK), frame[:K])
    assert before.significance(1e-4) is None
    found = angles_of(rows(turned(frame, degrees), 1_000), frame[:K], before=before).significance(1e-4)
    assert found is not None
    assert found.significant
    assert found.change > 0


NOISES: dict[str, Any] = {
    "gaussian": lambda rng, size: rng.standard_normal(size),
    "heavy tails": lambda rng, size: rng.standard_t(3, size),
    "lognormal": lambda rng, size: np.exp(rng.standard_normal(size)),
}
RUNS = smoke_first([15, 1_000])
LOOKS = 100


@pytest.mark.parametrize("noise", NOISES)
@pytest.mark.parametrize("runs", RUNS)
def test_a_stream_that_does_not_change_is_hardly_ever_significant(noise: str, runs: int) -> None:
    """Rows of 4 columns, of which the reference has two: a sum of few squares is less normal than one of many."""
    rng, alarms, V = np.random.default_rng(8), 0, np.eye(2, 4)
    for _ in range(runs):
        rows = NOISES[noise](rng, ((LOOKS + BASELINE_BLOCKS) * BLOCK, 4)) * [5, 3, 1, 1]
        roots = angles_of(rows, V).roots
        alarms += any(look.significant for look in looks([*roots.baseline, *roots.recent]))
    assert alarms <= 2 * runs // 1_000
