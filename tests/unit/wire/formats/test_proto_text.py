"""A .proto file means what protoc says, and a text that is none is refused."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from grpc_tools import protoc

from sfd_stream.wire.formats import from_protobuf
from sfd_stream.wire.formats.proto_text import ProtoSyntaxError, parse_proto
from tests.unit.wire.formats.events import MAPS_AND_NESTED, PROTO
from tests.unit.wire.test_compiled import PROTO as ALL_TYPES

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
    "maps and nested messages in turns": MAPS_AND_NESTED,
}  # fmt: skip


def test_messages_and_fields_are_in_the_descriptor() -> None:
    text = 'syntax = "proto3"; package p; /* one */ message A { string user = 1; repeated int32 ns = 0x2; } // B {}'
    file = parse_proto(text, "a.proto")
    (message,) = file.message_type
    assert (file.name, file.package, message.name) == ("a.proto", "p", "A")
    assert [(field.name, field.number) for field in message.field] == [("user", 1), ("ns", 2)]
    assert [field.label == field.LABEL_REPEATED for field in message.field] == [False, True]


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
