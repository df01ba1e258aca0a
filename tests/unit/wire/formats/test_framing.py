"""A message names its schema by id. One without a usable schema is bad, with the reason."""

from __future__ import annotations

from typing import Any

import pytest

from sfd_stream.wire.formats.framing import FramedReader
from tests.unit.wire.formats.events import as_avro, events, framed
from tests.unit.wire.formats.ways import RECURSIVE, REGISTRY, Registry, Schema, decoded, reasons, with_registry


def test_a_message_is_read_by_the_schema_that_it_names_and_each_schema_is_compiled_once() -> None:
    compiled: list[str] = []

    def compile_schema(schema: Any) -> Any:
        compiled.append(schema.text)
        return lambda data: (schema.text, data)

    registry = Registry({7: Schema("AVRO", "first"), 8: Schema("AVRO", "second")})
    reader = FramedReader(registry, "AVRO", compile_schema)
    found = [reader.read(framed(schema_id, b"data")) for schema_id in (7, 8, 7)]
    assert found == [("first", b"data"), ("second", b"data"), ("first", b"data")]
    assert compiled == ["first", "second"]


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
