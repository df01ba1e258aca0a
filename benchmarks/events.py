"""One event of 20 fields in every format, with its schemas: what the benchmark of formats reads."""

from __future__ import annotations

import io
import json
import random
from functools import cache
from typing import Any

COUNTRIES = ("DE", "FR", "IT", "ES", "PL", "NL", "SE", "US", "JP", "BR")
PAGES = ("home", "search", "product", "basket", "checkout", "help", "account")
TAGS = tuple(f"tag-{number:03}" for number in range(400))

TEXTS = ("user", "country", "city", "device", "os", "browser", "page", "plan")
MAYBE = ("referrer", "campaign")
"""Texts that may be null."""
NUMBERS = ("price", "score", "discount")
COUNTS = ("quantity", "duration_ms", "clicks")
FLAGS = ("member", "new")

AVRO: dict[str, Any] = {
    "type": "record",
    "name": "Event",
    "fields": [
        *({"name": name, "type": "string"} for name in TEXTS),
        *({"name": name, "type": ["null", "string"], "default": None} for name in MAYBE),
        *({"name": name, "type": "double"} for name in NUMBERS),
        *({"name": name, "type": "long"} for name in COUNTS),
        *({"name": name, "type": "boolean"} for name in FLAGS),
        {"name": "geo", "type": {"type": "record", "name": "Geo", "fields": [
            {"name": "lat", "type": "double"}, {"name": "lon", "type": "double"}, {"name": "zone", "type": "string"}]}},
        {"name": "tags", "type": {"type": "array", "items": "string"}},
    ],
}  # fmt: skip


def _proto() -> str:
    kinds = [
        *(f"string {name}" for name in TEXTS),
        *(f"optional string {name}" for name in MAYBE),
        *(f"double {name}" for name in NUMBERS),
        *(f"int64 {name}" for name in COUNTS),
        *(f"bool {name}" for name in FLAGS),
        "Geo geo",
        "repeated string tags",
    ]
    fields = " ".join(f"{kind} = {number};" for number, kind in enumerate(kinds, start=1))
    geo = "message Geo { double lat = 1; double lon = 2; string zone = 3; }"
    return f'syntax = "proto3"; message Event {{ {fields} {geo} }}'


PROTO = _proto()


def events(count: int, seed: int = 0) -> list[dict[str, Any]]:
    rng = random.Random(seed)
    return [_event(rng) for _ in range(count)]


def _event(rng: random.Random) -> dict[str, Any]:
    place = {"lat": round(rng.uniform(35, 60), 5), "lon": round(rng.uniform(-10, 30), 5)}
    return {
        "user": f"u{int(rng.paretovariate(0.6)) % 50_000:05}",
        "country": rng.choice(COUNTRIES),
        "city": f"city-{int(rng.paretovariate(0.8)) % 3_000}",
        "device": rng.choice(("phone", "tablet", "desktop")),
        "os": rng.choice(("android", "ios", "linux", "windows")),
        "browser": rng.choice(("firefox", "chrome", "safari")),
        "page": rng.choice(PAGES),
        "plan": rng.choice(("free", "basic", "gold")),
        "referrer": None if rng.random() < 0.5 else f"site-{rng.randrange(200)}",
        "campaign": None if rng.random() < 0.7 else f"spring-{rng.randrange(30)}",
        "price": round(rng.lognormvariate(3, 1), 2),
        "score": rng.random(),
        "discount": rng.choice((0.0, 0.05, 0.1)),
        "quantity": rng.randrange(1, 6),
        "duration_ms": rng.randrange(100, 90_000),
        "clicks": rng.randrange(12),
        "member": rng.random() < 0.4,
        "new": rng.random() < 0.2,
        "geo": {**place, "zone": f"z{rng.randrange(90)}"},
        "tags": rng.choices(TAGS, k=3),
    }


def as_json(event: dict[str, Any]) -> bytes:
    return json.dumps(event, separators=(",", ":")).encode()


@cache
def _parsed() -> Any:
    import fastavro

    return fastavro.parse_schema(AVRO)


def as_avro(event: dict[str, Any]) -> bytes:
    import fastavro

    stream = io.BytesIO()
    fastavro.schemaless_writer(stream, _parsed(), event)
    return stream.getvalue()


@cache
def message_class() -> Any:
    """The class of the event in Protobuf."""
    from google.protobuf import descriptor_pool, message_factory

    from sfd_stream.wire.formats.proto_text import parse_proto

    pool = descriptor_pool.DescriptorPool()
    pool.AddSerializedFile(parse_proto(PROTO, "event.proto").SerializeToString())
    return message_factory.GetMessageClass(pool.FindMessageTypeByName("Event"))


def as_protobuf(event: dict[str, Any]) -> bytes:
    given = {name: value for name, value in event.items() if value is not None}
    return bytes(message_class()(**given).SerializeToString())
