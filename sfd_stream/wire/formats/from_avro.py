"""Avro messages without a file header, by fastavro (extra `avro`). Fields are found by name in the writer's schema.

fastavro does not check what it reads: a recursive type overflows the stack of the process, and an array of items
without bytes may declare any length. Schemas with either are refused, so that no message can do this.
"""

from __future__ import annotations

import io
import json
from typing import TYPE_CHECKING, Any

from sfd_stream.errors import SettingsError
from sfd_stream.wire.compiled import Format, MessageReader
from sfd_stream.wire.reasons import Reason, bad

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from sfd_stream.wire.formats.framing import Schema

_BYTES_LEAST = {"null": 0, "float": 4, "double": 8}  # others take one at least
_TYPES_MAX = 10_000
"""Maximum number of types in a schema whose names are resolved. A larger one is left to fastavro."""


def compiled(schema: Schema) -> MessageReader:
    """A function that reads messages written with this schema."""
    return avro_reader(schema.text, [reference.text for _, reference in schema.references])


def avro_reader(text: str, references: Sequence[str] = ()) -> MessageReader:
    """Raises RowDecodeError (`bad_schema`) for a text that is no schema, or for one that cannot be read safely."""
    fastavro = need()
    named: dict[str, Any] = {}
    try:
        for reference in references:
            fastavro.parse_schema(json.loads(reference), named_schemas=named)
        schema = fastavro.parse_schema(json.loads(text), named_schemas=named)
    except Exception as error:  # noqa: BLE001 - whatever the library raises, the schema is not usable
        raise bad(Reason.BAD_SCHEMA, f"not an Avro schema: {type(error).__name__}", str(error)[:160]) from None
    _check(schema, named, ())
    read = fastavro.schemaless_reader

    def read_avro(message: bytes) -> Any:
        stream = io.BytesIO(message)
        try:
            found = read(stream, schema, None)
        except Exception as error:  # noqa: BLE001 - bytes from outside: whatever they make fastavro raise, they are bad
            raise bad(Reason.MALFORMED, "not Avro of its schema:", repr(error)[:160]) from None
        if stream.tell() != len(message):
            raise bad(Reason.MALFORMED, f"the record ends at byte {stream.tell()} of {len(message)}")
        return found

    return MessageReader(read_avro, Format("avro", json.dumps(_Description(named).of(schema))))


def need() -> Any:
    """The package, or SettingsError with the command that installs it."""
    try:
        import fastavro  # noqa: PLC0415 - an extra
    except ImportError:
        raise SettingsError(
            "input.format avro needs fastavro, which is not installed; run: pip install 'sfd-stream[avro]'"
        ) from None
    return fastavro


def _check(schema: Any, named: Mapping[str, Any], above: tuple[str, ...]) -> int:
    """The least bytes that a value takes. Refuses recursive types, and arrays of items that may take none."""
    if isinstance(schema, list):
        return 1 + min((_check(branch, named, above) for branch in schema), default=0)
    if isinstance(schema, str):
        return _check(named[schema], named, above) if schema in named else _BYTES_LEAST.get(schema, 1)
    kind = schema["type"]
    if kind in ("record", "error"):
        name = schema["name"]
        if name in above:
            raise bad(Reason.BAD_SCHEMA, f"the type {name} contains itself")
        return sum(_check(field["type"], named, (*above, name)) for field in schema["fields"])
    if kind == "array" and _check(schema["items"], named, above) == 0:
        raise bad(Reason.BAD_SCHEMA, "an array has items that take no bytes, so that it may claim any length")
    if kind == "map":
        _check(schema["values"], named, above)
    if kind == "fixed":
        return int(schema["size"])
    return _check(kind, named, above) if isinstance(kind, dict | list) else _BYTES_LEAST.get(kind, 1)


class _Description:
    """The schema for the compiled decoder: all names are resolved, and None stands for types that it does not read."""

    def __init__(self, named: Mapping[str, Any]) -> None:
        self._named = named
        self._types = 0

    def of(self, schema: Any) -> Any:
        self._types += 1
        if self._types > _TYPES_MAX:
            return None
        if isinstance(schema, list):
            return {"union": [self.of(branch) for branch in schema]}
        if isinstance(schema, str):
            return self.of(self._named[schema]) if schema in self._named else schema
        if "logicalType" in schema:
            return None
        return self._of_mapping(schema, schema["type"])

    def _of_mapping(self, schema: Mapping[str, Any], kind: Any) -> Any:
        match kind:
            case "record" | "error":
                return {"record": [(field["name"], self.of(field["type"])) for field in schema["fields"]]}
            case "enum":
                return {"enum": schema["symbols"]}
            case "array":
                return {"array": self.of(schema["items"])}
            case "map":
                return {"map": self.of(schema["values"])}
            case "fixed":
                return {"fixed": schema["size"]}
            case _:
                return self.of(kind)
