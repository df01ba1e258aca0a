"""Reads one message of any allowed form, by msgpack. It is the reference: the batch readers must agree with it.

Memory stays within a small multiple of the message: containers inside a field are refused before msgpack allocates
memory for them, and a declared size is not believed before its elements were read. Raises only `RowDecodeError`.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import chain, islice
from typing import TYPE_CHECKING, Any, NoReturn

import msgpack
import numpy as np

from sfd_stream.errors import RowDecodeError
from sfd_stream.wire.reasons import Reason, bad
from sfd_stream.wire.rows.part import Part, RowLimits
from sfd_stream.wire.rows.read_packed import floats

if TYPE_CHECKING:
    import numpy.typing as npt

    from sfd_stream.sketch.rows import Float, Int

_MAPS = frozenset([*range(0x80, 0x90), 0xDE, 0xDF])
_ARRAYS = frozenset([*range(0x90, 0xA0), 0xDC, 0xDD])
_BINS = frozenset([0xC4, 0xC5, 0xC6])
_FIELDS = {"i": "indices", "v": "values", "p": "pointers"}
_NUMBERS = {int, float}
_BEFORE_JSON = b" \t\r\n\xef\xbb\xbf"
"""White space and the byte order mark."""


@dataclass(frozen=True, slots=True)
class Piece:
    """The rows of one message, as a `Part`."""

    lengths: Int
    features: Any
    values: Float


def read_message(message: bytes, limits: RowLimits, *, hashed: bool) -> Piece:
    """The rows of one message, or `RowDecodeError`. With `hashed`, features may be strings too."""
    if len(message) > limits.message_bytes_max:
        raise bad(Reason.OVER_LIMIT, f"{len(message)} bytes; at most {limits.message_bytes_max} are allowed")
    if not message or message[0] not in _MAPS:
        if message.lstrip(_BEFORE_JSON)[:1] in (b"{", b"["):
            raise bad(
                Reason.JSON,
                "this looks like JSON: set input.format: json, or send rows as docs/reference/formats.md says",
            )
        raise bad(Reason.MALFORMED, "not a msgpack map")
    try:
        return _Reader(message, limits, hashed=hashed).piece()
    except RowDecodeError:
        raise
    except (ValueError, TypeError, OverflowError, msgpack.UnpackException) as error:
        limit = "exceeds max_str_len" in str(error)
        reason = Reason.OVER_LIMIT if limit else Reason.MALFORMED
        raise bad(reason, "not msgpack that can be read:", repr(error)[:160]) from error


def part_of(pieces: list[tuple[int, Piece]]) -> Part:
    """Pieces of one kind (arrays or lists of features), with their messages' numbers, as one part."""
    lengths = [piece.lengths for _, piece in pieces]
    features = [piece.features for _, piece in pieces]
    return Part(
        np.array([message for message, _ in pieces], dtype=np.int64),
        np.array([len(row_lengths) for row_lengths in lengths], dtype=np.int64),
        np.array([len(piece.values) for _, piece in pieces], dtype=np.int64),
        np.concatenate(lengths),
        list(chain.from_iterable(features)) if isinstance(features[0], list) else np.concatenate(features),
        np.concatenate([piece.values for _, piece in pieces]),
    )


def _refuse(_: object, __: object = None) -> NoReturn:
    raise bad(Reason.MALFORMED, "an array, a map or an extension inside a field")


