"""Snapshots on the wire: a sketch with its id and all that a reader must know, as bytes that can be checked.

A value is a sealed body: schema, version, checksum, and one msgpack map. Large snapshots rest in the checkpoint
store and the topic has a reference to them. `docs/formats.md` is the specification, with a reader of twenty lines.
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
from sfd_stream.sketch.rows import D_MAX, Float
from sfd_stream.sketch.sketch import Sketch
from sfd_stream.wire.checkpoints import checksum
from sfd_stream.wire.columns import Columns, GrowingColumns, HashedColumns
from sfd_stream.wire.snapshot_ids import Headers, Part, SnapshotId

VERSION = 1
SNAPSHOT = "sfd-snapshot"
REFERENCE = "sfd-reference"

_LEVEL = 1  # real numbers hardly compress: more effort buys nothing
_DTYPES: dict[str, np.dtype[Any]] = {"float64": np.dtype("<f8"), "float32": np.dtype("<f4")}
_MODES = ("fixed", "growing", "hashed")
_COUNTS = ("partitions", "next_offset", "ell", "d", "rows", "nnz", "shrinks", "matrix_rows")
_SIZES = ("failure_probability", "weight", "squared_frobenius", "delta", "rounding", "made_at_s")


@dataclass(frozen=True)
class Snapshot:
    """A published sketch. Its matrix is always float64; `dtype` says what its numbers were rounded to on the way."""

    id: SnapshotId
    partitions: int
    next_offset: int
    made_at_s: float
    sketch: Sketch
    columns: str
    hash_seed: int | None = None
    names: Mapping[int, str] = field(default_factory=dict)
    merged_from: tuple[Part, ...] = ()
    dtype: str = "float64"

    @property
    def parts(self) -> tuple[Part, ...]:
        """The input partitions that it holds: itself, or what it was merged from."""
        own = Part(self.id, self.partitions, self.next_offset, self.sketch.rows, self.made_at_s)
        return self.merged_from or (own,)

    @property
    def meaning(self) -> tuple[str, int | None, int | None]:
        """What must be equal for two snapshots' columns to mean the same."""
        return self.columns, self.hash_seed, self.sketch.d if self.columns == "hashed" else None


class Reference(NamedTuple):
    """Where a snapshot's bytes rest: the store's URL, the key in it, and what must be found there."""

    id: SnapshotId
    store: str
    key: str
    size: int
    checksum: bytes


class Message(NamedTuple):
    """What goes to the topic."""

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
    dtype: str = "float64",
    column_sums: bool = True,
    column_names: bool = True,
) -> Snapshot:
    """A partition's sketch as it is to be published. The keywords are `snapshot.*` of the settings."""
    hashed = isinstance(columns, HashedColumns)
    return Snapshot(
        id=snapshot_id,
        partitions=partitions,
        next_offset=next_offset,
        made_at_s=made_at_s,
        sketch=sketch if column_sums else replace(sketch, column_sums=None),
        columns="hashed" if hashed else "growing" if isinstance(columns, GrowingColumns) else "fixed",
        hash_seed=columns.seed if isinstance(columns, HashedColumns) else None,
        names=columns.names if isinstance(columns, HashedColumns) and column_names else {},
        dtype=dtype,
    )


# -- sealed bodies -------------------------------------------------------------------------------------------


def _seal(schema: str, body: Mapping[str, Any]) -> bytes:
    packed: bytes = msgpack.packb(dict(body))
    return _head(schema, VERSION, _sum_of(schema, VERSION, packed), len(packed)) + packed


def _head(schema: str, version: int, checksum_: bytes, body_bytes: int) -> bytes:
    """All of a message but the body: a map of four whose last value is `bin`, in msgpack's shortest form."""
    three: bytes = msgpack.packb({"schema": schema, "version": version, "checksum": checksum_})
    width = next(width for width in (1, 2, 4) if body_bytes < 1 << 8 * width)
    mark = {1: b"\xc4", 2: b"\xc5", 4: b"\xc6"}[width]
    return b"".join((b"\x84", three[1:], msgpack.packb("body"), mark, body_bytes.to_bytes(width, "big")))


def _sum_of(schema: str, version: int, body: bytes) -> bytes:
    return checksum(f"{schema} {version} ".encode(), body)


