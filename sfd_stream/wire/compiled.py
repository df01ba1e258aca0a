"""The compiled decoder, where it is installed: all messages of a batch at once, without the interpreter's lock.

It decodes the common messages and leaves all others, good or bad, to the reference in Python. Its results are the same
to the last bit: it changes only the cost of decoding. `native/` has its sources, in Rust; `hatch_build.py` compiles
them if it finds cargo. SFD_COMPILED=0 in the environment switches it off.
"""

from __future__ import annotations

import ctypes
import json
import os
from dataclasses import dataclass, replace
from functools import cache, lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final
from weakref import finalize

import numpy as np

from sfd_stream.wire.columns import Columns, HashedColumns
from sfd_stream.wire.hashing import HashedNames
from sfd_stream.wire.rows.part import Part, RowLimits

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from sfd_stream.sketch.rows import Int
    from sfd_stream.wire.features import FeatureMap

LIBRARY: Final = Path(__file__).with_name("libsfd_decode.so")
_INTERFACE: Final = 2
_TOGETHER_BYTES: Final = 8 * 2**20
"""Messages of about this many bytes are decoded in one call, which bounds the memory that it needs."""


@dataclass(frozen=True, slots=True)
class Format:
    """A format of records that the library reads: `json`, or `avro` and `protobuf` with a schema."""

    name: str
    schema: str = ""


@dataclass(frozen=True, slots=True)
class MessageReader:
    """Reads one message to plain values by `read`. The library reads whole batches if there is a `format`."""

    read: Callable[[bytes], Any]
    format: Format

    def __call__(self, message: bytes) -> Any:
        return self.read(message)


def is_available() -> bool:
    """Whether the compiled decoder is installed and used.

    >>> is_available() in (True, False)
    True
    """
    return _library() is not None


def take_rows(values: Sequence[bytes], columns: Columns, limits: RowLimits) -> tuple[list[Part], Int]:
    """The rows in msgpack that the library decodes, as parts, and the other messages: all, if it is not available."""
    library = _library()
    return _taken(library, _Plans(None, None), values, columns, limits) if library else ([], _all(values))


def take_records(
    read: Callable[[bytes], Any], values: Sequence[bytes], columns: HashedColumns, limits: RowLimits, header: int = 0
) -> tuple[list[Part], Int]:
    """Like `take_rows`, for records that `read` reads, each after a header of this many bytes."""
    library = _library()
    if library is None or columns.mapping is None or not isinstance(read, MessageReader):
        return [], _all(values)
    plans = _Plans(_plan(columns.mapping), _schema(read.format))
    if plans.mapping is None or plans.schema is None:
        return [], _all(values)
    if header:
        values = [value[header:] for value in values]
        limits = replace(limits, message_bytes_max=max(limits.message_bytes_max - header, 0))
    return _taken(library, plans, values, columns, limits)


@dataclass(frozen=True, slots=True)
class _Plans:
    mapping: _Handle | None
    schema: _Handle | None

    @property
    def addresses(self) -> tuple[int | None, ...]:
        return tuple(None if plan is None else plan.address for plan in (self.mapping, self.schema))


def _all(values: Sequence[bytes]) -> Int:
    return np.arange(len(values))


def _taken(
    library: Any, plans: _Plans, values: Sequence[bytes], columns: Columns, limits: RowLimits
) -> tuple[list[Part], Int]:
    names = (columns.seed, columns.learning, 0) if isinstance(columns, HashedColumns) else (0, False, columns.end)
    wanted = _Wanted(limits.message_bytes_max, limits.nnz_max, limits.rows_max, limits.string_bytes_max, *names)
    lengths = np.fromiter(map(len, values), dtype=np.int64, count=len(values))
    parts, left = [], [_all(())]
    for start, stop in _pieces(lengths):
        ends = np.cumsum(lengths[start:stop])
        messages = _Messages(b"".join(values[start:stop]), ends.ctypes.data, stop - start)
        part, others = _decoded(library, plans, messages, wanted, np.arange(start, stop))
        parts += [part] if part is not None and len(part.messages) else []
        left.append(others)
    return parts, np.concatenate(left)


