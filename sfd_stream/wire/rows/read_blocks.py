"""Reads packed blocks of rows: copies the arrays of each message once, from its bytes into the batch.

It takes the messages whose bytes are exactly `i` and `p`, or `i`, `v` and `p`, all of them bins, in any order. It
leaves all others, good or bad, to `read_any`, which would read the same rows from these.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from sfd_stream.wire.rows.part import Part, RowLimits

if TYPE_CHECKING:
    from collections.abc import Sequence

    from sfd_stream.sketch.rows import Int

_THREE_FIELDS = b"\x83"
_FIELDS = {b"\x82": frozenset("ip"), _THREE_FIELDS: frozenset("ivp")}
"""By the first byte, which has their number."""

_U4, _F4, _F8 = np.dtype("<u4"), np.dtype("<f4"), np.dtype("<f8")
_KEYS = {b"\xa1i": "i", b"\xa1v": "v", b"\xa1p": "p"}
_SIZE_BYTES = {0xC4: 1, 0xC5: 2, 0xC6: 4}
"""Number of bytes of the size in a bin's header."""


@dataclass(frozen=True, slots=True)
class _Block:
    """The arrays as they are in the message's bytes. The pointers are not checked yet."""

    message: int
    pointers: Any
    indices: Any
    values: Any  # of 4 or 8 bytes

    def is_whole(self) -> bool:
        """Whether the pointers increase from 0 to the number of indices."""
        return _are_whole(self.pointers.astype(np.int64), np.array([len(self.pointers)]), np.array([len(self.indices)]))


def all_look_like_blocks(values: Sequence[bytes]) -> bool:
    """Whether no other reader has to be tried before: no other form has three fields."""
    return all(data[:1] == _THREE_FIELDS for data in values)


def take_blocks(values: Sequence[bytes], messages: Int, limits: RowLimits) -> tuple[list[Part], Int]:
    """The packed blocks among the messages as a part, and the other messages.

    Checks run for all messages at once where possible: each Python call for one message keeps the interpreter from the
    sketch thread.
    """
    found = [_block(message, values[message], limits) for message in messages.tolist()]
    blocks = [block for block in found if block is not None]
    if not blocks:
        return [], messages
    part = _part(blocks)
    if part is None:
        blocks = [block for block in blocks if block.is_whole()]
        part = _part(blocks) if blocks else None
    if part is None:
        return [], messages
    others = messages[:0] if len(part.messages) == len(messages) else np.setdiff1d(messages, part.messages)
    return [part], others


def _part(blocks: list[_Block]) -> Part | None:
    """The part; None if the pointers of any message are wrong."""
    counts = np.array([len(block.pointers) for block in blocks], dtype=np.int64)
    nnz = np.array([len(block.indices) for block in blocks], dtype=np.int64)
    cuts = np.concatenate([block.pointers for block in blocks]).astype(np.int64)
    if not _are_whole(cuts, counts, nnz):
        return None
    with np.errstate(invalid="ignore"):  # the check of values finds a signalling NaN, not this line
        values = np.concatenate([block.values for block in blocks], dtype=np.float64)
    return Part(
        np.array([block.message for block in blocks], dtype=np.int64),
        counts - 1,
        nnz,
        np.delete(np.diff(cuts), np.cumsum(counts)[:-1] - 1),
        np.concatenate([block.indices for block in blocks]),
        values,
    )


def _are_whole(cuts: Int, counts: Int, nnz: Int) -> bool:
    """Whether the pointers of each message, joined, increase from 0 to its number of indices."""
    ends = np.cumsum(counts)
    rises = np.diff(cuts) >= 0
    rises[ends[:-1] - 1] = True  # between two messages any step is allowed
    return bool((cuts[ends - counts] == 0).all() and (cuts[ends - 1] == nnz).all() and rises.all())


def _block(message: int, data: bytes, limits: RowLimits) -> _Block | None:
    """The block; None if it has another form or wrong sizes: the general reader describes the fault."""
    if len(data) > limits.message_bytes_max or data[:1] not in _FIELDS:
        return None
    bins = _bins(data)
    if bins is None or bins.keys() != _FIELDS[data[:1]]:
        return None
    (_, index_bytes), (_, pointer_bytes) = bins["i"], bins["p"]
    nnz, rows = index_bytes >> 2, (pointer_bytes >> 2) - 1
    if index_bytes & 3 or pointer_bytes & 3 or nnz > limits.nnz_max or not 0 <= rows <= limits.rows_max:
        return None
    numbers = _values(data, bins.get("v"), nnz)
    if numbers is None:
        return None
    return _Block(message, _array(data, bins["p"], _U4), _array(data, bins["i"], _U4), numbers)


def _bins(data: bytes) -> dict[str, tuple[int, int]] | None:
    """Start and size of each field, if all are bins and the last one ends with the message."""
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


def _values(data: bytes, place: tuple[int, int] | None, nnz: int) -> Any:
    if place is None:
        return np.ones(nnz)
    if place[1] == 8 * nnz:
        return _array(data, place, _F8)
    return _array(data, place, _F4) if place[1] == 4 * nnz else None


def _array(data: bytes, place: tuple[int, int], dtype: Any) -> Any:
    start, size = place
    return np.frombuffer(data, dtype, size // dtype.itemsize, start)