def _unseal(value: bytes) -> tuple[str, dict[str, Any]]:
    """Schema and body, whole and of a version that we know."""
    match _unpacked(value, "a snapshot message"):
        case {"schema": str(schema), "version": int(version), "checksum": bytes(said), "body": bytes(body)}:
            pass
        case _:
            raise FormatError("not a snapshot of sfd-stream: the value is no map of schema, version, checksum and body")
    # What a reader skips over (an odd encoding, a key more) would be damage that nobody notices.
    if _sum_of(schema, version, body) != said or not value.startswith(_head(schema, version, said, len(body))):
        raise ChecksumError("a snapshot message is damaged: its checksum does not match")
    if schema not in (SNAPSHOT, REFERENCE):
        raise FormatError(
            f"a message has the schema {schema!r:.60}, which is neither a snapshot nor a reference to one"
        )
    if version > VERSION:  # asked after the checksum: damage is never taken for a newer program's work
        raise NewerFormatError(
            f"a snapshot message has format version {version}, this program reads up to {VERSION}: "
            "read it with the sfd-stream that wrote it, or a newer one"
        )
    if version < 1:
        raise FormatError(f"a snapshot message has format version {version}")
    return schema, _unpacked(body, "a snapshot's body")


def _unpacked(data: bytes, what: str) -> dict[str, Any]:
    try:
        found = msgpack.unpackb(data, strict_map_key=False)
    except (ValueError, TypeError, RecursionError, msgpack.UnpackException) as error:
        raise FormatError(f"{what} can't be read as msgpack: {error}") from error
    if not isinstance(found, dict):
        raise FormatError(f"{what} is a {type(found).__name__} where a map should be")
    return found


# -- messages ------------------------------------------------------------------------------------------------


def message_of(encoded: bytes) -> Message:
    """The message that publishes these very bytes, now or again after a crash."""
    schema, body = _unseal(encoded)
    snapshot_id = SnapshotId.from_map(body.get("id"))
    return Message(snapshot_id.key.encode(), encoded, snapshot_id.headers(f"{schema}/{VERSION}"))


def reference_to(encoded: bytes, store: str, key: str) -> Message:
    """The message that refers to these bytes, which rest in `store` (its URL, without credentials) under `key`."""
    snapshot_id = SnapshotId.from_map(_unseal(encoded)[1].get("id"))
    found = Reference(snapshot_id, store, key, len(encoded), checksum(encoded))
    return message_of(encode_reference(found))


def encode_reference(reference: Reference) -> bytes:
    return _seal(REFERENCE, reference._asdict() | {"id": reference.id.as_map()})


def decode_message(value: bytes) -> Snapshot | Reference:
    """What a message of the topic holds. Raises ChecksumError, NewerFormatError or FormatError."""
    schema, body = _unseal(value)
    return _snapshot_in(body) if schema == SNAPSHOT else _reference_in(body)


def decode_snapshot(value: bytes) -> Snapshot:
    found = decode_message(value)
    if isinstance(found, Reference):
        raise FormatError(f"the snapshot {found.id} is not in these bytes: they refer to {found.store}/{found.key}")
    return found


def resolve(reference: Reference, blob: bytes) -> Snapshot:
    """The snapshot that the bytes at the reference are, if they are the bytes meant."""
    if len(blob) != reference.size or checksum(blob) != reference.checksum:
        where = f"{reference.store}/{reference.key}"
        raise ChecksumError(f"{where} is not what the snapshot {reference.id} refers to: size or checksum differ")
    found = decode_snapshot(blob)
    if found.id != reference.id:
        raise FormatError(f"the reference {reference.id} leads to the snapshot {found.id}")
    return found


def _reference_in(body: Mapping[str, Any]) -> Reference:
    match body:
        case {"id": given, "store": str(store), "key": str(key), "size": int(size), "checksum": bytes(said)}:
            return Reference(SnapshotId.from_map(given), store, key, size, said)
    raise FormatError("a reference to a snapshot lacks its store, key, size or checksum")


# -- snapshots -----------------------------------------------------------------------------------------------


def encode_snapshot(snapshot: Snapshot) -> bytes:
    """The bytes of a snapshot; a narrower dtype widens the published delta by what the rounding may change."""
    sketch, dtype = _narrowed(snapshot.sketch, snapshot.dtype)
    press = zstandard.ZstdCompressor(level=_LEVEL).compress
    sums = sketch.column_sums
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
        "names": press(msgpack.packb([list(snapshot.names), list(snapshot.names.values())]))
        if snapshot.names
        else None,
        "parts": [part.as_map() for part in snapshot.merged_from],
    }
    return _seal(SNAPSHOT, body)


