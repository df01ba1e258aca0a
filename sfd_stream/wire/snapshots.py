"""Snapshots as bytes: a sketch with its id and all that a reader must know, with a checksum.

A value is a sealed body: schema, version, checksum, and one msgpack map. The checkpoint store has large snapshots, and
the topic a reference to each. `docs/reference/formats.md` is the specification, with a short reader.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

import msgpack
import numpy as np
import zstandard

from sfd_stream.errors import ChecksumError, FormatError, NewerFormatError
from sfd_stream.sketch.rows import D_MAX, VALUE_MAX, Float
from sfd_stream.sketch.sketch import Sketch
from sfd_stream.wire.columns import Columns, HashedColumns
from sfd_stream.wire.features import FeatureMap
from sfd_stream.wire.frames import checksum
from sfd_stream.wire.snapshot_ids import PARTITIONS_MAX, Headers, SnapshotId, SnapshotPart

VERSION = 1
SNAPSHOT = "sfd-snapshot"
REFERENCE = "sfd-reference"

MAX_BYTES = 2**30
"""The memory limit of a decoded snapshot, unless the reader sets one: 100 rows of 1,048,576 columns are 0.8 GiB."""

_NAME_BYTES = 256  # the Python objects of a name, without its text
_PARTS_MAX = 1_000_000
_STORE_MAX, _KEY_MAX = 4096, 1024
_SIZE_MAX = 2**48
_LEVEL = 1  # real numbers hardly compress: a higher level gains nothing
_DTYPES: dict[str, np.dtype[Any]] = {"float64": np.dtype("<f8"), "float32": np.dtype("<f4")}
_MODES = ("fixed", "growing", "hashed")
_COUNTS = ("partitions", "next_offset", "ell", "d", "rows", "nnz", "shrinks", "matrix_rows")
_SIZES = ("failure_probability", "weight", "squared_frobenius", "delta", "rounding", "made_at_s")


@dataclass(frozen=True)
class Snapshot:
    """A published sketch. Its matrix is always float64; `dtype` is the type to which its numbers were rounded."""

    id: SnapshotId
    partitions: int
    next_offset: int
    made_at_s: float
    sketch: Sketch
    columns: str
    hash_seed: int | None = None
    names: Mapping[int, str] = field(default_factory=dict)
    merged_from: tuple[SnapshotPart, ...] = ()
    dtype: str = "float64"
    mapping: FeatureMap | None = None
    """How records became features, if rows were records."""

    @property
    def parts(self) -> tuple[SnapshotPart, ...]:
        """The input partitions that it contains: itself, or those from which it was merged."""
        own = SnapshotPart(self.id, self.partitions, self.next_offset, self.sketch.rows, self.made_at_s)
        return self.merged_from or (own,)

    @property
    def features(self) -> HashedColumns | None:
        """The columns by name, which learn no further names; None if they have none."""
        if self.columns != "hashed" or self.hash_seed is None:
            return None
        return HashedColumns(self.sketch.d, self.hash_seed, names=self.names, mapping=self.mapping).known()

    @property
    def meaning(self) -> tuple[Any, ...]:
        """Two snapshots' columns have the same meaning if this is equal."""
        return self.columns, self.hash_seed, self.sketch.d if self.columns == "hashed" else None, self.mapping


class Reference(NamedTuple):
    """Where a snapshot's bytes are: the store's URL, the key in it, and the expected size and checksum."""

    id: SnapshotId
    store: str
    key: str
    size: int
    checksum: bytes


class Message(NamedTuple):
    """A message for the topic."""

    key: bytes
    value: bytes
    headers: Headers


def snapshot_of(
    sketch: Sketch,
    columns: Columns,
    snapshot_id: SnapshotId,
    *,
    partitions: int,
    next_offset: int,
    made_at_s: float,
    dtype: str,
) -> Snapshot:
    """The snapshot of a sketch whose columns have this meaning. `partitions`: those of the input topic."""
    hashed = columns if isinstance(columns, HashedColumns) else None
    return Snapshot(
        id=snapshot_id,
        partitions=partitions,
        next_offset=next_offset,
        made_at_s=made_at_s,
        sketch=sketch,
        columns=columns.kind,
        hash_seed=hashed.seed if hashed else None,
        names=hashed.names if hashed else {},
        dtype=dtype,
        mapping=hashed.mapping if hashed else None,
    )


