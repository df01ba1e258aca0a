"""One data set in every format: events with texts, numbers, lists, nesting, nulls and Unicode, and their schemas."""

from __future__ import annotations

import io
import json
import random
from typing import Any

import fastavro

from sfd_stream import FeatureMap, encode_row
from sfd_stream.wire.formats.from_protobuf import need
from sfd_stream.wire.formats.proto_text import parse_proto

FEATURES: dict[str, Any] = {
    "exclude": ["id"],
    "fields": {
        "price": "log1p",
        "title": "text",
        "store": "categorical",
        "embedding": {"vector": True, "scale": 0.5},
        "terms": {"indices": "columns", "values": "weights"},
        "lines": "each",
    },
}
MAPPING = FeatureMap.from_settings(FEATURES)

AVRO_SCHEMA: dict[str, Any] = {
    "type": "record",
    "name": "Event",
    "namespace": "shop",
    "fields": [
        {"name": "id", "type": "long"},
        {"name": "user", "type": ["null", "string"], "default": None},
        {"name": "kind", "type": {"type": "enum", "name": "Kind", "symbols": ["VIEW", "SALE", "RETURN"]}},
        {"name": "price", "type": ["null", "double"], "default": None},
        {"name": "store", "type": "int"},
        {"name": "title", "type": "string"},
        {"name": "member", "type": "boolean"},
        {"name": "items", "type": {"type": "array", "items": "string"}},
        {"name": "embedding", "type": {"type": "array", "items": "double"}},
        {"name": "geo", "type": ["null", {"type": "record", "name": "Geo", "fields": [
            {"name": "lat", "type": "double"}, {"name": "city", "type": "string"}]}]},
        {"name": "attributes", "type": {"type": "map", "values": "double"}},
        {"name": "terms", "type": {"type": "record", "name": "Terms", "fields": [
            {"name": "columns", "type": {"type": "array", "items": "long"}},
            {"name": "weights", "type": {"type": "array", "items": "double"}}]}},
        {"name": "lines", "type": {"type": "array", "items": {"type": "record", "name": "Line", "fields": [
            {"name": "sku", "type": "string"}, {"name": "n", "type": "int"}]}}},
    ],
}  # fmt: skip
PROTO = """
syntax = "proto3";
package shop;  // the same event
/* Kinds start at an unspecified one, as the style guide asks. */
enum Kind { KIND_UNSPECIFIED = 0; VIEW = 1; SALE = 2; RETURN = 3; }
message Ignored { string nothing = 1; }
message Event {
  reserved 20 to 29, 31;
  option deprecated = false;
  int64 id = 1;
  optional string user = 2 [json_name = "userName"];
  Kind kind = 3;
  optional double price = 4;
  optional int32 store = 5;
  optional string title = 6;
  bool member = 7;
  repeated string items = 8;
  repeated double embedding = 9 [packed = true];
  optional Geo geo = 10;
  map<string, double> attributes = 11;
  Terms terms = 12;
  repeated Line lines = 13;
  message Geo { optional double lat = 1; optional string city = 2; }
  message Terms { repeated int64 columns = 1; repeated double weights = 2; }
}
message Line { optional string sku = 1; int32 n = 2; }
service Shop { rpc Sell (Event) returns (Line) { option deprecated = true; } }
"""
MESSAGE = "shop.Event"
MAPS_AND_NESTED = """syntax = "proto3"; message Outer { message First { int32 a = 1; }
  map<string, int32> one = 1; message Second { int32 b = 1; } map<int32, Second> two = 2;
  message Third { int32 c = 1; } }"""
"""Maps and nested messages in turns: clients of registries count them in two ways."""
WORDS = ["tea", "Kaffee", "ñandú", "茶", "привет", "🫖", "a b", "x=y", "", "naïve"]


def events(count: int, seed: int = 0) -> list[dict[str, Any]]:
    rng = random.Random(seed)
    return [_event(rng, number) for number in range(count)]


def _event(rng: random.Random, number: int) -> dict[str, Any]:
    columns = rng.sample(range(50), rng.randrange(4))
    return {
        "id": number,
        "user": None if rng.random() < 0.1 else f"user{rng.randrange(200)}",
        "kind": rng.choice(["VIEW", "SALE", "RETURN"]),
        "price": None if rng.random() < 0.1 else round(rng.lognormvariate(2, 1), 2),
        "store": rng.randrange(12),
        "title": " ".join(rng.choices(WORDS, k=rng.randrange(4))),
        "member": rng.random() < 0.5,
        "items": rng.choices(WORDS, k=rng.randrange(5)),
        "embedding": [rng.gauss(0, 1) for _ in range(3)],
        "geo": None if rng.random() < 0.3 else {"lat": rng.uniform(-90, 90), "city": rng.choice(WORDS)},
        "attributes": {rng.choice(WORDS[:5]): rng.random() for _ in range(rng.randrange(3))},
        "terms": {"columns": columns, "weights": [rng.random() for _ in columns]},
        "lines": [{"sku": rng.choice(WORDS), "n": rng.randrange(1, 9)} for _ in range(rng.randrange(3))],
    }


def by_name(event: dict[str, Any]) -> bytes:
    """As msgpack: names and values."""
    pairs = MAPPING.features_of(event)
    return encode_row([name for name, _ in pairs], [value for _, value in pairs], packed=False)


def as_json(event: dict[str, Any]) -> bytes:
    """Fields in another order than the other formats have them."""
    return json.dumps(dict(reversed(event.items())), ensure_ascii=event["id"] % 2 == 0).encode()


def as_avro(event: dict[str, Any], schema: Any = None) -> bytes:
    stream = io.BytesIO()
    fastavro.schemaless_writer(stream, schema or _PARSED, event)
    return stream.getvalue()


_PARSED = fastavro.parse_schema(AVRO_SCHEMA)


def proto_classes(text: str = PROTO, name: str = "event.proto") -> Any:
    """The class of each message in a .proto text, by its full name."""
    module = need()
    pool = module.descriptor_pool.DescriptorPool()
    pool.AddSerializedFile(parse_proto(text, name).SerializeToString())
    found = pool.FindFileByName(name).message_types_by_name.values()
    return {each.full_name: module.message_factory.GetMessageClass(each) for each in found}


_EVENT = proto_classes()[MESSAGE]


def as_protobuf(event: dict[str, Any], made: Any = None) -> bytes:
    plain = {key: value for key, value in event.items() if value is not None}
    kinds = {"VIEW": 1, "SALE": 2, "RETURN": 3}
    message = (made or _EVENT)(**plain | {"kind": kinds[event["kind"]]})
    return bytes(message.SerializeToString())


def descriptor_set() -> bytes:
    """What `protoc --include_imports --descriptor_set_out` writes."""
    return bytes(need().descriptor_pb2.FileDescriptorSet(file=[parse_proto(PROTO, "event.proto")]).SerializeToString())


def framed(schema_id: int, message: bytes, indexes: bytes = b"") -> bytes:
    """In Confluent's wire format."""
    return b"\0" + schema_id.to_bytes(4, "big") + indexes + message


EVENT_INDEXES = bytes([2, 2])
"""Of `Event`, the second message: one index, 1, both in zigzag."""