def _pieces(lengths: Int) -> list[tuple[int, int]]:
    if not len(lengths):
        return []
    before = np.cumsum(lengths) - lengths
    cuts = (np.flatnonzero(np.diff(before // _TOGETHER_BYTES)) + 1).tolist()
    return list(zip([0, *cuts], [*cuts, len(lengths)], strict=True))


def _decoded(
    library: Any, plans: _Plans, messages: _Messages, wanted: _Wanted, numbers: Int
) -> tuple[Part | None, Int]:
    """The part with the messages that are decoded, and the numbers of the others."""
    batch = _Batch()
    given = (ctypes.byref(messages), ctypes.byref(wanted), ctypes.byref(batch))
    if library.sfd_decode(*plans.addresses, *given):
        return None, numbers
    try:
        rows = _copied(batch.rows_of_message, len(numbers), np.int64)
        lengths = _copied(batch.lengths, batch.row_count, np.int64)
        hashes = _copied(batch.hashes, batch.entry_count, np.int32)
        values = _copied(batch.values, batch.entry_count, np.float64)
        ends = _copied(batch.name_ends, batch.entry_count if wanted.keep_names else 0, np.int64)
        texts = ctypes.string_at(batch.names, batch.names_len) if batch.names_len else b""
    finally:
        library.sfd_free(batch.rows)
    taken = rows >= 0
    starts = np.concatenate([ends[:0], [0], ends[:-1]]) if len(ends) else ends
    features = hashes if wanted.columns_end else HashedNames(hashes, texts, starts, ends)
    part = Part(numbers[taken], rows[taken], _sums(lengths, rows[taken]), lengths, features, values)
    return part, numbers[~taken]


def _sums(lengths: Int, rows: Int) -> Int:
    """The non-zeros of each message, from the lengths of its rows."""
    totals = np.zeros(len(lengths) + 1, dtype=np.int64)
    np.cumsum(lengths, out=totals[1:])
    ends = np.cumsum(rows)
    sums: Int = totals[ends] - totals[ends - rows]
    return sums


def _copied(address: int, count: int, dtype: Any) -> Any:
    kind = np.dtype(dtype)
    return np.frombuffer(ctypes.string_at(address, count * kind.itemsize), kind) if count else np.zeros(0, kind)


# -- the library -----------------------------------------------------------------------------------------


class _Messages(ctypes.Structure):
    _fields_ = (("data", ctypes.c_char_p), ("ends", ctypes.c_void_p), ("count", ctypes.c_uint64))


class _Wanted(ctypes.Structure):
    _fields_ = (
        ("message_bytes_max", ctypes.c_uint64), ("nnz_max", ctypes.c_uint64), ("rows_max", ctypes.c_uint64),
        ("string_bytes_max", ctypes.c_uint64), ("seed", ctypes.c_uint32), ("keep_names", ctypes.c_uint32),
        ("columns_end", ctypes.c_uint64),
    )  # fmt: skip


class _Batch(ctypes.Structure):
    _fields_ = (
        ("rows", ctypes.c_void_p), ("rows_of_message", ctypes.c_void_p), ("lengths", ctypes.c_void_p),
        ("row_count", ctypes.c_uint64), ("hashes", ctypes.c_void_p), ("values", ctypes.c_void_p),
        ("entry_count", ctypes.c_uint64), ("name_ends", ctypes.c_void_p), ("names", ctypes.c_void_p),
        ("names_len", ctypes.c_uint64),
    )  # fmt: skip


class _Handle:
    """An object that the library allocated. It is freed together with this one."""

    def __init__(self, address: int, free: Callable[[int], None]) -> None:
        self.address = address
        finalize(self, free, address)


@lru_cache(64)
def _plan(mapping: FeatureMap) -> _Handle | None:
    """The mapping in the form that the library reads: fields in the order in which patterns are tried."""
    library = _library()
    described = {
        "path": [] if mapping.path is None else mapping.path.split("."),
        "include": mapping.include,
        "exclude": mapping.exclude,
        "fields": [(path, options.described()) for path, options in mapping.ordered_fields()],
    }
    text = json.dumps(described).encode()
    address = library.sfd_plan(text, len(text))
    return _Handle(address, library.sfd_free_plan) if address else None


@lru_cache(1024)
def _schema(given: Format) -> _Handle | None:
    """The schema for the library; None for a schema that it does not read."""
    library = _library()
    name, text = given.name.encode(), given.schema.encode()
    address = library.sfd_schema(name, len(name), text, len(text))
    return _Handle(address, library.sfd_free_schema) if address else None


@cache
def _library() -> Any:
    """The library; None if it is not installed, switched off, or of another version."""
    if os.environ.get("SFD_COMPILED") == "0" or not LIBRARY.exists():
        return None
    library = ctypes.CDLL(str(LIBRARY))  # CDLL releases the interpreter's lock while the library runs
    pointer, size, word = ctypes.c_void_p, ctypes.c_uint64, ctypes.c_uint32
    signatures: dict[str, tuple[Any, list[Any]]] = {
        "sfd_interface": (word, []),
        "sfd_plan": (pointer, [ctypes.c_char_p, size]),
        "sfd_schema": (pointer, [ctypes.c_char_p, size, ctypes.c_char_p, size]),
        "sfd_decode": (word, [pointer] * 5),
        "sfd_free": (None, [pointer]),
        "sfd_free_plan": (None, [pointer]),
        "sfd_free_schema": (None, [pointer]),
    }
    for name, (result, arguments) in signatures.items():
        function = getattr(library, name)
        function.restype, function.argtypes = result, arguments
    return library if library.sfd_interface() == _INTERFACE else None
