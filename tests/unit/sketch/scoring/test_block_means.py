"""Means over blocks: the same however the values arrive, of bounded size, and a change is significant."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sfd_stream.sketch.drift import significance
from sfd_stream.sketch.scoring.block_means import BASELINE_BLOCKS, RECENT_BLOCKS, BlockMeans

rng = np.random.default_rng(0)


@settings(deadline=None)
@given(st.lists(st.integers(0, 400), max_size=8), st.integers(1, 50))
def test_the_batches_in_which_values_arrive_do_not_matter(sizes: list[int], block_rows: int) -> None:
    values = rng.uniform(size=sum(sizes))
    found = BlockMeans(block_rows)
    for part in np.split(values, np.cumsum(sizes)[:-1]) if sizes else []:
        found = found.plus(part)
    full = len(values) // block_rows
    means = values[: full * block_rows].reshape(full, block_rows).mean(axis=1)
    assert np.allclose(found.baseline, means[:BASELINE_BLOCKS])
    assert np.allclose(found.recent, means[BASELINE_BLOCKS:][-RECENT_BLOCKS:])
    assert (found.blocks, found.rows) == (full, len(values) % block_rows)
    assert found.total == pytest.approx(float(values[full * block_rows :].sum()))


def test_an_endless_stream_is_kept_in_bounded_space() -> None:
    found = BlockMeans(2).plus(rng.uniform(size=2_000))
    assert (len(found.baseline), len(found.recent), found.looks) == (BASELINE_BLOCKS, RECENT_BLOCKS, 960)


def test_nothing_is_said_before_the_first_block_after_the_baseline() -> None:
    found = BlockMeans(10).plus(rng.uniform(size=10 * BASELINE_BLOCKS + 9))
    assert found.significance(0.01) is None
    assert found.plus(np.array([0.5])).significance(0.01) is not None


def test_a_change_is_significant_and_its_absence_is_not() -> None:
    same = BlockMeans(50).plus(rng.uniform(size=50 * 300))
    found = same.significance(1e-4)
    assert found is not None
    assert not found.significant
    later = same.plus(0.5 + rng.uniform(size=200)).significance(1e-4)
    assert later is not None
    assert later.significant
    assert later.change == pytest.approx(0.5, abs=0.1)


def test_every_look_ever_made_is_paid_for() -> None:
    means = BlockMeans(1).plus(rng.uniform(size=BASELINE_BLOCKS + 1_000))
    found, alone = means.significance(0.01), significance(means.baseline, means.recent, 0.01)
    assert found is not None
    assert found.upper - found.lower > alone.upper - alone.lower
