"""Protobuf is read by its descriptors, and its message indexes as confluent-kafka's serializer writes them."""

from __future__ import annotations

import sys
from itertools import pairwise
from typing import Any

import pytest
from confluent_kafka.schema_registry import RegisteredSchema, topic_subject_name_strategy
from confluent_kafka.schema_registry import Schema as SchemaOfClient
from confluent_kafka.schema_registry.protobuf import ProtobufDeserializer, ProtobufSerializer
from confluent_kafka.serialization import MessageField, SerializationContext

from sfd_stream import FeatureMap, HashedColumns, RowDecodeError, SettingsError
from sfd_stream.wire.formats import from_protobuf
from sfd_stream.wire.formats.framing import FramedReader
from sfd_stream.wire.formats.proto_text import parse_proto
from sfd_stream.wire.formats.records import RecordDecoder
from sfd_stream.wire.rows.part import RowLimits
from tests.unit.wire.formats.events import MAPS_AND_NESTED, framed, proto_classes
from tests.unit.wire.formats.ways import COLUMNS, Registry, Schema, decoded, reasons, with_registry


def test_a_field_that_is_not_in_the_message_has_no_value() -> None:
    text = 'syntax = "proto3"; message A { string user = 1; int32 n = 2; optional int32 m = 3; }'
    read, made = from_protobuf.raw_reader(text.encode(), "A", "a.proto"), proto_classes(text)["A"]
    assert read(made(user="x", n=7, m=0).SerializeToString()) == {"user": "x", "n": 7, "m": 0}
    assert read(made(user="", n=0).SerializeToString()) == {}
    with pytest.raises(RowDecodeError, match="not Protobuf of its schema"):
        read(b"\x0a\x05x")


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


def test_without_its_extra_it_is_one_sentence_with_the_command(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "google.protobuf", None)
    with pytest.raises(SettingsError, match=r"pip install 'sfd-stream\[protobuf\]'"):
        from_protobuf.need()


INDEXED = {
    "First": 'syntax = "proto3"; message First { int32 a = 1; } message Second { int32 a = 1; }',
    "Second": 'syntax = "proto3"; message First { int32 b = 1; } message Second { int32 a = 1; }',
    "Outer.Inner": 'syntax = "proto3"; message Outer { message Other {} message Inner { int32 a = 1; } }',
    "Outer.A.B": 'syntax = "proto3"; message X {} message Outer { message A { message B { int32 a = 1; } } }',
    "Outer.Before": 'syntax = "proto3"; message Outer { message Before { int32 a = 1; } map<string, int32> m = 1; }',
    "Outer.After": 'syntax = "proto3"; message Outer { map<string, int32> m = 1; message After { int32 a = 1; } }',
}


class Client:
    """What the serializer asks of a registry's client."""

    def __init__(self, text: str) -> None:
        self.schema = SchemaOfClient(text, "PROTOBUF")

    def config(self) -> dict[str, Any]:
        return {}

    def register_schema_full_response(self, *_: Any, **__: Any) -> Any:
        return RegisteredSchema(subject="s", version=1, schema_id=1, guid=None, schema=self.schema)


def written(message: Any, text: str) -> bytes:
    conf = {"use.deprecated.format": False, "subject.name.strategy": topic_subject_name_strategy}
    serialize = ProtobufSerializer(type(message), Client(text), conf)
    data: bytes = serialize(message, SerializationContext("t", MessageField.VALUE))
    return data


@pytest.mark.parametrize("name", INDEXED)
def test_messages_of_confluents_python_serializer_are_read(name: str) -> None:
    text = INDEXED[name]
    pool = from_protobuf._pool_of([parse_proto(text, "main.proto")])
    made = from_protobuf.need().message_factory.GetMessageClass(pool.FindMessageTypeByName(name))
    message = written(made(a=5), text)
    reader = FramedReader(Registry({1: Schema("PROTOBUF", text)}), "PROTOBUF", from_protobuf.compiled)
    batch = RecordDecoder(reader).decode([message] * 2, HashedColumns(64, mapping=FeatureMap()), RowLimits())
    assert not batch.bad
    assert [sum(block) for block in batch.block.csr().toarray() ** 2] == [25.0, 25.0]


def test_where_the_two_clients_differ_the_count_of_the_java_client_holds() -> None:
    """The index 2 is `Third` for the Java client, which counts no map entries, and `Second` for the Python client."""
    types = from_protobuf._pool_of([parse_proto(MAPS_AND_NESTED, "m.proto")])
    outer = list(types.FindFileByName("m.proto").message_types_by_name.values())
    names = [from_protobuf._Indexed(outer)._type((0, index)).name for index in range(5) if index != 3]
    assert names == ["First", "Second", "Third", "Third"]
    assert all(low != high for low, high in pairwise(names[:3]))


def test_the_deserializer_of_confluent_reads_what_we_take_for_the_first_message() -> None:
    text = INDEXED["First"]
    pool = from_protobuf._pool_of([parse_proto(text, "main.proto")])
    made = from_protobuf.need().message_factory.GetMessageClass(pool.FindMessageTypeByName("First"))
    read = ProtobufDeserializer(made, {"use.deprecated.format": False})
    context = SerializationContext("t", MessageField.VALUE)
    for indexes in (b"\0", b"\2\0"):
        assert read(b"\0\0\0\0\1" + indexes + made(a=5).SerializeToString(), context).a == 5
