"""Converts parts as they were read into valid columns and values, in the order of the messages."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from sfd_stream.errors import RowDecodeError
from sfd_stream.sketch.rows import squared_frobenius
from sfd_stream.wire.columns import Columns, HashedColumns
from sfd_stream.wire.hashing import signed_columns
from sfd_stream.wire.reasons import MAGNITUDE_MAX, Reason, bad
from sfd_stream.wire.rows.part import Part

if TYPE_CHECKING:
    from collections.abc import Callable

    from sfd_stream.sketch.rows import Int
    from sfd_stream.wire.rows.part import Mask

Faults = dict[int, RowDecodeError]
"""The fault of each bad message, by its number."""

_U32 = np.dtype("<u4")
_NONE = np.zeros(0, dtype=np.int64)


def checked(part: Part, columns: Columns, faults: Faults) -> Part:
    """The messages of a part whose columns and values are all valid. The others go to `faults`."""
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
    features = part.features  # checked: below 2^31, so unsigned ones need no copy
    return part.with_entries(
        features.view(np.int32) if features.dtype == _U32 else features.astype(np.int32, copy=False), part.values
    )


def merged(parts: list[Part]) -> Part:
    """One part, in the order of the messages. The features of all are int32 arrays."""
    if len(parts) == 1:
        return parts[0]
    messages = np.sort(np.concatenate([_NONE, *(part.messages for part in parts)]))
    rows, nnz = np.zeros_like(messages), np.zeros_like(messages)
    for part in parts:
        here = np.searchsorted(messages, part.messages)
        rows[here], nnz[here] = part.rows, part.nnz
    lengths = np.empty(int(rows.sum()), dtype=np.int64)
    features, values = np.empty(int(nnz.sum()), dtype=np.int32), np.empty(int(nnz.sum()))
    for part in parts:
        here = np.searchsorted(messages, part.messages)
        lengths[_runs(rows, here)] = part.lengths
        entries = _runs(nnz, here)
        features[entries], values[entries] = part.features, part.values
    return Part(messages, rows, nnz, lengths, features, values)


def _runs(sizes: Int, chosen: Int) -> Int:
    """The places of the chosen runs when runs of these sizes lie one after the other."""
    ends, length = np.cumsum(sizes)[chosen], sizes[chosen]
    return np.arange(int(length.sum())) + np.repeat(ends - np.cumsum(length), length)


def texts_of(placed: Part, parts: list[Part]) -> Callable[[Int], list[str]]:
    """A function from places of non-zeros in `placed` to the texts of their features."""
    ends = np.cumsum(placed.nnz)

    def texts(places: Int) -> list[str]:
        numbers = np.searchsorted(ends, places, side="right")
        messages, from_end = placed.messages[numbers], ends[numbers] - places
        found = [""] * len(places)
        for part in parts:
            which = np.flatnonzero(np.isin(messages, part.messages))
            at = np.searchsorted(part.messages, messages[which])
            for place, entry in zip(which.tolist(), (np.cumsum(part.nnz)[at] - from_end[which]).tolist(), strict=True):
                found[place] = str(part.features[entry])
        return found

    return texts


def _outside(part: Part, end: int) -> Faults:
    indices = part.features
    if not indices.size or (indices.max() < end and (indices.dtype == _U32 or indices.min() >= 0)):
        return {}
    wrong = (indices < 0) | (indices >= end)
    return {
        place: bad(Reason.BAD_INDEX, f"column {indices[entry]} outside [0, {end})")
        for place, entry in _first_marked(part, wrong)
    }


def _bad_values(part: Part) -> Faults:
    values = part.values
    with np.errstate(invalid="ignore"):  # signalling NaNs
        if squared_frobenius(values) <= MAGNITUDE_MAX**2:  # one pass, and enough: no value can be above
            return {}
        large = np.abs(values) > MAGNITUDE_MAX
        infinite = ~np.isfinite(values)
    too_large = f"a value above {MAGNITUDE_MAX:g} in magnitude: sums of squares would overflow"
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
