"""Reads friendly single rows of a whole batch at once: numpy walks over the msgpack arrays of all messages together.

The elements of a msgpack array have no fixed width, so the position of the k-th element follows from the (k-1)-th. It
takes `{"i": array}` and `{"i": array, "v": array}` whose indices fit 32 bits. It leaves all others, good or bad, to
`read_any`, which would read the same rows from these.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from sfd_stream.wire.rows.part import Mask, Part, RowLimits

if TYPE_CHECKING:
    from sfd_stream.sketch.rows import Float, Int
    from sfd_stream.wire.rows.read_packed import Joined

TOGETHER_MIN = 32
"""A step costs the same for one message as for dozens, so fewer messages than this are not read together."""

CHECK_STEPS = 256
"""After this many steps the walk drops messages that turned out to have another form, whatever length they declare."""

_NUMBERS = dict(enumerate((">f4", ">f8", ">u1", ">u2", ">u4", ">u8", ">i1", ">i2", ">i4", ">i8"), start=0xCA))
"""By the first byte: the type of the number after it."""
_INDICES = (0xCC, 0xCD, 0xCE)
_FLOAT64 = np.dtype([("kind", "u1"), ("number", ">f8")])


def _element_bytes() -> Int:
    """Number of bytes of an element by its first byte; 0 if it is no number."""
    sizes = np.zeros(256, dtype=np.int64)
    sizes[:0x80] = sizes[0xE0:] = 1
    for kind, dtype in _NUMBERS.items():
        sizes[kind] = 1 + np.dtype(dtype).itemsize
    return sizes


_ELEMENT_BYTES = _element_bytes()


@dataclass(frozen=True, slots=True)
class _Walk:
    """The position of each element, messages one after the other, and the end of each message's array."""

    places: Int
    after: Int


def take_lists(joined: Joined, candidates: Int, limits: RowLimits) -> tuple[list[Part], Int]:
    """The friendly single rows among the candidates as a part, and the other candidates."""
    messages, start, nnz = _openings(joined, candidates, limits)
    messages, start, nnz = _without_stragglers(messages, start, nnz)
    if not len(messages):
        return [], candidates
    walk = _walk(joined, messages, start, nnz)
    indices, fits = _indices(joined, walk, nnz)
    values, fit = _values(joined, messages, walk.after, nnz)
    fits &= fit
    part = Part.of_single_rows(messages, nnz, indices, values)
    part = part if fits.all() else part.only(fits)
    return [part], np.setdiff1d(candidates, part.messages, assume_unique=True)


def _openings(joined: Joined, candidates: Int, limits: RowLimits) -> tuple[Int, Int, Int]:
    """The messages that begin like a friendly row, the positions of their indices, and how many there are."""
    at, end = joined.starts[candidates], joined.ends[candidates]
    fits = (joined.has(at, b"\x82") | joined.has(at, b"\x81")) & joined.has(at + 1, b"\xa1i")
    start, nnz, known = _array(joined, at + 3)
    fits &= known & (nnz <= limits.nnz_max) & (nnz <= end - at) & (end - at <= limits.message_bytes_max)
    fits &= (nnz == 0) | (_ELEMENT_BYTES[joined.buffer[np.minimum(start, end)]] > 0)
    return candidates[fits], start[fits], nnz[fits]


def _array(joined: Joined, at: Int) -> tuple[Int, Int, Mask]:
    start, size, known = joined.sized(at, (0xDC, 0xDD))
    kind = joined.buffer[at]
    small = kind & 0xF0 == 0x90
    return start, np.where(small, kind & 0x0F, size), known | small


def _without_stragglers(messages: Int, start: Int, nnz: Int) -> tuple[Int, Int, Int]:
    """Drops the longest rows if few rows are as long: all others would wait for them."""
    if len(messages) < TOGETHER_MIN:
        return messages[:0], start[:0], nnz[:0]
    longest = np.partition(nnz, -TOGETHER_MIN)[-TOGETHER_MIN]
    fits = nnz <= longest
    return messages[fits], start[fits], nnz[fits]


