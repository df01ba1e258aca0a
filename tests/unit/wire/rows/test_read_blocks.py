"""Packed blocks are taken with their rows, and every other message is left to `read_any`."""

from __future__ import annotations

import msgpack
import numpy as np
import scipy.sparse as sp

from sfd_stream import encode_rows
from sfd_stream.sketch.rows import RowBlock
from sfd_stream.wire.rows.part import RowLimits
from sfd_stream.wire.rows.read_blocks import all_look_like_blocks, take_blocks

BLOCK = RowBlock.from_csr(sp.csr_array([[1.0, 0, 0, 0, 2.0], [0, 3.0, 0, 0, 0]]))
FRIENDLY = msgpack.packb({"i": [0, 4], "v": [1.0, 2.0]})


def test_blocks_keep_their_rows() -> None:
    (message,) = encode_rows(BLOCK, rows_per_message=2)
    assert all_look_like_blocks([message, message])
    (part,), rest = take_blocks([message, FRIENDLY], np.array([0, 1]), RowLimits())
    assert (list(part.messages), list(part.rows), list(part.lengths), list(rest)) == ([0], [2], [2, 1], [1])


def test_a_block_whose_pointers_are_wrong_is_left_to_be_refused_and_its_neighbours_are_taken() -> None:
    (good,) = encode_rows(BLOCK, rows_per_message=2)
    falling = msgpack.packb(msgpack.unpackb(good) | {"p": np.array([0, 3, 2, 3], "<u4").tobytes()})
    (part,), rest = take_blocks([good, falling, good], np.arange(3), RowLimits())
    assert (list(part.messages), list(part.values), list(rest)) == ([0, 2], [1.0, 2.0, 3.0] * 2, [1])


def test_a_block_above_a_limit_is_left_to_be_refused() -> None:
    (message,) = encode_rows(BLOCK, rows_per_message=2)
    for limits in (RowLimits(rows_max=1), RowLimits(nnz_max=2), RowLimits(message_bytes_max=len(message) - 1)):
        parts, rest = take_blocks([message], np.array([0]), limits)
        assert (parts, list(rest)) == ([], [0])


def test_other_forms_do_not_look_like_blocks() -> None:
    assert not all_look_like_blocks([FRIENDLY])
