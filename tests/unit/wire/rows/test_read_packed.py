"""Packed single rows are taken from a whole batch at once, and every other message is left to `read_any`."""

from __future__ import annotations

import msgpack
import numpy as np

from sfd_stream import encode_row
from sfd_stream.wire.rows.part import RowLimits
from sfd_stream.wire.rows.read_packed import Joined, take_packed

PACKED = encode_row([0, 4], [1.0, 2.0])
FRIENDLY = msgpack.packb({"i": [0, 4], "v": [1.0, 2.0]})


def test_packed_rows_are_taken_and_others_are_left() -> None:
    (part,), rest = take_packed(Joined.of([PACKED, FRIENDLY, PACKED]), RowLimits())
    assert (list(part.messages), list(rest)) == ([0, 2], [1])
    assert (list(part.features), list(part.values)) == ([0, 4, 0, 4], [1.0, 2.0, 1.0, 2.0])


def test_a_packed_row_above_the_limit_is_left_to_be_refused() -> None:
    parts, rest = take_packed(Joined.of([PACKED]), RowLimits(nnz_max=1))
    assert (sum(len(part.messages) for part in parts), list(rest)) == (0, [0])


def test_values_in_eight_bytes_in_four_and_none_at_all_are_taken() -> None:
    single = encode_row([7], np.array([0.5], np.float32))
    parts, rest = take_packed(Joined.of([encode_row([2]), PACKED, single]), RowLimits())
    found = {int(part.messages[0]): (list(part.features), list(part.values)) for part in parts}
    assert found == {0: ([2], [1.0]), 1: ([0, 4], [1.0, 2.0]), 2: ([7], [0.5])}
    assert not len(rest)


def test_the_bytes_of_one_message_are_never_read_as_those_of_the_next() -> None:
    """A size that is too large leads into the next message; the message is left to be refused."""
    lying = encode_row([0, 4]).replace(b"\xc4\x08", b"\xc4\x0c")
    (part,), rest = take_packed(Joined.of([lying, PACKED]), RowLimits())
    assert (list(part.messages), list(rest)) == ([1], [0])


def test_values_that_do_not_fit_the_indices_are_left_to_be_refused() -> None:
    unfit = msgpack.packb({"i": bytes(8), "v": bytes(12)})
    assert take_packed(Joined.of([unfit]), RowLimits())[1].tolist() == [0]