def _walk(joined: Joined, messages: Int, start: Int, nnz: Int) -> _Walk:
    order = np.argsort(-nnz, kind="stable")
    here, base, length, end = start[order], (np.cumsum(nnz) - nnz)[order], nnz[order], joined.ends[messages[order]]
    places = np.zeros(int(nnz.sum()), dtype=np.int64)
    after = np.where(nnz == 0, start, joined.ends[messages] + 1)  # past the end: what is left out fits nowhere
    for begin in range(0, int(nnz.max()), CHECK_STEPS):
        steps = np.arange(begin, min(begin + CHECK_STEPS, int(length[0])))
        for step, count in zip(steps.tolist(), _longer_than(length, steps).tolist(), strict=True):
            at = here[:count]
            places[base[:count] + step] = at
            # An element that is no number has size 0, so the walk stays there. A message with a wrong size may lead
            # beyond the buffer, where "clip" reads the padding.
            at += _ELEMENT_BYTES.take(joined.buffer.take(at, mode="clip"))
        done = length <= begin + CHECK_STEPS
        after[order[done]] = here[done]
        going = ~done & (here < end) & (_ELEMENT_BYTES[joined.buffer.take(here, mode="clip")] > 0)
        if going.sum() < TOGETHER_MIN:
            break
        order, here, base, length, end = order[going], here[going], base[going], length[going], end[going]
    return _Walk(places, after)


def _longer_than(length: Int, steps: Int) -> Int:
    """For each step, the number of lengths above it. The lengths must decrease."""
    return len(length) - np.searchsorted(length[::-1], steps, side="right")


def _indices(joined: Joined, walk: _Walk, nnz: Int) -> tuple[Int, Mask]:
    """The column indices, and which messages have other elements than unsigned numbers of up to 32 bits."""
    kinds = joined.buffer.take(walk.places, mode="clip")
    indices = kinds.astype(np.int64)
    for kind in _INDICES:
        which = np.flatnonzero(kinds == kind)
        if len(which):
            indices[which] = _gather(joined, walk.places[which], _NUMBERS[kind])
    strange = (kinds >= 0x80) & ((kinds < _INDICES[0]) | (kinds > _INDICES[-1]))
    return indices, ~_any_of(strange, nnz)


def _values(joined: Joined, messages: Int, at: Int, nnz: Int) -> tuple[Float, Mask]:
    """The values, and which messages end directly after as many numbers as they have indices."""
    begin, end = joined.starts[messages], joined.ends[messages]
    with_values = joined.has(begin, b"\x82")
    fits = at <= end
    at = np.minimum(at, end)
    start, size, known = _array(joined, at + 2)
    fits &= np.where(with_values, known & joined.has(at, b"\xa1v") & (size == nnz) & (start <= end), at == end)
    values = np.ones(int(nnz.sum()))
    doubles = fits & with_values & (end - start == nnz * 9)
    mixed = fits & with_values & ~doubles
    for chosen, read in ((doubles, _doubles), (mixed, _mixed)):
        which = np.flatnonzero(chosen)
        if len(which):
            entries = np.repeat(chosen, nnz)
            values[entries], fits[which] = read(joined, messages[which], start[which], nnz[which])
    return values, fits


def _doubles(joined: Joined, messages: Int, start: Int, nnz: Int) -> tuple[Float, Mask]:
    """Elements of nine bytes each, if they are all doubles."""
    elements = joined.slices(messages, start, start + nnz * 9).view(_FLOAT64)
    return elements["number"].astype(np.float64), ~_any_of(elements["kind"] != 0xCB, nnz)


def _mixed(joined: Joined, messages: Int, start: Int, nnz: Int) -> tuple[Float, Mask]:
    walk = _walk(joined, messages, start, nnz)
    kinds = joined.buffer.take(walk.places, mode="clip")
    values = kinds.astype(np.int8).astype(np.float64)  # the one-byte integers, of both signs, are their own kind
    for kind, dtype in _NUMBERS.items():
        which = np.flatnonzero(kinds == kind)
        if len(which):
            values[which] = _gather(joined, walk.places[which], dtype)
    strange = _ELEMENT_BYTES[kinds] == 0
    return values, ~_any_of(strange, nnz) & (walk.after == joined.ends[messages])


def _gather(joined: Joined, places: Int, dtype: str) -> Float:
    """The big-endian numbers at these positions; any value where a walk left its message."""
    width = np.dtype(dtype).itemsize
    raw = np.empty((len(places), width), dtype=np.uint8)
    for step in range(width):
        raw[:, step] = joined.buffer.take(places + (step + 1), mode="clip")
    with np.errstate(invalid="ignore"):  # the check of values finds a signalling NaN, not this line
        return raw.view(dtype)[:, 0].astype(np.float64)


def _any_of(marked: Mask, nnz: Int) -> Mask:
    """Which messages have a marked non-zero."""
    if not marked.any():
        return np.zeros(len(nnz), dtype=bool)
    found = np.zeros(len(nnz), dtype=bool)
    found[np.searchsorted(np.cumsum(nnz), np.flatnonzero(marked), side="right")] = True
    return found
