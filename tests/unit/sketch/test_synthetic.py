"""The law of the paper's synthetic rows."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sfd_stream.sketch.estimator import SparseFrequentDirections
from sfd_stream.sketch.synthetic import paper_synthetic, paper_synthetic_blocks

SHAPES = st.integers(1, 60).flatmap(lambda d: st.tuples(st.integers(0, 40), st.just(d), st.integers(0, d)))


@given(SHAPES, st.integers(0, 2**32))
@settings(max_examples=40, deadline=None)
def test_each_row_has_exactly_z_signs_at_distinct_ascending_columns(shape: tuple[int, int, int], seed: int) -> None:
    n, d, z = shape
    matrix = paper_synthetic(n, d, z, seed)
    assert matrix.shape == (n, d)
    assert np.array_equal(matrix.indptr, np.arange(n + 1) * z)
    assert set(matrix.data.tolist()) <= {1.0, -1.0}
    rows = matrix.indices.reshape(n, z)
    assert (rows >= 0).all()
    assert (rows < d).all()
    assert (np.diff(rows, axis=1) > 0).all()


@pytest.mark.parametrize(("d", "z"), [(1000, 100), (1000, 5), (100_000, 20), (160, 100)])
def test_nine_of_ten_fall_in_the_head_and_each_set_is_even(d: int, z: int) -> None:
    n, head = 20_000, 3 * z // 2
    matrix = paper_synthetic(n, d, z, 7)
    in_head = matrix.indices < head
    tail_full = d - head < z // 5  # then the tail holds less than it was given
    share = in_head.mean()
    spread = 5 * np.sqrt(0.09 / (n * z))
    assert (share > 0.9 - spread) if tail_full else abs(share - 0.9) < spread
    counts = np.bincount(matrix.indices[in_head], minlength=head)
    assert abs(counts / counts.mean() - 1).max() < 6 / np.sqrt(counts.mean())
    halves = matrix.indices[~in_head] < head + (d - head) / 2
    assert abs(halves.mean() - 0.5) < 5 * 0.5 / np.sqrt(len(halves)) + 1 / (d - head)
    assert abs(matrix.data.mean()) < 5 / np.sqrt(matrix.nnz)


def test_a_head_wider_than_the_matrix_is_all_of_it_and_even() -> None:
    counts = np.bincount(paper_synthetic(20_000, 10, 8, 1).indices, minlength=10)
    assert abs(counts / 16_000 - 1).max() < 0.02


def test_both_ways_to_choose_columns_have_the_same_law() -> None:
    from sfd_stream.sketch.synthetic import _by_drawing, _by_ordering

    counts = np.full(30_000, 2)
    for choose in (_by_drawing, _by_ordering):
        pairs = choose(counts, 5, np.random.default_rng(3)).reshape(-1, 2)
        codes, seen = np.unique(pairs @ [5, 1], return_counts=True)
        assert len(codes) == 10  # every pair of 5 columns
        assert abs(seen / 3000 - 1).max() < 5 / np.sqrt(3000)


def test_the_same_seed_gives_the_same_rows_and_more_rows_only_add_to_them() -> None:
    many, few, other = (
        paper_synthetic(9000, 50, 5, 1),
        paper_synthetic(5000, 50, 5, 1),
        paper_synthetic(5000, 50, 5, 2),
    )
    assert (many[:5000] != few).nnz == 0
    assert (few != other).nnz > 0


def test_blocks_are_the_matrix_in_parts() -> None:
    blocks = list(paper_synthetic_blocks(9000, 50, 5, 1))
    assert [block.shape[0] for block in blocks] == [4096, 4096, 808]
    assert np.array_equal(np.concatenate([block.indices for block in blocks]), paper_synthetic(9000, 50, 5, 1).indices)


@pytest.mark.parametrize("shape", [(-1, 5, 1), (5, 0, 0), (5, 5, 6), (5, 5, -1)])
def test_impossible_shapes_are_refused(shape: tuple[int, int, int]) -> None:
    with pytest.raises(ValueError, match="need n >= 0"):
        paper_synthetic(*shape)


def test_rows_and_a_sketch_of_the_same_seed_share_no_random_stream(monkeypatch: pytest.MonkeyPatch) -> None:
    real, streams = np.random.default_rng, set[tuple[int, ...]]()

    def recorded(seed: list[int]) -> np.random.Generator:
        streams.add(tuple(np.random.SeedSequence(seed).generate_state(4).tolist()))
        return real(seed)

    monkeypatch.setattr(np.random, "default_rng", recorded)
    rows = paper_synthetic(10_000, 100, 60, seed=7)  # enough for a shrink
    of_rows, streams = streams, set()
    SparseFrequentDirections(ell=4, seed=7).fit(rows)
    assert of_rows
    assert streams
    assert not of_rows & streams
