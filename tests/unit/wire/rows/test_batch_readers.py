"""The quick readers take whole batches of one form, and leave every other message to `read_any`."""

from __future__ import annotations

import msgpack
import numpy as np
import scipy.sparse as sp

from sfd_stream import encode_row, encode_rows
from sfd_stream.sketch.rows import RowBlock
from sfd_stream.wire.rows.part import RowLimits
from sfd_stream.wire.rows.read_blocks import all_look_like_blocks, take_blocks
from sfd_stream.wire.rows.read_packed import Joined, take_packed

BLOCK = RowBlock.from_csr(sp.csr_array([[1.0, 0, 0, 0, 2.0], [0, 3.0, 0, 0, 0]]))
PACKED = encode_row([0, 4], [1.0, 2.0])
FRIENDLY = msgpack.packb({"i": [0, 4], "v": [1.0, 2.0]})


def test_packed_rows_are_taken_and_others_are_left() -> None:
    (part,), rest = take_packed(Joined.of([PACKED, FRIENDLY, PACKED]), RowLimits())
    assert (list(part.messages), list(rest)) == ([0, 2], [1])
    assert (list(part.features), list(part.values)) == ([0, 4, 0, 4], [1.0, 2.0, 1.0, 2.0])


def test_a_packed_row_above_the_limit_is_left_to_be_refused() -> None:
    parts, rest = take_packed(Joined.of([PACKED]), RowLimits(nnz_max=1))
    assert (sum(len(part.messages) for part in parts), list(rest)) == (0, [0])


def test_blocks_keep_their_rows() -> None:
    (message,) = encode_rows(BLOCK, rows_per_message=2)
    assert all_look_like_blocks([message, message])
    (part,), rest = take_blocks([message, FRIENDLY], np.array([0, 1]), RowLimits())
    assert (list(part.messages), list(part.rows), list(part.lengths), list(rest)) == ([0], [2], [2, 1], [1])