@dataclass(frozen=True)
class SnapshotEncoder:
    """The bytes of a partition's snapshot, and its message. The bytes are encoded once and stored with the checkpoint:
    the first publication, a publication after a crash and a reference all use them.
    """

    topic: str
    store_url: str
    inline_max_bytes: int
    """Larger bytes are not published: the message refers to them in the store."""
    dtype: str = "float64"
    column_sums: bool = True
    column_names: bool = True

    def encode(
        self,
        sketch: Sketch,
        columns: Columns,
        snapshot_id: SnapshotId,
        *,
        partitions: int,
        next_offset: int,
        made_at_s: float,
    ) -> bytes:
        """The sketch as it is to be published. `partitions`: those of the input topic."""
        if not self.column_sums:
            sketch = replace(sketch, column_sums=None, column_squares=None)
        snapshot = snapshot_of(
            sketch,
            columns,
            snapshot_id,
            partitions=partitions,
            next_offset=next_offset,
            made_at_s=made_at_s,
            dtype=self.dtype,
        )
        return encode_snapshot(snapshot if self.column_names else replace(snapshot, names={}))

    def message(self, encoded: bytes, key: str) -> Message:
        """A message with the bytes, or with a reference to them: they are in the store under `key`."""
        if len(encoded) <= self.inline_max_bytes:
            return message_of(encoded)
        return reference_to(encoded, self.store_url, key)

    def advice(self, message_bytes: int) -> str:
        """What to do about a message that the broker refused as too large."""
        return (
            f"topic {self.topic} takes no message of {message_bytes:,} bytes: raise its max.message.bytes,"
            " or lower snapshot.inline_max_bytes"
        )


# -- sealed bodies -------------------------------------------------------------------------------------------


def _seal(schema: str, body: Mapping[str, Any]) -> bytes:
    packed: bytes = msgpack.packb(dict(body))
    return _head(schema, VERSION, _sum_of(schema, VERSION, packed), len(packed)) + packed


def _head(schema: str, version: int, checksum_: bytes, body_bytes: int) -> bytes:
    """A message without its body: a map of four whose last value is `bin`, in msgpack's shortest form."""
    three: bytes = msgpack.packb({"schema": schema, "version": version, "checksum": checksum_})
    width = next(width for width in (1, 2, 4) if body_bytes < 1 << 8 * width)
    mark = {1: b"\xc4", 2: b"\xc5", 4: b"\xc6"}[width]
    return b"".join((b"\x84", three[1:], msgpack.packb("body"), mark, body_bytes.to_bytes(width, "big")))


def _sum_of(schema: str, version: int, body: bytes) -> bytes:
    return checksum(f"{schema} {version} ".encode(), body)


def _unseal(value: bytes) -> tuple[str, dict[str, Any]]:
    """Schema and body, if the message is whole and of a known version."""
    match _unpacked(value, "a snapshot message"):
        case {"schema": str(schema), "version": int(version), "checksum": bytes(checksum_), "body": bytes(body)}:
            pass
        case _:
            raise FormatError("not a snapshot of sfd-stream: the value is no map of schema, version, checksum and body")
    # Bytes that a reader ignores (an odd encoding, one key more) would be damage that nobody notices.
    if _sum_of(schema, version, body) != checksum_ or not value.startswith(
        _head(schema, version, checksum_, len(body))
    ):
        raise ChecksumError("a snapshot message is damaged: its checksum does not match")
    if schema not in (SNAPSHOT, REFERENCE):
        raise FormatError(
            f"a message has the schema {schema!r:.60}, which is neither a snapshot nor a reference to one"
        )
    if version > VERSION:  # checked after the checksum, so that damage is never taken for a newer version
        raise NewerFormatError(
            f"a snapshot message has format version {version}, this program reads up to {VERSION}: "
            "read it with the sfd-stream that wrote it, or a newer one"
        )
    if version < 1:
        raise FormatError(f"a snapshot message has format version {version}")
    return schema, _unpacked(body, "a snapshot's body")


def _unpacked(data: bytes, what: str) -> dict[str, Any]:
    try:
        found = msgpack.unpackb(data, strict_map_key=False, max_array_len=_PARTS_MAX)
    except (ValueError, TypeError, RecursionError, MemoryError, msgpack.UnpackException) as error:
        raise FormatError(f"{what} can't be read as msgpack: {error}") from error
    if not isinstance(found, dict):
        raise FormatError(f"{what} is a {type(found).__name__} where a map should be")
    return found


# -- messages ------------------------------------------------------------------------------------------------


