"""Protobuf as others read it: .proto files by protoc, message indexes by confluent-kafka's serializer."""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka.schema_registry import RegisteredSchema, topic_subject_name_strategy
from confluent_kafka.schema_registry import Schema as SchemaOfClient
from confluent_kafka.schema_registry.protobuf import ProtobufDeserializer, ProtobufSerializer
from confluent_kafka.serialization import MessageField, SerializationContext
from grpc_tools import protoc

from sfd_stream import FeatureMap, HashedColumns
from sfd_stream.wire.formats import from_protobuf
from sfd_stream.wire.formats.framing import FramedReader
from sfd_stream.wire.formats.proto_text import parse_proto
from sfd_stream.wire.formats.records import RecordDecoder
from sfd_stream.wire.rows.part import RowLimits
from tests.unit.wire.formats.events import PROTO
from tests.unit.wire.test_compiled import PROTO as ALL_TYPES
from tests.unit.wire.formats.test_formats import Registry, Schema

TEXTS = {
    "the event of the tests": PROTO,
    "all types": ALL_TYPES,
    "proto2": """syntax = "proto2"; package a.b;
      message M { required int32 x = 1 [default = -7]; optional string y = 2 [default = "a;}\\"b"];
        repeated int32 z = 3;
        repeated int32 w = 4 [packed=true]; extensions 100 to max; enum E { A = 1; B = -2; }
        optional E e = 5 [default = B]; reserved "old", "older"; oneof pick { string l = 6; N r = 7; }
        message N { optional M up = 1; } }
      extend M { optional int32 more = 100; }""",
    "no syntax line": "message M { optional bytes b = 0x10; optional float f = 017; }",
    "scopes": """syntax = "proto3"; package p.q;
      message A { message B { message C { A a = 1; B b = 2; .p.q.A.B.C c = 3; q.A d = 4; } C c = 1; }
        B b = 1; A.B.C far = 2; }
      message B { B self = 1; A.B other = 2; }""",
    "options everywhere": """syntax = "proto3"; option java_package = "x.y"; option optimize_for = SPEED;
      message M { option deprecated = true; int32 a = 1 [deprecated = true, json_name = "alpha"];
        oneof o { int32 b = 2; } ; } ;
      enum E { option allow_alias = true; Z = 0; ONE = 1 [deprecated = true]; UNO = 1; reserved 5, 9 to 11; }
      service S { option deprecated = true; rpc Q (M) returns (M);
        rpc R (M) returns (stream M) { option idempotency_level = IDEMPOTENT; } }""",
    "names that are words of the language": """syntax = "proto3";
      message message { string string = 1; int32 optional = 2; repeated bool repeated = 3; map<string, message> map = 4;
        oneof oneof { bytes package = 5; double syntax = 6; } int64 enum = 7; string reserved_ = 8; string to = 9; }""",
    "comments": """// first
      syntax /* here */ = "proto3"; /* two
      lines; message X {} */ message M { // end }
        string a = 1; /* string b = 2; */ string c = 3; // string d = 4;
      }""",
    "imports": """syntax = "proto3";
      import "google/protobuf/timestamp.proto"; import public "google/protobuf/any.proto";
      message M { google.protobuf.Timestamp at = 1; repeated google.protobuf.Any more = 2;
        map<int64, google.protobuf.Timestamp> m = 3; }""",
    "editions": """edition = "2023"; option features.field_presence = IMPLICIT;
      message M { int32 a = 1; repeated int32 b = 2;
        string c = 3 [deprecated = true, features.field_presence = EXPLICIT];
        enum E { option features.enum_type = CLOSED; Z = 0; A = 1; } repeated E e = 4; }""",
    "maps and nested messages in turns": """syntax = "proto3"; message Outer { message First { int32 a = 1; }
        map<string, int32> one = 1; message Second { int32 b = 1; } map<int32, Second> two = 2;
        message Third { int32 c = 1; } }""",
}  # fmt: skip


def of_protoc(text: str, folder: Path) -> Any:
    (folder / "main.proto").write_text(text, encoding="utf-8")
    include = Path(protoc.__file__).parent / "_proto"
    target = folder / "out.desc"
    code = protoc.main(
        ["protoc", f"-I{folder}", f"-I{include}", f"--descriptor_set_out={target}", str(folder / "main.proto")]
    )
    assert code == 0
    (file,) = from_protobuf.need().descriptor_pb2.FileDescriptorSet.FromString(target.read_bytes()).file
    return file


def meaning(file: Any) -> Any:
    """All that decides how bytes are read: messages in their order, nested ones too, with their fields."""
    found = from_protobuf._pool_of([file]).FindFileByName(file.name)
    return {name: of_message(message) for name, message in found.message_types_by_name.items()}, list(
        found.message_types_by_name
    )


def of_message(message: Any) -> Any:
    nested = [(each.name, each.GetOptions().map_entry, of_message(each)) for each in message.nested_types]
    return from_protobuf._described(message), nested


@pytest.mark.parametrize("name", TEXTS)
def test_a_proto_file_means_what_protoc_says(name: str, tmp_path: Path) -> None:
    ours, theirs = parse_proto(TEXTS[name], "main.proto"), of_protoc(TEXTS[name], tmp_path)
    assert meaning(ours) == meaning(theirs)


# -- message indexes -------------------------------------------------------------------------------------

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
    types = from_protobuf._pool_of([parse_proto(TEXTS["maps and nested messages in turns"], "m.proto")])
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
