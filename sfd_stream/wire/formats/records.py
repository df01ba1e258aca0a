"""Decodes a batch of messages into one checked block, by way of records: the common part of JSON, Avro and Protobuf.

A reader converts one message into plain values (None, bool, int, float, str, bytes, lists, mappings). The columns'
mapping converts them into features. The compiled decoder, if it is installed, does both for most messages. A bad
message is reported alone and does not affect the others.
"""

from __future__ import annotations

from itertools import pairwise
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np

from sfd_stream.errors import RowDecodeError
from sfd_stream.wire.columns import Columns, HashedColumns
from sfd_stream.wire.compiled import take_records
from sfd_stream.wire.flatten import Flattener
from sfd_stream.wire.reasons import Reason, bad
from sfd_stream.wire.rows.decode import DecodedBatch, assembled, decode
from sfd_stream.wire.rows.part import Part, RowLimits

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from sfd_stream.sketch.rows import Int
    from sfd_stream.wire.features import FeatureMap

_FRAMED = "a zero byte in front, as a schema registry's messages have (if so, set schema_registry.url);"


class LooksUpSchemas(Protocol):
    """The schemas that messages need. The loop's thread calls it; it never waits."""

    def missing(self, values: Sequence[bytes]) -> frozenset[int]:
        """Starts to look up the schemas that these messages need and that are not known yet. Returns their ids."""

    def is_missing(self, schema_ids: frozenset[int]) -> bool:
        """Whether any of these schemas is still being looked up."""

    @property
    def outage(self) -> str | None:
        """Why a schema registry does not answer; None while it does."""

    def close(self) -> None:
        """Ends look-ups."""


class Decoder(LooksUpSchemas, Protocol):
    """Decodes messages into rows."""

    def decode(self, values: Sequence[bytes], columns: Columns, limits: RowLimits) -> DecodedBatch:
        """The rows of a batch. No content of a message makes it raise."""


class Reader(LooksUpSchemas, Protocol):
    """One message to plain values. Raises RowDecodeError for a bad one, and nothing else."""

    def read(self, message: bytes) -> Any: ...
    def take(self, values: Sequence[bytes], columns: HashedColumns, limits: RowLimits) -> tuple[list[Part], Int]:
        """The messages that the compiled decoder takes, as parts, and the others, which are read one by one."""


class NeedsNoSchemas:
    """For messages without a schema in a registry."""

    outage = None

    def missing(self, values: Sequence[bytes]) -> frozenset[int]:  # noqa: ARG002 - no schema is ever missing
        return frozenset()

    def is_missing(self, schema_ids: frozenset[int]) -> bool:  # noqa: ARG002 - as above
        return False

    def close(self) -> None:
        """Nothing to end."""


class PlainReader(NeedsNoSchemas):
    """Reads each message by one function, without a registry."""

    def __init__(self, read: Callable[[bytes], Any]) -> None:
        self._read = read

    def read(self, message: bytes) -> Any:
        try:
            return self._read(message)
        except RowDecodeError as error:
            if error.reason == Reason.MALFORMED and message.startswith(b"\0"):
                excerpt = str(error).removeprefix(error.words).lstrip()
                raise bad(Reason.MALFORMED, f"{_FRAMED} {error.words}", excerpt) from None
            raise

    def take(self, values: Sequence[bytes], columns: HashedColumns, limits: RowLimits) -> tuple[list[Part], Int]:
        return take_records(self._read, values, columns, limits)


class MsgpackDecoder(NeedsNoSchemas):
    """Reads rows in msgpack, which need neither a mapping nor a schema."""

    def decode(self, values: Sequence[bytes], columns: Columns, limits: RowLimits) -> DecodedBatch:
        return decode(values, columns, limits)


class RecordDecoder:
    """Reads records, for hashed columns that have a mapping."""

    def __init__(self, reader: Reader) -> None:
        self._reader = reader
        self.missing = reader.missing
        self.is_missing = reader.is_missing
        self.close = reader.close

    @property
    def outage(self) -> str | None:
        return self._reader.outage

    def decode(self, values: Sequence[bytes], columns: Columns, limits: RowLimits) -> DecodedBatch:
        assert isinstance(columns, HashedColumns), "checked with the settings"
        assert columns.mapping is not None, "columns of records have a mapping"
        parts, rest = self._reader.take(values, columns, limits)
        flattened = Flattener(columns.mapping, limits.string_bytes_max)
        faults: dict[int, RowDecodeError] = {}
        good: list[tuple[int, list[int]]] = []
        for number in rest.tolist():
            before = len(flattened.names)
            try:
                good.append((number, self._add(values[number], columns.mapping, flattened, limits)))
            except RowDecodeError as error:
                faults[number] = error
                flattened.cut(before)
        return assembled(len(values), [*parts, _part(good, flattened)] if good else parts, faults, columns)

    def _add(self, value: bytes, mapping: FeatureMap, flattened: Flattener, limits: RowLimits) -> list[int]:
        """Appends the features of a message; returns how many each of its rows has."""
        _check("bytes", len(value), limits.message_bytes_max)
        records = mapping.records_of(self._reader.read(value))
        _check("rows", len(records), limits.rows_max)
        ends = [len(flattened.names)]
        for record in records:
            flattened.add(record)
            ends.append(len(flattened.names))
        _check("features", ends[-1] - ends[0], limits.nnz_max)
        return [end - start for start, end in pairwise(ends)]


def _check(what: str, count: int, most: int) -> None:
    if count > most:
        raise bad(Reason.OVER_LIMIT, f"{count} {what}; at most {most} are allowed")


def _part(good: list[tuple[int, list[int]]], flattened: Flattener) -> Part:
    return Part(
        messages=np.array([number for number, _ in good], dtype=np.int64),
        rows=np.array([len(lengths) for _, lengths in good], dtype=np.int64),
        nnz=np.array([sum(lengths) for _, lengths in good], dtype=np.int64),
        lengths=np.array([length for _, lengths in good for length in lengths], dtype=np.int64),
        features=flattened.names,
        values=np.array(flattened.values, dtype=np.float64),
    )