def message_of(encoded: bytes) -> Message:
    """The message that publishes these bytes, now or again after a crash."""
    schema, body = _unseal(encoded)
    snapshot_id = SnapshotId.from_map(body.get("id"))
    return Message(snapshot_id.key.encode(), encoded, snapshot_id.headers(f"{schema}/{VERSION}"))


def reference_to(encoded: bytes, store: str, key: str) -> Message:
    """The message that refers to these bytes, which are in `store` (its URL, without credentials) under `key`."""
    found = Reference(id_of(encoded), store, key, len(encoded), checksum(encoded))
    return message_of(encode_reference(found))


def encode_reference(reference: Reference) -> bytes:
    return _seal(REFERENCE, reference._asdict() | {"id": reference.id.as_map()})


def id_of(value: bytes) -> SnapshotId:
    """The id of a message, if it is whole. The content is not decoded."""
    return SnapshotId.from_map(_unseal(value)[1].get("id"))


def decode_message(value: bytes, *, max_bytes: int = MAX_BYTES) -> Snapshot | Reference:
    """The content of a message of the topic. Raises ChecksumError, NewerFormatError or FormatError, and nothing else.

    A snapshot that needs more than `max_bytes` is refused before anything is allocated for it.
    """
    schema, body = _unseal(value)
    return _snapshot_in(body, max_bytes) if schema == SNAPSHOT else _reference_in(body)


def decode_snapshot(value: bytes, *, max_bytes: int = MAX_BYTES) -> Snapshot:
    found = decode_message(value, max_bytes=max_bytes)
    if isinstance(found, Reference):
        raise FormatError(f"the snapshot {found.id} is not in these bytes: they refer to {found.store}/{found.key}")
    return found


def decoded_bytes(snapshot: Snapshot) -> int:
    """The memory that it needs."""
    sketch, names = snapshot.sketch, snapshot.names
    by_column = sum(each.nbytes for each in (sketch.column_sums, sketch.column_squares) if each is not None)
    return int(sketch.matrix.nbytes) + int(by_column) + _NAME_BYTES * (len(names) + len(snapshot.merged_from))


def resolve(reference: Reference, blob: bytes, *, store: str | None = None, max_bytes: int = MAX_BYTES) -> Snapshot:
    """The snapshot at the reference, if `blob` has the expected bytes. `store`: where they were read."""
    where = f"{store or reference.store}/{reference.key}"
    if len(blob) != reference.size or checksum(blob) != reference.checksum:
        raise ChecksumError(f"{where} is not what the snapshot {reference.id} refers to: size or checksum differ")
    try:
        found = decode_snapshot(blob, max_bytes=max_bytes)
    except FormatError as error:
        raise type(error)(f"{where}: {error}") from error
    if found.id != reference.id:
        raise FormatError(f"{where}: the reference {reference.id} leads to the snapshot {found.id}")
    return found


def _reference_in(body: Mapping[str, Any]) -> Reference:
    match body:
        case {"id": given, "store": str(store), "key": str(key), "size": int(size), "checksum": bytes(checksum_)}:
            if len(store) > _STORE_MAX or len(key) > _KEY_MAX or not 0 <= size <= _SIZE_MAX or len(checksum_) != 16:
                raise FormatError(f"a reference to a snapshot has store {store!r:.60}, key {key!r:.60}, size {size}")
            return Reference(SnapshotId.from_map(given), store, key, int(size), checksum_)
    raise FormatError("a reference to a snapshot lacks its store, key, size or checksum")


# -- snapshots -----------------------------------------------------------------------------------------------


def encode_snapshot(snapshot: Snapshot) -> bytes:
    """The bytes of a snapshot. A narrower dtype widens the published delta by the possible rounding."""
    sketch, dtype = _narrowed(snapshot.sketch, snapshot.dtype)
    press = zstandard.ZstdCompressor(level=_LEVEL).compress
    sums, squares, names = sketch.column_sums, sketch.column_squares, snapshot.names
    body = {
        "id": snapshot.id.as_map(),
        "partitions": snapshot.partitions,
        "next_offset": snapshot.next_offset,
        "made_at_s": float(snapshot.made_at_s),
        **{name: int(getattr(sketch, name)) for name in ("ell", "d", "rows", "nnz", "shrinks")},
        **{name: float(getattr(sketch, name)) for name in _SIZES if name != "made_at_s"},
        "columns": snapshot.columns,
        "hash_seed": snapshot.hash_seed,
        "dtype": dtype,
        "matrix_rows": len(sketch.matrix),
        "matrix": press(_raw(sketch.matrix, _DTYPES[dtype])),
        "column_sums": None if sums is None else press(_raw(sums, _DTYPES["float64"])),
        "names": press(msgpack.packb([list(names), list(names.values())])) if names else None,
        "parts": [part.as_map() for part in snapshot.merged_from],
    }
    if squares is not None:
        body["column_squares"] = press(_raw(squares, _DTYPES["float64"]))
    if snapshot.mapping is not None:
        body["features"] = snapshot.mapping.described()
    return _seal(SNAPSHOT, body)


