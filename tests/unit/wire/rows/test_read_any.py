"""One message of any allowed form, read by msgpack: the reference that the batch readers agree with."""

from __future__ import annotations

import msgpack
import pytest

from sfd_stream.errors import RowDecodeError
from sfd_stream.wire.rows.part import RowLimits
from sfd_stream.wire.rows.read_any import part_of, read_message


def test_a_friendly_row_is_read_as_it_stands() -> None:
    piece = read_message(msgpack.packb({"i": [3, 1], "v": [0.5, 2]}), RowLimits(), hashed=False)
    assert (list(piece.features), list(piece.values), list(piece.lengths)) == ([3, 1], [0.5, 2.0], [2])


def test_pieces_keep_the_numbers_of_their_messages() -> None:
    pieces = [(n, read_message(msgpack.packb({"i": [n]}), RowLimits(), hashed=False)) for n in (4, 7)]
    part = part_of(pieces)
    assert (list(part.messages), list(part.rows), list(part.features), list(part.values)) == (
        [4, 7],
        [1, 1],
        [4, 7],
        [1, 1],
    )


@pytest.mark.parametrize(
    ("message", "reason"),
    [(b"[1]", "json"), (b"", "malformed"), (msgpack.packb({"x": [1]}), "bad_keys"), (bytes(33), "over_limit")],
)
def test_what_is_no_row_has_a_reason(message: bytes, reason: str) -> None:
    with pytest.raises(RowDecodeError) as refused:
        read_message(message, RowLimits(message_bytes_max=32), hashed=False)
    assert refused.value.reason == reason
