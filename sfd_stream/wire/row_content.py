"""From parts as they were read to columns and values that can be taken, in the order of the messages."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from sfd_stream.errors import RowDecodeError
from sfd_stream.sketch.rows import VALUE_MAX
from sfd_stream.wire.columns import Columns, HashedColumns
from sfd_stream.wire.hashing import signed_columns
from sfd_stream.wire.row_parts import Mask, Part, Reason, bad

Faults = dict[int, RowDecodeError]
"""What is wrong with the bad messages, by number."""


def checked(part: Part, columns: Columns, faults: Faults) -> Part:
    """The messages of a part whose every column and value can be taken; the others go to `faults`."""
    wrong = _bad_values(part)
    if not isinstance(columns, HashedColumns):
        wrong |= _outside(part, columns.end)
    if not wrong:
        return part
    faults |= {int(part.messages[place]): error for place, error in wrong.items()}
    keep = np.ones(len(part.messages), dtype=bool)
    keep[list(wrong)] = False
    return part.only(keep)


def placed_in(columns: Columns, part: Part) -> Part:
    """The part with int32 columns for features; hashing gives the values its signs."""
    if isinstance(columns, HashedColumns):
        indices, signs = signed_columns(part.features, columns.d, columns.seed)
        return part.with_entries(indices, part.values * signs)
    return part.with_entries(part.features.astype(np.int32), part.values)


def merged(parts: list[Part]) -> Part:
    """One part, in the order of the messages. The features of all are arrays."""
    parts = [part for part in parts if len(part.messages)]
    if len(parts) == 1:
        return parts[0]
    if not parts:
        none = np.zeros(0, dtype=np.int64)
        return Part(none, none, none, none, np.zeros(0, dtype=np.int32), np.zeros(0))
    order = np.argsort(np.concatenate([part.messages for part in parts]))
    pieces = [piece for part in parts for piece in _by_message(part)]
    lengths, features, values = zip(*[pieces[place] for place in order.tolist()], strict=True)
    return Part(
        np.concatenate([part.messages for part in parts])[order],
        np.concatenate([part.rows for part in parts])[order],
        np.concatenate([part.nnz for part in parts])[order],
        np.concatenate(lengths),
        np.concatenate(features),
        np.concatenate(values),
    )


def feature_at(placed: Part, parts: list[Part]) -> Callable[[int], str]:
    """A function from the place of a non-zero in `placed` to its feature's text in the part it came from."""
    ends = np.cumsum(placed.nnz)

    def text(place: int) -> str:
        number = int(np.searchsorted(ends, place, side="right"))
        message, back = placed.messages[number], int(ends[number]) - place
        for part in parts:
            at = int(np.searchsorted(part.messages, message))
            if at < len(part.messages) and part.messages[at] == message:
                return str(part.features[int(part.nnz[: at + 1].sum()) - back])
        raise AssertionError("a non-zero that no part holds")

    return text


def _by_message(part: Part) -> zip[tuple[object, object, object]]:
    """Lengths, features and values of each message, sharing memory."""
    row_ends, entry_ends = np.cumsum(part.rows)[:-1], np.cumsum(part.nnz)[:-1]
    cut = np.split
    return zip(cut(part.lengths, row_ends), cut(part.features, entry_ends), cut(part.values, entry_ends), strict=True)


def _outside(part: Part, end: int) -> Faults:
    indices = part.features
    if not indices.size or (indices.max() < end and indices.min() >= 0):
        return {}
    wrong = (indices < 0) | (indices >= end)
    return {
        place: bad(Reason.BAD_INDEX, f"column {indices[entry]} outside [0, {end})")
        for place, entry in _first_marked(part, wrong)
    }


def _bad_values(part: Part) -> Faults:
    values = part.values
    with np.errstate(invalid="ignore"):  # signalling NaNs
        if not values.size or (values.max() <= VALUE_MAX and values.min() >= -VALUE_MAX):
            return {}
        large = np.abs(values) > VALUE_MAX
        infinite = ~np.isfinite(values)
    too_large = f"a value above {VALUE_MAX:g} in magnitude: its square would overflow"
    faults = {place: bad(Reason.TOO_LARGE, too_large) for place, _ in _first_marked(part, large)}
    not_finite = {
        place: bad(Reason.NOT_FINITE, "a value is NaN or infinite") for place, _ in _first_marked(part, infinite)
    }
    return faults | not_finite


def _first_marked(part: Part, marked: Mask) -> list[tuple[int, int]]:
    """(place of the message in the part, first marked non-zero) of each message that has one."""
    entries = np.flatnonzero(marked)
    places, firsts = np.unique(np.searchsorted(np.cumsum(part.nnz), entries, side="right"), return_index=True)
    return list(zip(places.tolist(), entries[firsts].tolist(), strict=True))