def _narrowed(sketch: Sketch, dtype: str) -> tuple[Sketch, str]:
    """The sketch in this dtype; in float64 if the dtype can't represent its values: a stream must not end for it."""
    try:
        return sketch.astype(_DTYPES[dtype]), dtype
    except OverflowError:
        return sketch, "float64"


def _raw(array: Float, dtype: np.dtype[Any]) -> memoryview:
    return np.ascontiguousarray(array, dtype).reshape(-1).view(np.uint8).data


def _snapshot_in(body: Mapping[str, Any], max_bytes: int) -> Snapshot:
    counts, sizes = _numbers(body)
    columns, hash_seed, dtype = _meaning(body)
    d, matrix_rows = counts["d"], counts["matrix_rows"]
    sums, squares = body.get("column_sums"), body.get("column_squares")
    needed = 8 * d * (max(matrix_rows, 1) + (sums is not None) + (squares is not None))
    _check_size(needed, f"a snapshot of {matrix_rows:,} rows and {d:,} columns", max_bytes)
    names = _names(body.get("names"), d, max_bytes - needed)
    sketch = Sketch(
        matrix=_matrix(body.get("matrix"), matrix_rows, d, dtype),
        column_sums=None if sums is None else _sums(sums, d, sizes["weight"]),
        column_squares=None if squares is None else _squares(squares, d),
        **{name: counts[name] for name in ("ell", "rows", "nnz", "shrinks")},
        **{name: value for name, value in sizes.items() if name != "made_at_s"},
    )
    return Snapshot(
        id=SnapshotId.from_map(body.get("id")),
        partitions=counts["partitions"],
        next_offset=counts["next_offset"],
        made_at_s=sizes["made_at_s"],
        sketch=sketch,
        columns=columns,
        hash_seed=hash_seed,
        names=names,
        merged_from=_parts(body.get("parts")),
        dtype=dtype,
        mapping=_mapping(body.get("features")),
    )


def _meaning(body: Mapping[str, Any]) -> tuple[str, int | None, str]:
    columns, hash_seed, dtype = body.get("columns"), body.get("hash_seed"), body.get("dtype")
    seeded = hash_seed is None or (type(hash_seed) is int and 0 <= hash_seed < 2**32)
    if columns not in _MODES or not seeded or not isinstance(dtype, str) or dtype not in _DTYPES:
        raise FormatError(f"a snapshot has columns {columns!r:.60}, hash_seed {hash_seed!r:.60}, dtype {dtype!r:.60}")
    return str(columns), hash_seed, dtype


def _mapping(described: Any) -> FeatureMap | None:
    try:
        return None if described is None else FeatureMap.from_description(described)
    except (ValueError, TypeError, AttributeError) as error:
        raise FormatError(f"a snapshot describes its features in a way that can't be read: {error}") from error


def _numbers(body: Mapping[str, Any]) -> tuple[dict[str, Any], dict[str, Any]]:
    for name in _COUNTS:
        if type(body.get(name)) is not int or body[name] < 0:
            raise FormatError(f"a snapshot has {name} = {body.get(name)!r:.60}, which is no count")
    for name in _SIZES:
        if type(body.get(name)) is not float or not math.isfinite(body[name]) or body[name] < 0:
            raise FormatError(f"a snapshot has {name} = {body.get(name)!r:.60}, which is no size")
    if not 1 <= body["d"] <= D_MAX:
        raise FormatError(f"a snapshot has {body['d']} columns")
    if not body["matrix_rows"] <= body["ell"] <= D_MAX:
        raise FormatError(f"a snapshot has {body['matrix_rows']} rows where ell = {body['ell']} is the most")
    if body["partitions"] > PARTITIONS_MAX:
        raise FormatError(f"a snapshot is of {body['partitions']} partitions, more than {PARTITIONS_MAX:,}")
    if body["failure_probability"] > 1:
        raise FormatError(f"a snapshot has the failure probability {body['failure_probability']}")
    return {name: body[name] for name in _COUNTS}, {name: body[name] for name in _SIZES}


