"""Builds the decoder of the input topic's messages from the settings."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from sfd_stream.errors import RowDecodeError, SettingsError
from sfd_stream.wire.formats.framing import FramedReader
from sfd_stream.wire.formats.records import Decoder, MsgpackDecoder, PlainReader, Reader, RecordDecoder

if TYPE_CHECKING:
    from collections.abc import Callable

    from sfd_stream.config.model import Settings
    from sfd_stream.kafka.schema_registry import RegistryLog
    from sfd_stream.wire.formats.framing import Schema

_SCHEMA_MAX_BYTES = 16 * 2**20


def decoder_of(settings: Settings, log: RegistryLog) -> Decoder:
    """The decoder for the settings. SettingsError if a package or a schema file is missing or invalid."""
    if settings.input.format == "msgpack":
        return MsgpackDecoder()
    return RecordDecoder(reader_of(settings, log))


def reader_of(settings: Settings, log: RegistryLog) -> Reader:
    given = settings.input
    if settings.schema_registry.get("url"):
        from sfd_stream.kafka.schema_registry import open_registry

        kind, extra = given.format.upper(), "registry" if given.format == "json" else given.format
        compiled = _compiler(given.format)
        return FramedReader(open_registry(settings.schema_registry, log, kind=kind, extra=extra), kind, compiled)
    if given.format == "json":
        from sfd_stream.wire.formats.from_json import read_json

        return PlainReader(read_json)
    assert given.schema is not None, "checked with the settings"
    return PlainReader(_raw(given.format, Path(str(given.schema)), given.message))


def _compiler(name: str) -> Callable[[Schema], Callable[[bytes], Any]]:
    """The function that compiles a registry's schema into a reader of its messages."""
    if name == "json":
        from sfd_stream.wire.formats.from_json import read_json

        return lambda _: read_json
    if name == "avro":
        from sfd_stream.wire.formats import from_avro

        from_avro.need()
        return from_avro.compiled
    from sfd_stream.wire.formats import from_protobuf

    from_protobuf.need()
    return from_protobuf.compiled


def _raw(name: str, file: Path, message: str | None) -> Callable[[bytes], Any]:
    try:
        with file.open("rb") as stream:
            content = stream.read(_SCHEMA_MAX_BYTES)
    except OSError as error:
        raise SettingsError(f"input.schema {file}: {error.strerror}; give the path of a readable file") from None
    try:
        if name == "avro":
            from sfd_stream.wire.formats.from_avro import avro_reader

            return avro_reader(content.decode("utf-8", "replace"))
        from sfd_stream.wire.formats.from_protobuf import raw_reader

        return raw_reader(content, str(message), file.name)
    except RowDecodeError as error:
        raise SettingsError(f"input.schema {file}: {error}") from None