class _Reader:
    """Walks over one map with msgpack's streaming unpacker, which never holds more bytes than it was given."""

    def __init__(self, message: bytes, limits: RowLimits, *, hashed: bool) -> None:
        self._message = message
        self._limits = limits
        self._hashed = hashed
        self._unpacker = msgpack.Unpacker(
            max_buffer_size=len(message),
            strict_map_key=False,
            max_str_len=limits.string_bytes_max,
            max_bin_len=len(message),
            max_array_len=0,  # headers of our own fields are read separately; any other container
            max_map_len=0,  # is refused, empty ones by the hooks
            max_ext_len=0,
            list_hook=_refuse,
            object_pairs_hook=_refuse,
            ext_hook=_refuse,
        )
        self._unpacker.feed(message)

    def piece(self) -> Piece:
        pairs = self._unpacker.read_map_header()
        if pairs == 0:
            piece = self._row([], None)
        else:
            first = self._unpacker.unpack()
            piece = self._integer_map(first, pairs) if type(first) is int else self._named(first, pairs)
        if self._unpacker.tell() != len(self._message):
            raise bad(Reason.MALFORMED, f"the map ends at byte {self._unpacker.tell()} of {len(self._message)}")
        return piece

    def _integer_map(self, first: int, pairs: int) -> Piece:
        """`{3: 1.0, 17: 2.5}`; a repeated key is a repeated column."""
        self._check_count("pairs", pairs, self._limits.nnz_max)
        flat = [first, *self._elements(2 * pairs - 1)]
        if set(map(type, flat[::2])) != {int}:
            raise bad(Reason.BAD_KEYS, "a map with integer keys has a key that is no integer")
        return self._row(flat[::2], flat[1::2])

    def _named(self, first: object, pairs: int) -> Piece:
        fields: dict[str, Any] = {}
        key = first
        while True:
            if not isinstance(key, str) or key not in _FIELDS:
                raise bad(Reason.BAD_KEYS, "a row has the keys i, v and p, or integers; unknown key", f"{key!r:.40}")
            if key in fields:
                raise bad(Reason.BAD_KEYS, f"key {key!r} occurs twice")
            fields[key] = self._field(key)
            pairs -= 1
            if pairs == 0:
                break
            key = self._unpacker.unpack()
        if "i" not in fields:
            raise bad(Reason.BAD_KEYS, 'no key "i"')
        return self._row(fields["i"], fields.get("v"), fields.get("p"))

    def _field(self, key: str) -> Any:
        """The bytes of a bin, the elements of an array."""
        at = self._unpacker.tell()
        kind = self._message[at] if at < len(self._message) else None
        if kind in _BINS:
            return self._unpacker.unpack()
        if kind in _ARRAYS:
            count = self._unpacker.read_array_header()
            most = self._limits.rows_max + 1 if key == "p" else self._limits.nnz_max
            self._check_count(_FIELDS[key], count, most)
            return self._elements(count)
        raise bad(Reason.BAD_TYPE, f"the {_FIELDS[key]} are neither an array nor a bin")

    def _elements(self, count: int) -> list[Any]:
        elements = list(islice(self._unpacker, count))
        if len(elements) < count:
            raise bad(Reason.MALFORMED, f"ends after {len(elements)} of {count} elements")
        return elements

    def _row(self, indices: Any, values: Any, pointers: Any = None) -> Piece:
        features = self._features(indices)
        numbers = self._values(values, len(features))
        return Piece(self._lengths(pointers, len(features)), features, numbers)

    def _features(self, indices: Any) -> Any:
        if isinstance(indices, bytes):
            packed = _u32("indices", indices)
            self._check_count("indices", len(packed), self._limits.nnz_max)
            return packed
        kinds = set(map(type, indices))
        if not kinds <= ({int, str} if self._hashed else {int}):
            raise bad(Reason.BAD_TYPE, f"an index is a {_names(kinds - {int})}, not an integer")
        if self._hashed:
            return indices
        try:
            return np.array(indices, dtype=np.int64)
        except OverflowError:
            raise bad(Reason.BAD_INDEX, "an index above 2^63") from None

    @staticmethod
    def _values(values: Any, nnz: int) -> Float:
        if values is None:
            return np.ones(nnz)
        if isinstance(values, bytes):
            if len(values) not in (4 * nnz, 8 * nnz):
                raise bad(Reason.BAD_LENGTH, f"{len(values)} bytes of values for {nnz} indices")
            return floats(np.frombuffer(values, dtype=np.uint8), 8 if len(values) == 8 * nnz else 4)
        if len(values) != nnz:
            raise bad(Reason.BAD_LENGTH, f"{len(values)} values for {nnz} indices")
        if not set(map(type, values)) <= _NUMBERS:
            raise bad(Reason.BAD_TYPE, f"a value is a {_names(set(map(type, values)) - _NUMBERS)}, not a number")
        return np.array(values, dtype=np.float64)

    def _lengths(self, pointers: Any, nnz: int) -> Int:
        """Non-zeros of each row."""
        if pointers is None:
            return np.array([nnz], dtype=np.int64)
        cuts = _pointers(pointers)
        self._check_count("rows", len(cuts) - 1, self._limits.rows_max)
        if not len(cuts) or cuts[0] != 0 or cuts[-1] != nnz:
            raise bad(Reason.BAD_POINTERS, f"row pointers do not go from 0 to {nnz}, the number of indices")
        lengths = np.diff(cuts)
        if len(lengths) and lengths.min() < 0:
            raise bad(Reason.BAD_POINTERS, f"row pointers decrease after row {int(np.argmax(lengths < 0))}")
        return lengths

    @staticmethod
    def _check_count(what: str, count: int, most: int) -> None:
        if count > most:
            raise bad(Reason.OVER_LIMIT, f"{count} {what}; at most {most} are allowed")


def _pointers(pointers: bytes | list[Any]) -> Int:
    if isinstance(pointers, bytes):
        return _u32("pointers", pointers).astype(np.int64)
    kinds = set(map(type, pointers))
    if not kinds <= {int}:
        raise bad(Reason.BAD_TYPE, f"a row pointer is a {_names(kinds - {int})}, not an integer")
    try:
        return np.array(pointers, dtype=np.int64)
    except OverflowError:
        raise bad(Reason.BAD_POINTERS, "a row pointer above 2^63") from None


def _u32(what: str, packed: bytes) -> npt.NDArray[np.uint32]:
    if len(packed) % 4:
        raise bad(Reason.BAD_LENGTH, f"{len(packed)} bytes of {what} are no whole number of 32-bit integers")
    return np.frombuffer(packed, dtype="<u4")


def _names(kinds: set[type]) -> str:
    return " or a ".join(sorted(kind.__name__ for kind in kinds))