def _check_size(needed: int, what: str, max_bytes: int) -> None:
    if needed > max_bytes:
        raise FormatError(
            f"{what} needs {needed:,} bytes of memory, more than the {max_bytes:,} that the reader allows; "
            "if it is what you expect, raise max_snapshot_bytes (snapshot.read_max_bytes), or max_bytes of load"
        )


def _array(packed: Any, count: int, dtype: str) -> Float:
    """Decompresses to exactly `count` values, whatever size the frame declares."""
    array = np.empty(count, _DTYPES[dtype])
    _decompress(packed, array.view(np.uint8).data)
    array = array.astype(np.float64, copy=False)
    if not np.isfinite(array).all():
        raise FormatError("a snapshot's matrix or sums by column have values that are not finite")
    return array


def _sums(packed: Any, d: int, weight: float) -> Float:
    array = _array(packed, d, "float64")
    if (np.abs(array) / 2 > VALUE_MAX * weight).any():  # half of it: room for rounding
        raise FormatError(f"a snapshot has a mean that no rows can have, above {VALUE_MAX:g}")
    return array


def _squares(packed: Any, d: int) -> Float:
    array = _array(packed, d, "float64")
    if (array < 0).any():
        raise FormatError("a snapshot has a negative sum of squares")
    return array


def _matrix(packed: Any, rows: int, d: int, dtype: str) -> Float:
    array = _array(packed, rows * d, dtype)
    with np.errstate(over="ignore"):
        if not np.isfinite(array @ array):  # squared_frobenius is no less than this, and is finite
            raise FormatError("a snapshot's matrix has values whose squares are too large")
    return array.reshape(rows, d)


def _decompress(packed: Any, into: memoryview) -> None:
    """Fills all of `into`; refuses content of another size."""
    declared = _declared(packed)
    if declared != len(into):
        raise FormatError(f"a snapshot has an array of {declared} bytes where {len(into)} belong")
    try:
        with zstandard.ZstdDecompressor().stream_reader(packed) as stream:
            at = 0
            while at < len(into) and (count := stream.readinto(into[at:])):
                at += count
    except zstandard.ZstdError as error:
        raise FormatError(f"a snapshot has an array that zstd can't read: {error}") from error
    if at < len(into):
        raise FormatError(f"a snapshot has an array of {at} bytes where {len(into)} belong")


def _declared(packed: Any) -> int:
    """The size of the content, as the frame declares it."""
    try:
        return int(zstandard.get_frame_parameters(packed).content_size)
    except (zstandard.ZstdError, TypeError, ValueError) as error:
        raise FormatError(f"a snapshot has an array that zstd can't read: {error}") from error


def _names(packed: Any, d: int, max_bytes: int) -> dict[int, str]:
    """Names of columns. The first bytes have their number: it is checked before any name is created."""
    if packed is None:
        return {}
    size = _declared(packed)
    _check_size(size, "a snapshot's names", max_bytes)
    raw = bytearray(size)
    _decompress(packed, memoryview(raw))
    try:
        unpacker = msgpack.Unpacker(max_buffer_size=max(size, 1))
        unpacker.feed(raw)
        pair, count = unpacker.read_array_header(), unpacker.read_array_header()
        _check_size(size + _NAME_BYTES * count, "a snapshot's names", max_bytes)
        if pair != 2 or count > d:
            raise FormatError(f"a snapshot has {count} names of {d} columns")
        limits = dict.fromkeys(("max_map_len", "max_bin_len", "max_ext_len"), 0)
        columns, names = msgpack.unpackb(raw, list_hook=_Lists(3), max_array_len=max(count, 2), **limits)
        found = dict(zip(columns, names, strict=True))
    except (ValueError, TypeError, RecursionError, MemoryError, msgpack.UnpackException) as error:
        raise FormatError(f"a snapshot has names that can't be read: {error}") from error
    if not all(type(c) is int and 0 <= c < d and type(n) is str for c, n in found.items()):
        raise FormatError("a snapshot has a name that is no text, or of a column that is not there")
    return found


class _Lists:
    """A hook for msgpack that stops at the first list beyond the limit: lists need far more memory than their bytes."""

    def __init__(self, most: int) -> None:
        self._left = most

    def __call__(self, found: list[Any]) -> list[Any]:
        self._left -= 1
        if self._left < 0:
            raise ValueError("lists where texts belong")
        return found


def _parts(found: Any) -> tuple[SnapshotPart, ...]:
    if not isinstance(found, list):
        raise FormatError(f"a snapshot has parts = {found!r:.60}")
    return tuple(map(SnapshotPart.from_map, found))
