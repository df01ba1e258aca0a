"""Avro fields are found by name in the writer's schema, and a schema that cannot be read safely is refused."""

from __future__ import annotations

import json
import sys

import numpy as np
import pytest

from sfd_stream import RowDecodeError, SettingsError
from sfd_stream.wire.formats import from_avro
from sfd_stream.wire.formats.from_avro import avro_reader
from tests.unit.wire.formats.events import as_avro, framed
from tests.unit.wire.formats.ways import RECURSIVE, Registry, Schema, decoded, with_registry


def test_a_record_is_read_to_its_last_byte() -> None:
    fields = [{"name": "user", "type": "string"}, {"name": "n", "type": "int"}]
    read = avro_reader(json.dumps({"type": "record", "name": "E", "fields": fields}))
    assert read(b"\x04ab\x06") == {"user": "ab", "n": 3}
    with pytest.raises(RowDecodeError, match="the record ends at byte 4 of 5"):
        read(b"\x04ab\x06\x00")
    with pytest.raises(RowDecodeError, match="not Avro of its schema"):
        read(b"\x04a")


def test_avro_references_are_found() -> None:
    geo = {"type": "record", "name": "Geo", "namespace": "far", "fields": [{"name": "lat", "type": "double"}]}
    main = {"type": "record", "name": "E", "fields": [{"name": "at", "type": "far.Geo"}]}
    schema = Schema("AVRO", json.dumps(main), (("far.Geo", Schema("AVRO", json.dumps(geo))),))
    batch = decoded(with_registry("AVRO", Registry({1: schema})), [framed(1, np.float64(2.5).tobytes())])
    assert batch.block.values.tolist() == [2.5] or batch.block.values.tolist() == [-2.5]


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


def test_without_its_extra_it_is_one_sentence_with_the_command(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "fastavro", None)
    with pytest.raises(SettingsError, match=r"pip install 'sfd-stream\[avro\]'"):
        from_avro.need()
