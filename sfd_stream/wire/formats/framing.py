"""Confluent's wire format: a zero byte, the id of a schema, the message. Schemas come from a registry, by id."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np

from sfd_stream.errors import RowDecodeError
from sfd_stream.wire.compiled import take_records
from sfd_stream.wire.reasons import Reason, bad

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from sfd_stream.sketch.rows import Int
    from sfd_stream.wire.columns import HashedColumns
    from sfd_stream.wire.rows.part import Part, RowLimits

HEADER_BYTES = 5
_READERS_MAX = 10_000
"""Maximum number of schemas whose readers are kept. A registry has far fewer; more would fill the memory."""


class Schema(Protocol):
    """A schema of a registry, with the schemas to which it refers, each under the name that it uses."""

    @property
    def kind(self) -> str:
        """AVRO, PROTOBUF or JSON."""

    @property
    def text(self) -> str: ...

    @property
    def references(self) -> Sequence[tuple[str, Schema]]:
        """All schemas, also those of references. A schema comes after those to which it refers."""


class Schemas(Protocol):
    """The source of schemas. Neither method waits."""

    def find(self, schema_id: int) -> Schema | str | None:
        """The schema; a sentence if the registry does not have it; None if it is not known yet."""

    def request(self, schema_ids: frozenset[int]) -> None:
        """Looks these schemas up in the background."""

    @property
    def outage(self) -> str | None:
        """Why the registry does not answer; None while it does."""

    def close(self) -> None:
        """Ends look-ups."""


class TypedReader(ABC):
    """Reads messages of several types. Each message begins with its type."""

    @abstractmethod
    def __call__(self, data: bytes) -> Any: ...

    @abstractmethod
    def split(self, data: bytes) -> tuple[Callable[[bytes], Any], int]:
        """The reader of the message's type, and where the message begins."""


class FramedReader:
    """Reads messages of one format. Each message has the id of its schema."""

    def __init__(self, schemas: Schemas, kind: str, compiled: Callable[[Schema], Callable[[bytes], Any]]) -> None:
        self._schemas = schemas
        self._kind = kind
        self._compiled = compiled
        self._readers: dict[int, Callable[[bytes], Any]] = {}
        self.close = schemas.close

    def take(self, values: Sequence[bytes], columns: HashedColumns, limits: RowLimits) -> tuple[list[Part], Int]:
        """Messages with the same header at once: those of one schema and, in Protobuf, of one type."""
        parts: list[Part] = []
        left = np.ones(len(values), dtype=bool)
        for read, header, numbers in self._groups(values):
            some, others = take_records(read, [values[number] for number in numbers], columns, limits, header)
            places = np.array(numbers)
            parts += [replace(part, messages=places[part.messages]) for part in some]
            left[places] = False
            left[places[others]] = True
        return parts, np.flatnonzero(left)

    def _groups(self, values: Sequence[bytes]) -> Iterator[tuple[Callable[[bytes], Any], int, list[int]]]:
        """The reader of each schema, the size of its messages' headers, and the messages. Bad messages are left out."""
        by_schema: dict[bytes, list[int]] = {}
        for number, value in enumerate(values):
            by_schema.setdefault(value[:HEADER_BYTES], []).append(number)
        for numbers in by_schema.values():
            try:
                read, header = self._split(values[numbers[0]])
            except RowDecodeError:
                continue
            if header > HEADER_BYTES:
                start = values[numbers[0]][:header]
                numbers = [number for number in numbers if values[number].startswith(start)]  # noqa: PLW2901
            yield read, header, numbers

    def _split(self, message: bytes) -> tuple[Callable[[bytes], Any], int]:
        """The reader of a message, and where it begins to read."""
        if len(message) < HEADER_BYTES or message[0] != 0:
            raise bad(Reason.MALFORMED, "no zero byte and schema id in front, as a schema registry's messages have")
        schema_id = int.from_bytes(message[1:HEADER_BYTES], "big")
        read = self._readers.get(schema_id) or self._reader(schema_id)
        if not isinstance(read, TypedReader):
            return read, HEADER_BYTES
        of_type, size = read.split(message[HEADER_BYTES:])
        return of_type, HEADER_BYTES + size

    def missing(self, values: Sequence[bytes]) -> frozenset[int]:
        named = {value[1:HEADER_BYTES] for value in values if len(value) >= HEADER_BYTES and value[0] == 0}
        ids = (int.from_bytes(raw, "big") for raw in named)
        missing = frozenset(i for i in ids if i not in self._readers and self._schemas.find(i) is None)
        if missing:
            self._schemas.request(missing)
        return missing

    def is_missing(self, schema_ids: frozenset[int]) -> bool:
        return any(self._schemas.find(schema_id) is None for schema_id in schema_ids)

    @property
    def outage(self) -> str | None:
        return self._schemas.outage

    def read(self, message: bytes) -> Any:
        read, at = self._split(message)
        return read(message[at:])

    def _reader(self, schema_id: int) -> Callable[[bytes], Any]:
        schema = self._schemas.find(schema_id)
        if schema is None or isinstance(schema, str):
            raise bad(Reason.UNKNOWN_SCHEMA, f"schema id {schema_id} is unknown: {schema or 'not looked up'}")
        read = self._compile(schema_id, schema)
        if len(self._readers) >= _READERS_MAX:
            self._readers.clear()
        self._readers[schema_id] = read
        return read

    def _compile(self, schema_id: int, schema: Schema) -> Callable[[bytes], Any]:
        """A reader. For a schema that cannot be used, a reader that raises an error for every message."""
        try:
            if schema.kind != self._kind:
                raise bad(Reason.BAD_SCHEMA, f"it is {schema.kind}, not {self._kind}")
            return self._compiled(schema)
        except RowDecodeError as error:
            words = f"schema id {schema_id} cannot be used: {error.words}"

            def refuse(_: bytes) -> Any:
                raise bad(Reason.BAD_SCHEMA, words)

            return refuse
