"""Packed blocks of rows: the arrays of each message as they lie in its bytes, copied once, into the batch.

Takes the messages whose bytes are exactly `i` and `p`, or `i`, `v` and `p`, all of them bins, in any order, and leaves
everything else, good or bad, to `row_general`, which would make the same of these.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from sfd_stream.wire.row_packed import floats
from sfd_stream.wire.row_parts import Part, RowLimits

if TYPE_CHECKING:
    from collections.abc import Sequence

    from sfd_stream.sketch.rows import Float, Int

_THREE_FIELDS = b"\x83"
_FIELDS = {b"\x82": frozenset("ip"), _THREE_FIELDS: frozenset("ivp")}
"""By the first byte, which counts them."""

_KEYS = {b"\xa1i": "i", b"\xa1v": "v", b"\xa1p": "p"}
_SIZE_BYTES = {0xC4: 1, 0xC5: 2, 0xC6: 4}
"""Of the size in a bin's header."""


@dataclass(frozen=True, slots=True)
class _Block:
    message: int
    lengths: Int
    indices: Any
    values: Float


def all_look_like_blocks(values: Sequence[bytes]) -> bool:
    """Whether no other reader need be tried first: nothing else has three fields."""
    return all(data[:1] == _THREE_FIELDS for data in values)


def take_blocks(values: Sequence[bytes], messages: Int, limits: RowLimits) -> tuple[list[Part], Int]:
    """Those of the messages that are packed blocks as a part, and the others."""
    blocks, others = [], []
    for message in messages.tolist():
        block = _block(message, values[message], limits)
        if block is None:
            others.append(message)
        else:
            blocks.append(block)
    return [_part(blocks)] if blocks else [], np.array(others, dtype=np.int64)


def _part(blocks: list[_Block]) -> Part:
    return Part(
        np.array([block.message for block in blocks], dtype=np.int64),
        np.array([len(block.lengths) for block in blocks], dtype=np.int64),
        np.array([len(block.indices) for block in blocks], dtype=np.int64),
        np.concatenate([block.lengths for block in blocks]),
        np.concatenate([block.indices for block in blocks]),
        np.concatenate([block.values for block in blocks]),
    )


def _block(message: int, data: bytes, limits: RowLimits) -> _Block | None:
    """None if it is something else, or anything is wrong with it: the general reader finds the words for that."""
    if len(data) > limits.message_bytes_max or data[:1] not in _FIELDS:
        return None
    bins = _bins(data)
    if bins is None or bins.keys() != _FIELDS[data[:1]]:
        return None
    (_, index_bytes), (_, pointer_bytes) = bins["i"], bins["p"]
    nnz, rows = index_bytes >> 2, (pointer_bytes >> 2) - 1
    if index_bytes & 3 or pointer_bytes & 3 or nnz > limits.nnz_max or not 0 <= rows <= limits.rows_max:
        return None
    lengths = _lengths(_array(data, bins["p"], "<u4"), nnz)
    numbers = _values(data, bins.get("v"), nnz)
    if lengths is None or numbers is None:
        return None
    return _Block(message, lengths, _array(data, bins["i"], "<u4"), numbers)


def _bins(data: bytes) -> dict[str, tuple[int, int]] | None:
    """Start and size of each field, if all are bins and end where the message does."""
    found: dict[str, tuple[int, int]] = {}
    at, end = 1, len(data)
    for _ in range(data[0] & 0x0F):
        key, kind = _KEYS.get(data[at : at + 2]), data[at + 2] if at + 2 < end else None
        if key is None or key in found or kind not in _SIZE_BYTES:
            return None
        start = at + 3 + _SIZE_BYTES[kind]
        size = int.from_bytes(data[at + 3 : start], "big")
        found[key] = start, size
        at = start + size
    return found if at == end else None


def _lengths(pointers: Any, nnz: int) -> Int | None:
    cuts = pointers.astype(np.int64)
    lengths = np.diff(cuts)
    if cuts[0] != 0 or cuts[-1] != nnz or (len(lengths) and lengths.min() < 0):
        return None
    return np.asarray(lengths)


def _values(data: bytes, place: tuple[int, int] | None, nnz: int) -> Float | None:
    if place is None:
        return np.ones(nnz)
    for width in (8, 4):
        if place[1] == width * nnz:
            return floats(_array(data, place, "u1"), width)
    return None


def _array(data: bytes, place: tuple[int, int], dtype: str) -> Any:
    start, size = place
    return np.frombuffer(data, dtype, size // np.dtype(dtype).itemsize, start)
