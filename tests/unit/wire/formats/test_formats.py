"""Every format gives the same rows; a bad message is reported alone; schemas may change in every way that is usual."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pytest

from sfd_stream import FeatureMap, HashedColumns, RowDecodeError, SettingsError
from sfd_stream.wire.formats import from_avro, from_protobuf
from sfd_stream.wire.formats.framing import FramedReader
from sfd_stream.wire.formats.from_avro import avro_reader
from sfd_stream.wire.formats.from_json import read_json
from sfd_stream.wire.formats.proto_text import ProtoSyntaxError, parse_proto
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
    events,
    framed,
    proto_classes,
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


@pytest.mark.parametrize("way", WAYS)
def test_every_format_gives_the_same_bits_and_the_same_names(way: str) -> None:
    data = events(300)
    decoder, write = WAYS[way]
    batch = decoded(decoder, [write(event) for event in data])
    reference = decoded(MsgpackDecoder(), [by_name(event) for event in data])
    assert not batch.bad
    assert batch.block.rows == 300
    assert same(batch, reference)
    assert isinstance(batch.columns, HashedColumns)
    assert {"kind=SALE", "items=🫖", "attributes.茶"} <= set(batch.columns.names.values())


@pytest.mark.parametrize("way", [way for way in WAYS if way != "msgpack"])
def test_a_bad_message_is_reported_alone(way: str) -> None:
    data = events(40)
    decoder, write = WAYS[way]
    messages = [write(event) for event in data]
    broken = {3: b"\xff\xff\xff\xff\xff\xff", 17: messages[17][:-3], 39: b"\x07"}
    batch = decoded(decoder, [broken.get(number, message) for number, message in enumerate(messages)])
    alone = decoded(decoder, [message for number, message in enumerate(messages) if number not in broken])
    assert set(reasons(batch)) == set(broken)
    assert set(reasons(batch).values()) == {"malformed"}
    assert same(batch, alone)
    assert [rows == 0 for rows in batch.rows_of_message] == [number in broken for number in range(40)]


TRAPS: list[tuple[bytes, str | dict[str, float]]] = [
    (b'{"a": 1, "a": 2}', {"a": 2.0}),
    (b'{"a": NaN}', "malformed"),
    (b'{"a": Infinity}', "malformed"),
    (b'{"a": 1e400}', "too_large"),
    (b'{"a": 1e101}', "too_large"),
    (b'{"a": -0.0, "b": 1e-400}', {}),
    (b'{"a": 9007199254740993}', {"a": 9007199254740992.0}),
    (b'{"a": 18446744073709551616}', {"a": 18446744073709551616.0}),
    (b'{"a": ' + b"1" * 5000 + b"}", "too_large"),
    (b'{"a": "\\ud800"}', "malformed"),
    (b'{"a": "\\ud83d\\ude00"}', {"a=😀": 1.0}),
    (b'{"a": "\xff"}', "malformed"),
    (b'{"\xed\xa0\x80": 1}', "malformed"),
    (b'\xef\xbb\xbf{"a": 1}', "malformed"),
    (b"[" * 100_000, "over_limit"),
    (b'{"a":' * 100 + b"1" + b"}" * 100, "over_limit"),
    (b'{"a": 1} {"a": 1}', "malformed"),
    (b"", "malformed"),
    (b"null", {}),
    (b"7", "bad_path"),
    (b'{"a": [1, 2]}', "bad_field"),
]


@pytest.mark.parametrize(("message", "expected"), TRAPS)
def test_the_traps_of_json_have_a_defined_outcome(message: bytes, expected: Any) -> None:
    columns = HashedColumns(2**20, names_max=99, mapping=FeatureMap())
    batch = decoded(plain(read_json), [message, b'{"good": 1}'], columns)
    assert batch.block.values[-1] == columns.column_of("good")[1]
    if isinstance(expected, str):
        assert reasons(batch) == {0: expected}
        return
    assert not batch.bad
    assert isinstance(batch.columns, HashedColumns)
    signs = batch.columns.signs()
    found = zip(batch.block.indices[:-1].tolist(), batch.block.values[:-1].tolist(), strict=True)
    assert {batch.columns.names[column]: value * signs[column] for column, value in found} == expected


def test_a_list_of_objects_is_a_block_and_null_holds_no_rows() -> None:
    batch = decoded(plain(read_json), [b'[{"a": 1}, {}, {"a": 2}]', b"[]", b"null", b'{"b": 1}'])
    assert batch.rows_of_message.tolist() == [3, 0, 0, 1]
    assert not batch.bad


@pytest.mark.parametrize(
    ("message", "limits"),
    [
        (b'{"a": "' + b"x" * 100 + b'"}', {"message_bytes_max": 100}),
        (b'{"a": ["x", "y", "z"]}', {"nnz_max": 2}),
        (b"[{}, {}, {}]", {"rows_max": 2}),
        (b'{"aaaaaaaaaa": {"aaaaaaaaaa": 1}}', {"string_bytes_max": 20}),
    ],
)
def test_a_message_over_a_limit_is_bad(message: bytes, limits: dict[str, int]) -> None:
    assert reasons(decoded(plain(read_json), [message], **limits)) == {0: "over_limit"}
    assert not decoded(plain(read_json), [message], **{name: most + 9 for name, most in limits.items()}).bad


# -- the registry's wire format --------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("message", "reason"),
    [
        (framed(9, as_avro(events(1)[0])), "unknown_schema"),
        (framed(2, as_avro(events(1)[0])), "bad_schema"),
        (framed(4, b""), "bad_schema"),
        (framed(5, b""), "bad_schema"),
        (b"\x01" + framed(1, b"")[1:], "malformed"),
        (b"\0\0\0\0", "malformed"),
        (as_avro(events(2)[1]), "malformed"),
        (framed(1, as_avro(events(1)[0]) + b"\0"), "malformed"),
    ],
    ids=["unknown", "other kind", "no schema", "recursive", "magic byte", "too short", "raw", "one byte more"],
)
def test_a_message_without_a_usable_schema_is_bad_with_that_reason(message: bytes, reason: str) -> None:
    schemas = {**REGISTRY.schemas, 4: Schema("AVRO", "{"), 5: Schema("AVRO", RECURSIVE)}
    good = framed(1, as_avro(events(1)[0]))
    batch = decoded(with_registry("AVRO", Registry(schemas)), [message, good, message])
    assert reasons(batch) == {0: reason, 2: reason}
    assert batch.block.rows == 1


def test_schemas_that_are_not_known_yet_are_missing_until_they_are() -> None:
    registry = Registry(dict(REGISTRY.schemas), pending={1, 9})
    decoder = with_registry("AVRO", registry)
    good, other = framed(1, as_avro(events(1)[0])), framed(9, b"")
    assert decoder.missing([good, b"\x07", b"", good]) == {1}
    assert registry.requested == {1}
    assert decoder.missing([good, other]) == {1, 9}
    assert decoder.is_missing(frozenset({1, 9}))
    registry.pending.clear()
    assert not decoder.is_missing(frozenset({1, 9}))
    assert decoder.missing([good, other]) == set()
    assert reasons(decoded(decoder, [good, other])) == {1: "unknown_schema"}


@pytest.mark.parametrize("indexes", [b"\x00", b"\x02\x00"])
def test_the_first_message_of_a_protobuf_schema_has_two_spellings(indexes: bytes) -> None:
    registry = Registry({1: Schema("PROTOBUF", 'syntax = "proto3"; message A { string x = 1; } message B {}')})
    batch = decoded(with_registry("PROTOBUF", registry), [framed(1, b"\n\x01y", indexes)])
    assert isinstance(batch.columns, HashedColumns)
    assert list(batch.columns.names.values()) == ["x=y"]


@pytest.mark.parametrize("indexes", [b"\x02\x08", b"\x01", b"\x80\x80\x80\x80\x80\x01", b"", b"\x04\x02", b"\xfe\x7f"])
def test_message_indexes_that_lead_nowhere_are_bad(indexes: bytes) -> None:
    registry = Registry({1: Schema("PROTOBUF", 'syntax = "proto3"; message A { string x = 1; } message B {}')})
    assert reasons(decoded(with_registry("PROTOBUF", registry), [framed(1, b"", indexes)])) == {0: "malformed"}


def test_nested_messages_and_references_are_found() -> None:
    shared = Schema("PROTOBUF", 'syntax = "proto3"; package far; enum Hue { NONE = 0; RED = 1; }')
    text = """syntax = "proto3"; import "far.proto"; import "options/that/nobody/has.proto";
      import "google/protobuf/timestamp.proto"; import "google/protobuf/wrappers.proto";
      import "google/protobuf/struct.proto";
      message Outer { map<string, int32> before = 1; message Inner {
        far.Hue hue = 1; google.protobuf.Timestamp at = 2; google.protobuf.StringValue s = 3;
        google.protobuf.Struct free = 4; oneof one { string left = 5; int64 right = 6; } bytes raw = 7; } }"""
    registry = Registry({1: Schema("PROTOBUF", text, (("far.proto", shared),))})
    module = from_protobuf.need()
    pool = from_protobuf._pool_of([parse_proto(shared.text, "far.proto"), parse_proto(text, "main.proto")])
    made = module.message_factory.GetMessageClass(pool.FindMessageTypeByName("Outer.Inner"))
    inner = made(hue=1, right=5, raw=b"x", s={"value": "x"}, at={"seconds": 1_000_000_000})
    inner.free.update({"a": "qv", "b": {"c": [1.5]}, "n": None})
    mapping = FeatureMap.from_settings({"fields": {"free.b.c": "vector"}})
    columns = HashedColumns(2**16, mapping=mapping)
    batch = decoded(
        with_registry("PROTOBUF", registry), [framed(1, inner.SerializeToString(), b"\x04\x00\x00")], columns
    )
    assert not batch.bad
    assert isinstance(batch.columns, HashedColumns)
    names = {"hue=RED", "at=2001-09-09T01:46:40Z", "s=x", "free.a=qv", "free.b.c[0]", "right"}
    assert set(batch.columns.names.values()) == names


def test_avro_references_are_found() -> None:
    geo = {"type": "record", "name": "Geo", "namespace": "far", "fields": [{"name": "lat", "type": "double"}]}
    main = {"type": "record", "name": "E", "fields": [{"name": "at", "type": "far.Geo"}]}
    schema = Schema("AVRO", json.dumps(main), (("far.Geo", Schema("AVRO", json.dumps(geo))),))
    batch = decoded(with_registry("AVRO", Registry({1: schema})), [framed(1, np.float64(2.5).tobytes())])
    assert batch.block.values.tolist() == [2.5] or batch.block.values.tolist() == [-2.5]


# -- evolution: features are found by name ---------------------------------------------------------------

BASE = [{"name": "a", "type": "string"}, {"name": "b", "type": "double"}]
EVOLUTIONS = {
    "added": ([*BASE, {"name": "c", "type": "int"}], {"a": "x", "b": 1.0, "c": 0}),
    "removed": (BASE[:1], {"a": "x"}),
    "reordered": (BASE[::-1], {"b": 1.0, "a": "x"}),
    "made optional": ([BASE[0], {"name": "b", "type": ["null", "double"]}], {"a": "x", "b": 1.0}),
    "made wider": ([BASE[0], {"name": "b", "type": "float"}], {"a": "x", "b": 1.0}),
}


@pytest.mark.parametrize("change", EVOLUTIONS)
def test_schemas_may_evolve_within_a_topic(change: str) -> None:
    fields, value = EVOLUTIONS[change]
    old, new = ({"type": "record", "name": "E", "fields": each} for each in (BASE, fields))
    registry = Registry({1: Schema("AVRO", json.dumps(old)), 2: Schema("AVRO", json.dumps(new))})
    messages = [framed(1, as_avro({"a": "x", "b": 1.0}, old)), framed(2, as_avro(value, new))]
    block = decoded(with_registry("AVRO", registry), messages).block
    rows = [
        dict(zip(block.indices[a:b], block.values[a:b], strict=True))
        for a, b in zip(block.indptr, block.indptr[1:], strict=False)
    ]
    if change == "removed":
        rows[0] = {column: value for column, value in rows[0].items() if column in rows[1]}
    assert rows[0] == rows[1]


@pytest.mark.parametrize(
    ("new", "features"),
    [
        ("string a = 1; double b = 2; string c = 3;", {"a=x", "b"}),
        ("string a = 1; reserved 2;", {"a=x"}),
        ("double b = 2; string a = 1;", {"a=x", "b"}),
        ("string a = 7; double b = 8; reserved 1, 2;", {"a=x", "b"}),
    ],
    ids=["added", "removed", "reordered", "renumbered"],
)
def test_protobuf_schemas_may_evolve_within_a_topic(new: str, features: set[str]) -> None:
    texts = [f'syntax = "proto3"; message E {{ {fields} }}' for fields in ("string a = 1; double b = 2;", new)]
    registry = Registry({number: Schema("PROTOBUF", text) for number, text in enumerate(texts, start=1)})
    values = {"a": "x", "b": 1.5}
    messages = []
    for number, text in enumerate(texts, start=1):
        made = proto_classes(text)["E"]
        known = {name: value for name, value in values.items() if name in made.DESCRIPTOR.fields_by_name}
        messages.append(framed(number, made(**known).SerializeToString(), b"\0"))
    block = decoded(with_registry("PROTOBUF", registry), messages).block
    rows = [dict(zip(row.indices.tolist(), row.data.tolist(), strict=True)) for row in block.csr()]
    places = {COLUMNS.column_of(name)[0] for name in features}
    assert rows[1].keys() == places
    assert rows[1] == {column: value for column, value in rows[0].items() if column in places}


# -- schemas that could hurt -----------------------------------------------------------------------------

RECURSIVE = json.dumps({"type": "record", "name": "N", "fields": [{"name": "next", "type": ["null", "N"]}]})


@pytest.mark.parametrize(
    ("text", "words"),
    [
        (RECURSIVE, "contains itself"),
        ('{"type": "array", "items": "null"}', "no bytes"),
        ('{"type": "array", "items": {"type": "record", "name": "E", "fields": []}}', "no bytes"),
        ('{"type": "map", "values": {"type": "array", "items": "null"}}', "no bytes"),
        ("[", "not an Avro schema"),
        ('{"type": "recrod"}', "not an Avro schema"),
    ],
)
def test_an_avro_schema_that_cannot_be_read_safely_is_refused(text: str, words: str) -> None:
    """A recursive one ends the process: 3 MB of a list's links overflow the stack inside fastavro."""
    with pytest.raises(RowDecodeError, match=words):
        avro_reader(text)


@pytest.mark.parametrize(
    "text",
    [
        "message {",
        'syntax = "proto3"; message A { string x 1; }',
        "message A { optional group G = 1 { } }",
        'edition = "1999";',
        "message A { string x = one; }",
        "nonsense",
    ],
)
def test_a_proto_file_that_is_none_is_refused(text: str) -> None:
    with pytest.raises(ProtoSyntaxError):
        parse_proto(text, "x.proto")


@pytest.mark.parametrize("name", ["avro", "protobuf"])
def test_an_extra_that_is_not_installed_is_one_sentence_with_the_command(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, {"avro": "fastavro", "protobuf": "google.protobuf"}[name], None)
    module = {"avro": from_avro, "protobuf": from_protobuf}[name]
    with pytest.raises(SettingsError, match=rf"pip install 'sfd-stream\[{name}\]'"):
        module.need()
