"""The decoder of every format, each with a function that writes an event in it, and a registry at hand."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from sfd_stream import HashedColumns
from sfd_stream.wire.formats import from_avro, from_protobuf
from sfd_stream.wire.formats.framing import FramedReader
from sfd_stream.wire.formats.from_avro import avro_reader
from sfd_stream.wire.formats.from_json import read_json
from sfd_stream.wire.formats.records import Decoder, MsgpackDecoder, PlainReader, RecordDecoder
from sfd_stream.wire.rows.decode import DecodedBatch
from sfd_stream.wire.rows.part import RowLimits
from tests.unit.wire.formats.events import (
    AVRO_SCHEMA,
    EVENT_INDEXES,
    MAPPING,
    MESSAGE,
    PROTO,
    as_avro,
    as_json,
    as_protobuf,
    by_name,
    descriptor_set,
    framed,
)

D = 512
COLUMNS = HashedColumns(D, names_max=D, mapping=MAPPING)


@dataclass(frozen=True)
class Schema:
    kind: str
    text: str
    references: tuple[tuple[str, Any], ...] = ()


@dataclass
class Registry:
    """A registry at hand; ids not in it are unknown, those in `pending` have not been looked up yet."""

    schemas: dict[int, Any]
    pending: set[int] = field(default_factory=set)
    requested: set[int] = field(default_factory=set)
    outage: str | None = None

    def find(self, schema_id: int) -> Any:
        return None if schema_id in self.pending else self.schemas.get(schema_id, "there is none")

    def request(self, schema_ids: frozenset[int]) -> None:
        self.requested |= schema_ids

    def close(self) -> None:
        self.pending.clear()


REGISTRY = Registry(
    {1: Schema("AVRO", json.dumps(AVRO_SCHEMA)), 2: Schema("PROTOBUF", PROTO), 3: Schema("JSON", '{"type": "object"}')}
)


def plain(read: Callable[[bytes], Any]) -> Decoder:
    return RecordDecoder(PlainReader(read))


def with_registry(kind: str, registry: Registry = REGISTRY) -> RecordDecoder:
    compiled = {"AVRO": from_avro.compiled, "PROTOBUF": from_protobuf.compiled, "JSON": lambda _: read_json}[kind]
    return RecordDecoder(FramedReader(registry, kind, compiled))


WAYS: dict[str, tuple[Decoder, Callable[[dict[str, Any]], bytes]]] = {
    "msgpack": (MsgpackDecoder(), by_name),
    "json": (plain(read_json), as_json),
    "json, registry": (with_registry("JSON"), lambda event: framed(3, as_json(event))),
    "avro": (plain(avro_reader(json.dumps(AVRO_SCHEMA))), as_avro),
    "avro, registry": (with_registry("AVRO"), lambda event: framed(1, as_avro(event))),
    "protobuf": (plain(from_protobuf.raw_reader(descriptor_set(), MESSAGE, "event.desc")), as_protobuf),
    "protobuf, registry": (
        with_registry("PROTOBUF"),
        lambda event: framed(2, as_protobuf(event), EVENT_INDEXES),
    ),
}


def decoded(decoder: Decoder, messages: list[bytes], columns: HashedColumns = COLUMNS, **limits: int) -> DecodedBatch:
    return decoder.decode(messages, columns, RowLimits(**limits))


def reasons(batch: DecodedBatch) -> dict[int, str]:
    return {number: error.reason for number, error in batch.bad}


def same(one: DecodedBatch, other: DecodedBatch) -> bool:
    arrays = ("indptr", "indices", "values")
    equal = all(getattr(one.block, name).tobytes() == getattr(other.block, name).tobytes() for name in arrays)
    return equal and one.columns == other.columns


RECURSIVE = json.dumps({"type": "record", "name": "N", "fields": [{"name": "next", "type": ["null", "N"]}]})