def _narrowed(sketch: Sketch, dtype: str) -> tuple[Sketch, str]:
    """In the dtype wanted, or in float64 where that can't hold the values: a stream does not end for that."""
    try:
        return sketch.astype(_DTYPES[dtype]), dtype
    except OverflowError:
        return sketch, "float64"


def _raw(array: Float, dtype: np.dtype[Any]) -> memoryview:
    return np.ascontiguousarray(array, dtype).reshape(-1).view(np.uint8).data


def _snapshot_in(body: Mapping[str, Any]) -> Snapshot:
    counts, sizes = _numbers(body)
    columns, hash_seed, dtype = body.get("columns"), body.get("hash_seed"), body.get("dtype")
    if columns not in _MODES or type(hash_seed) not in (int, type(None)) or dtype not in _DTYPES:
        raise FormatError(f"a snapshot has columns {columns!r:.60}, hash_seed {hash_seed!r:.60}, dtype {dtype!r:.60}")
    d, matrix_rows = counts["d"], counts["matrix_rows"]
    matrix = _array(body.get("matrix"), matrix_rows * d, str(dtype)).reshape(matrix_rows, d)
    sums = body.get("column_sums")
    sketch = Sketch(
        matrix=matrix,
        column_sums=None if sums is None else _array(sums, d, "float64"),
        **{name: counts[name] for name in ("ell", "rows", "nnz", "shrinks")},
        **{name: value for name, value in sizes.items() if name != "made_at_s"},
    )
    return Snapshot(
        id=SnapshotId.from_map(body.get("id")),
        partitions=counts["partitions"],
        next_offset=counts["next_offset"],
        made_at_s=sizes["made_at_s"],
        sketch=sketch,
        columns=str(columns),
        hash_seed=hash_seed,
        names=_names(body.get("names"), d),
        merged_from=_parts(body.get("parts")),
        dtype=str(dtype),
    )


def _numbers(body: Mapping[str, Any]) -> tuple[dict[str, int], dict[str, Any]]:
    for name in _COUNTS:
        if type(body.get(name)) is not int or body[name] < 0:
            raise FormatError(f"a snapshot has {name} = {body.get(name)!r:.60}, which is no count")
    for name in _SIZES:
        if type(body.get(name)) is not float or not math.isfinite(body[name]) or body[name] < 0:
            raise FormatError(f"a snapshot has {name} = {body.get(name)!r:.60}, which is no size")
    if not 1 <= body["d"] <= D_MAX:
        raise FormatError(f"a snapshot has {body['d']} columns")
    return {name: body[name] for name in _COUNTS}, {name: body[name] for name in _SIZES}


def _array(packed: Any, count: int, dtype: str) -> Float:
    """Decompressed and exactly as long as it must be; nothing is allocated for a length that is not said in it."""
    raw = _decompressed(packed, count * _DTYPES[dtype].itemsize)
    array: Float = np.frombuffer(raw, _DTYPES[dtype]).astype(np.float64)
    if not np.isfinite(array).all():
        raise FormatError("a snapshot's matrix or column sums have values that are not finite")
    return array


def _decompressed(packed: Any, size: int | None = None) -> bytes:
    try:
        found = zstandard.get_frame_parameters(packed).content_size
        if size is not None and found != size:
            raise FormatError(f"a snapshot has an array of {found} bytes where {size} belong")
        if found > _NAMES_MAX_BYTES and size is None:
            raise FormatError(f"a snapshot has {found} bytes of names")
        raw: bytes = zstandard.ZstdDecompressor().decompress(packed)
    except (zstandard.ZstdError, TypeError) as error:
        raise FormatError(f"a snapshot has an array that zstd can't read: {error}") from error
    return raw


_NAMES_MAX_BYTES = 2**30


def _names(packed: Any, d: int) -> dict[int, str]:
    if packed is None:
        return {}
    try:
        columns, names = msgpack.unpackb(_decompressed(packed))
        found = dict(zip(columns, names, strict=True))
    except (ValueError, TypeError, msgpack.UnpackException) as error:
        raise FormatError(f"a snapshot has names that can't be read: {error}") from error
    if not all(type(c) is int and 0 <= c < d and type(n) is str for c, n in found.items()):
        raise FormatError("a snapshot has a name that is no text, or of a column that is not there")
    return found


def _parts(found: Any) -> tuple[Part, ...]:
    if not isinstance(found, list):
        raise FormatError(f"a snapshot has parts = {found!r:.60}")
    return tuple(map(Part.from_map, found))
