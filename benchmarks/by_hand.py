"""What one would write by hand to make sparse rows of messages: a parser, then scikit-learn's FeatureHasher."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import msgpack

from benchmarks import events

NAMES_D, D = 1_024, 65_536


@dataclass(frozen=True)
class Schema:
    kind: str
    text: str
    references: tuple[Any, ...] = ()


class Registry:
    """A registry at hand: for our readers, and as the client that confluent-kafka's deserializers ask."""

    outage = None
    _schemas = {1: Schema("AVRO", json.dumps(events.AVRO)), 2: Schema("PROTOBUF", events.PROTO)}  # noqa: RUF012

    def find(self, schema_id: int) -> Schema:
        return self._schemas[schema_id]

    def request(self, schema_ids: frozenset[int]) -> None:
        """All are known."""

    def close(self) -> None:
        """Nothing is open."""

    def get_schema(self, schema_id: int, *_: Any) -> Any:
        from confluent_kafka.schema_registry import Schema as RegisteredSchema

        found = self._schemas[schema_id]
        return RegisteredSchema(found.text, found.kind)


def _hasher(d: int, kind: str = "dict") -> Any:
    from sklearn.feature_extraction import FeatureHasher

    return FeatureHasher(d, input_type=kind)


def names_by_hand(messages: list[bytes]) -> Any:
    rows = map(msgpack.unpackb, messages)
    return _hasher(NAMES_D, "pair").transform(zip(row["i"], row["v"], strict=True) for row in rows)


def flat(record: dict[str, Any], prefix: str = "") -> dict[str, Any]:
    """What FeatureHasher takes: it knows neither nesting nor lists nor nulls."""
    found: dict[str, Any] = {}
    for name, value in record.items():
        if isinstance(value, dict):
            found |= flat(value, f"{prefix}{name}.")
        elif isinstance(value, list):
            for item in value:
                found[f"{prefix}{name}={item}"] = found.get(f"{prefix}{name}={item}", 0) + 1
        elif value is not None:
            found[prefix + name] = value
    return found


def json_by_hand(messages: list[bytes]) -> Any:
    import orjson

    return _hasher(D).transform(flat(orjson.loads(message)) for message in messages)


def json_by_the_library(messages: list[bytes]) -> Any:
    return _hasher(D).transform(flat(json.loads(message)) for message in messages)


def _context() -> Any:
    from confluent_kafka.serialization import MessageField, SerializationContext

    return SerializationContext("events", MessageField.VALUE)


def avro_by_hand(registry: Registry) -> Callable[[list[bytes]], Any]:
    from confluent_kafka.schema_registry import topic_subject_name_strategy
    from confluent_kafka.schema_registry.avro import AvroDeserializer

    conf = {"subject.name.strategy": topic_subject_name_strategy}
    deserialize, context = AvroDeserializer(registry, json.dumps(events.AVRO), conf=conf), _context()
    return lambda messages: _hasher(D).transform(flat(deserialize(message, context)) for message in messages)


def protobuf_by_hand() -> Callable[[list[bytes]], Any]:
    """Without a registry, which is its fastest way: it then trusts that the class is the writer's."""
    from confluent_kafka.schema_registry.protobuf import ProtobufDeserializer

    deserialize, context = ProtobufDeserializer(events.message_class(), {"use.deprecated.format": False}), _context()

    def record(message: Any) -> dict[str, Any]:
        return {
            field.name: record(value) if field.message_type else list(value) if field.is_repeated else value
            for field, value in message.ListFields()
        }

    return lambda messages: _hasher(D).transform(flat(record(deserialize(message, context))) for message in messages)
