"""Rows wait in the order in which they came, and the buffer is full by the rows alone."""

from __future__ import annotations

import numpy as np
import pytest
import scipy.sparse as sp

from sfd_stream.sketch.buffer import Capacity, RowBuffer
from sfd_stream.sketch.rows import RowBlock
from tests.unit.sketch.matrices import spiked_rows


def test_a_buffer_is_full_by_the_rows_alone() -> None:
    block = RowBlock.from_csr(sp.csr_array(np.array([[1, 1, 0], [0, 0, 0], [1, 1, 1], [1, 0, 0]])))
    assert Capacity(entries=4).rows_until_full(block, 0, 0) == 2
    assert Capacity(nnz=3).rows_until_full(block, 0, 0) == 3
    assert Capacity(rows=3).rows_until_full(block, 0, 0) == 3
    assert Capacity(rows=3).rows_until_full(block, 2, 0) == 1
    assert Capacity(nnz=3, rows=2).rows_until_full(block, 0, 0) == 2
    assert Capacity(entries=11).rows_until_full(block, 0, 0) is None
    assert Capacity().rows_until_full(block, 0, 0) is None


def test_a_buffer_keeps_the_order_of_rows_however_they_were_cut() -> None:
    A = spiked_rows(40, 9)
    block = RowBlock.from_csr(A)
    buffer = RowBuffer()
    for start, stop in ((0, 0), (0, 7), (7, 8), (8, 8), (8, 40)):
        buffer.append(block.take(start, stop))
    assert (buffer.rows, buffer.nnz) == (40, block.nnz)
    assert (buffer.joined(9).csr() != A).nnz == 0
    assert RowBuffer().joined(9).rows == 0


def test_sealing_joins_the_blocks_since_the_last_seal_and_changes_no_row() -> None:
    block = RowBlock.from_csr(spiked_rows(40, 9))
    buffer = RowBuffer()
    sealed = []
    for start in range(0, 40, 10):
        for row in range(start, start + 10):
            buffer.append(block.take(row, row + 1))
        sealed.append(buffer.seal())
    assert [len(blocks) for blocks in sealed] == [1, 2, 3, 4]
    assert sealed[-1][0] is sealed[0][0], "what was sealed is not copied again"
    assert (buffer.joined(9).csr() != block.csr()).nnz == 0
    assert buffer.squares == pytest.approx(block.squares, rel=1e-14)
