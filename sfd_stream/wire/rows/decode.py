"""Decodes the messages of a poll into one checked block of rows. A bad message does not affect the good ones.

The compiled decoder, if it is installed, reads names and lists of a whole batch at once. Packed numbers do not need it:
numpy copies those of a whole batch, and those of blocks message by message. Without the compiled decoder numpy also
reads lists. msgpack reads all other messages one by one. The choice of reader changes the cost and nothing else.
`docs/reference/formats.md` has the format.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from sfd_stream.errors import RowDecodeError
from sfd_stream.sketch.rows import Int, RowBlock, canonical
from sfd_stream.wire.columns import Columns, FixedColumns, GrowingColumns, Growth, HashedColumns
from sfd_stream.wire.compiled import is_available, take_rows
from sfd_stream.wire.reasons import MAGNITUDE_MAX, Reason, bad
from sfd_stream.wire.rows.part import Part, RowLimits
from sfd_stream.wire.rows.read_any import Piece, part_of, read_message
from sfd_stream.wire.rows.read_blocks import all_look_like_blocks, take_blocks
from sfd_stream.wire.rows.read_lists import TOGETHER_MIN, take_lists
from sfd_stream.wire.rows.read_packed import Joined, is_packed, take_packed
from sfd_stream.wire.rows.validate import Faults, checked, merged, placed_in, texts_of

if TYPE_CHECKING:
    from collections.abc import Sequence

_DEFAULT_LIMITS = RowLimits()


@dataclass(frozen=True, slots=True)
class DecodedBatch:
    """The content of a batch of messages."""

    block: RowBlock  # the rows of all good messages, in order; its d is that of `columns`
    rows_of_message: Int  # 0 for a bad one
    bad: tuple[tuple[int, RowDecodeError], ...]  # ascending by message
    columns: Columns  # to adopt if the batch is kept: wider, or with more names, than before it
    growth: Growth  # (row of the block, d from this row on)


def decode(values: Sequence[bytes], columns: Columns, limits: RowLimits = _DEFAULT_LIMITS) -> DecodedBatch:
    """The rows of a batch. Nothing that a message holds raises: bad ones are in `.bad`, each as a whole.

    >>> from sfd_stream import FixedColumns, decode, encode_row
    >>> batch = decode([encode_row([3, 17], [1.0, 2.5]), b"no row"], FixedColumns(20))
    >>> batch.block.rows, [(number, error.reason) for number, error in batch.bad]
    (1, [(1, 'malformed')])
    """
    _check_kinds(values, columns)
    faults: Faults = {}
    return assembled(len(values), _read(values, columns, limits, faults), faults, columns)


def assembled(messages: int, parts: list[Part], faults: Faults, columns: Columns) -> DecodedBatch:
    """The rows of parts of a batch, checked and in the order of the messages. `faults`: messages known as bad."""
    parts = [checked(part, columns, faults) for part in parts]
    placed = merged([placed_in(columns, part) for part in parts])
    placed, block = _canonical(placed, columns, faults)
    columns, growth = _taught(columns, block, placed, parts)
    rows_of_message = np.zeros(messages, dtype=np.int64)
    rows_of_message[placed.messages] = placed.rows
    return DecodedBatch(replace(block, d=columns.d), rows_of_message, tuple(sorted(faults.items())), columns, growth)


def _check_kinds(values: Any, columns: Any) -> None:
    if isinstance(values, bytes | str):
        kind = type(values).__name__
        raise TypeError(f"messages must be a list of bytes, not {kind}: decode([value], columns)")
    if not isinstance(columns, Columns):
        kind = type(columns).__name__
        raise TypeError(f"columns must be FixedColumns(d), GrowingColumns or HashedColumns, not {kind}")
    if len(values) and isinstance(values[0], str):
        raise TypeError("a message must be bytes, not str")


def decode_one(value: bytes, columns: Columns, limits: RowLimits = _DEFAULT_LIMITS) -> DecodedBatch:
    """The rows of one message; raises its `RowDecodeError` if it is bad."""
    batch = decode([value], columns, limits)
    for _, error in batch.bad:
        raise error
    return batch


def _read(values: Sequence[bytes], columns: Columns, limits: RowLimits, faults: Faults) -> list[Part]:
    """Converts bytes into parts, each message by the fastest reader for it."""
    hashed = isinstance(columns, HashedColumns)
    if is_available() and (hashed or not is_packed(values)):
        parts, rest = take_rows(values, columns, limits)
    else:
        parts, rest = ([], np.arange(len(values))) if all_look_like_blocks(values) else _read_joined(values, limits)
        blocks, rest = take_blocks(values, rest, limits)
        parts += blocks
    return parts + _read_each(values, rest, limits, faults, hashed=hashed)


def _read_each(
    values: Sequence[bytes], messages: Int, limits: RowLimits, faults: Faults, *, hashed: bool
) -> list[Part]:
    """Reads these messages by the reference, which also describes the fault of a bad one."""
    pieces: dict[bool, list[tuple[int, Piece]]] = {False: [], True: []}
    for message in messages.tolist():
        try:
            piece = read_message(values[message], limits, hashed=hashed)
        except RowDecodeError as error:
            faults[message] = error
        else:
            pieces[isinstance(piece.features, list)].append((message, piece))
    return [part_of(kind) for kind in pieces.values() if kind]


def _read_joined(values: Sequence[bytes], limits: RowLimits) -> tuple[list[Part], Int]:
    """The parts that can be read from all messages at once, and the other messages."""
    joined = Joined.of(values)
    parts, rest = take_packed(joined, limits)
    if len(rest) >= TOGETHER_MIN:
        lists, rest = take_lists(joined, rest, limits)
        parts += lists
    return parts, rest


def _canonical(placed: Part, columns: Columns, faults: Faults) -> tuple[Part, RowBlock]:
    """The rows as a block. A message whose duplicates have too large a sum is bad, and is left out of both."""
    block = canonical(_pointers(placed), placed.features, placed.values, columns.end)
    if block.values is placed.values or not (over := np.abs(block.values) > MAGNITUDE_MAX).any():
        return placed, block
    row_ends = np.cumsum(placed.rows)
    rows = np.searchsorted(block.indptr, np.flatnonzero(over), side="right") - 1
    places = np.unique(np.searchsorted(row_ends, rows, side="right"))
    error = f"duplicate columns sum above {MAGNITUDE_MAX:g} in magnitude"
    faults |= {message: bad(Reason.TOO_LARGE, error) for message in placed.messages[places].tolist()}
    keep = np.ones(len(placed.messages), dtype=bool)
    keep[places] = False
    return _canonical(placed.only(keep), columns, faults)


def _pointers(placed: Part) -> Int:
    pointers = np.zeros(len(placed.lengths) + 1, dtype=np.int64)
    np.cumsum(placed.lengths, out=pointers[1:])
    return pointers


def _taught(columns: Columns, block: RowBlock, placed: Part, parts: list[Part]) -> tuple[Columns, Growth]:
    """The columns after these rows."""
    match columns:
        case GrowingColumns():
            return columns.grown(block)
        case HashedColumns():
            return columns.learned(placed.features, placed.values, texts_of(placed, parts)), ()
        case FixedColumns():
            return columns, ()
