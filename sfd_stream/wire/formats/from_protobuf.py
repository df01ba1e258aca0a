"""Protobuf messages by their descriptors, by the protobuf package (extra `protobuf`).

A field that is not in the message has no value, even if proto3 has a default for it: without `optional`, a zero, an
empty text and the first name of an enum look like a missing field. Fields have their names of the .proto file.
"""

from __future__ import annotations

import base64
import binascii
import json
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

from sfd_stream.errors import SettingsError
from sfd_stream.wire.compiled import Format, MessageReader
from sfd_stream.wire.formats.framing import TypedReader
from sfd_stream.wire.reasons import Reason, bad

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from sfd_stream.wire.formats.framing import Schema

_INDEXES_MAX = 64
_MAIN = "schema.proto"
_KNOWN = ("any", "api", "descriptor", "duration", "empty", "field_mask", "source_context", "struct", "timestamp",
          "type", "wrappers")  # fmt: skip
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def compiled(schema: Schema) -> TypedReader:
    """A function that reads messages of a registry's schema: message indexes, then the message."""
    files = [_file_of(name, reference.text) for name, reference in schema.references]
    main = _file_of(_MAIN, schema.text)
    pool = _pool_of([*files, main])
    found = pool.FindFileByName(main.name)
    return _Indexed(list(found.message_types_by_name.values()))


def raw_reader(descriptors: bytes, message: str, name: str) -> MessageReader:
    """A function that reads messages called `message`, from a descriptor set or the text of a .proto file."""
    module = need()
    files = [_file_of(name, descriptors.decode("utf-8", "replace"))] if name.endswith(".proto") else []
    if not files:
        found = module.descriptor_pb2.FileDescriptorSet()
        try:
            found.ParseFromString(descriptors)
        except module.message.DecodeError as error:
            raise bad(Reason.BAD_SCHEMA, f"{name} is no set of descriptors: {error}") from None
        files = list(found.file)
    try:
        return _reader(_pool_of(files).FindMessageTypeByName(message))
    except KeyError:
        raise bad(Reason.BAD_SCHEMA, f"{name} has no message {message}; give its full name, with the package") from None


class _Indexed(TypedReader):
    """Chooses the message type by the indexes in front, in the form that Confluent's serializers write."""

    def __init__(self, types: list[Any]) -> None:
        self._types = types
        self._readers: dict[tuple[int, ...], MessageReader] = {}

    def __call__(self, data: bytes) -> Any:
        read, at = self.split(data)
        return read(data[at:])

    def split(self, data: bytes) -> tuple[MessageReader, int]:
        indexes, at = _indexes(data)
        read = self._readers.get(indexes)
        if read is None:
            read = self._readers[indexes] = _reader(self._type(indexes))
        return read, at

    def _type(self, indexes: tuple[int, ...]) -> Any:
        """Counts nested messages like Confluent's Java client or, if that finds none, like its Python client."""
        found = _followed(self._types, indexes, entries=False) or _followed(self._types, indexes, entries=True)
        if found is None or found.GetOptions().map_entry:
            raise bad(Reason.MALFORMED, f"its schema has no message with the indexes {list(indexes)}")
        return found


def _followed(types: list[Any], indexes: tuple[int, ...], *, entries: bool) -> Any:
    """The message to which the indexes lead, or None. With `entries`, the entries of maps count as nested messages."""
    found = None
    for index in indexes:
        if not 0 <= index < len(types):
            return None
        found = types[index]
        types = [nested for nested in found.nested_types if entries or not nested.GetOptions().map_entry]
    return found


def _indexes(data: bytes) -> tuple[tuple[int, ...], int]:
    count, at = _zigzag(data, 0)
    if count == 0:
        return (0,), at
    if not 0 < count <= _INDEXES_MAX:
        raise bad(Reason.MALFORMED, f"{count} message indexes")
    found = []
    for _ in range(count):
        index, at = _zigzag(data, at)
        found.append(index)
    return tuple(found), at


def _zigzag(data: bytes, at: int) -> tuple[int, int]:
    number = 0
    for shift in range(0, 35, 7):
        if at >= len(data):
            break
        byte = data[at]
        at += 1
        number |= (byte & 0x7F) << shift
        if byte < 0x80:
            return number >> 1 ^ -(number & 1), at
    raise bad(Reason.MALFORMED, "message indexes that do not end")


def _reader(descriptor: Any) -> MessageReader:
    made = need().message_factory.GetMessageClass(descriptor)

    def read_protobuf(data: bytes) -> Any:
        try:
            return _record(made.FromString(data))
        except Exception as error:  # noqa: BLE001 - bytes from outside: whatever they make the library raise, they are bad
            raise bad(Reason.MALFORMED, "not Protobuf of its schema:", repr(error)[:160]) from None

    return MessageReader(read_protobuf, Format("protobuf", json.dumps(_described(descriptor))))


# -- messages to plain values ----------------------------------------------------------------------------


def _record(message: Any) -> Any:
    special = _SPECIAL.get(message.DESCRIPTOR.full_name)
    if special is not None:
        return special(message)
    return {field.name: _value(field, value) for field, value in message.ListFields()}


def _value(field: Any, value: Any) -> Any:
    nested = field.message_type
    if nested is not None and nested.GetOptions().map_entry:
        convert = _converter(nested.fields_by_name["value"])
        return {str(key): convert(value[key]) for key in value}
    convert = _converter(field)
    return [convert(item) for item in value] if field.is_repeated else convert(value)


def _converter(field: Any) -> Callable[[Any], Any]:
    if field.message_type is not None:
        return _record
    if field.enum_type is not None:
        names = field.enum_type.values_by_number
        return lambda number: names[number].name if number in names else str(number)
    return _same


def _same(value: Any) -> Any:
    return value


def _moment(message: Any) -> datetime:
    return _EPOCH + timedelta(seconds=message.seconds, microseconds=message.nanos // 1000)


def _struct_value(message: Any) -> Any:
    kind = message.WhichOneof("kind")
    return (
        None
        if kind in (None, "null_value")
        else _value(message.DESCRIPTOR.fields_by_name[kind], getattr(message, kind))
    )


_SPECIAL: Mapping[str, Callable[[Any], Any]] = {
    "google.protobuf.Timestamp": _moment,
    "google.protobuf.Duration": lambda message: message.seconds + message.nanos / 1e9,
    "google.protobuf.Struct": lambda message: {key: _struct_value(message.fields[key]) for key in message.fields},
    "google.protobuf.ListValue": lambda message: [_struct_value(item) for item in message.values],
    "google.protobuf.Value": _struct_value,
    "google.protobuf.Any": lambda _: None,
} | {
    f"google.protobuf.{kind}Value": lambda message: message.value
    for kind in ("Double", "Float", "Int64", "UInt64", "Int32", "UInt32", "Bool", "String", "Bytes")
}


# -- messages for the compiled decoder --------------------------------------------------------------------


def _described(first: Any) -> list[list[dict[str, Any]]]:
    """The fields of a message, and of all messages that it contains, in the form for the compiled decoder."""
    places, messages = {first.full_name: 0}, [first]
    # The list of messages grows during the walk, by the messages of fields.
    return [[_described_field(field, places, messages) for field in message.fields] for message in messages]


def _described_field(field: Any, places: dict[str, int], messages: list[Any]) -> dict[str, Any]:
    nested, symbols = field.message_type, field.enum_type
    described = {
        "number": field.number,
        "name": field.name,
        "kind": _KINDS.get(field.type, "other"),
        "repeated": field.is_repeated,
        "implicit": not field.is_repeated and not field.has_presence,
        "oneof": None if field.containing_oneof is None else field.containing_oneof.index,
    }
    if nested is not None and nested.full_name not in _SPECIAL and field.type != field.TYPE_GROUP:
        if nested.full_name not in places:
            places[nested.full_name] = len(messages)
            messages.append(nested)
        described["kind"] = "map" if nested.GetOptions().map_entry else "message"
        described["to"] = places[nested.full_name]
    if symbols is not None:
        described["kind"] = "enum" if symbols.is_closed else "open enum"
        described["symbols"] = [(number, value.name) for number, value in symbols.values_by_number.items()]
    return described


# In the order of their numbers in descriptor.proto; groups, messages and enums are described by themselves.
_KINDS = dict(enumerate(
    ["double", "float", "int64", "uint64", "int32", "fixed64", "fixed32", "bool", "string", "group", "other", "bytes",
     "uint32", "other", "sfixed32", "sfixed64", "sint32", "sint64"], start=1,
))  # fmt: skip


# -- descriptors -----------------------------------------------------------------------------------------


def need() -> Any:
    """The package, or SettingsError with the command that installs it."""
    try:
        from google import protobuf  # noqa: PLC0415 - an extra
        from google.protobuf import descriptor_pb2, descriptor_pool, message, message_factory  # noqa: F401, PLC0415
    except ImportError:
        raise SettingsError(
            "input.format protobuf needs protobuf, which is not installed; run: pip install 'sfd-stream[protobuf]'"
        ) from None
    return protobuf


def _file_of(name: str, text: str) -> Any:
    """The descriptor in a registry's answer: serialized, in base64, or the text of a .proto file."""
    module = need()
    from sfd_stream.wire.formats.proto_text import ProtoSyntaxError, parse_proto  # noqa: PLC0415 - needs the extra

    try:
        file = module.descriptor_pb2.FileDescriptorProto.FromString(base64.b64decode(text, validate=True))
    except (binascii.Error, ValueError, module.message.DecodeError):
        try:
            return parse_proto(text, name)
        except ProtoSyntaxError as error:
            raise bad(Reason.BAD_SCHEMA, f"{name} is no Protobuf schema: {error}") from None
    file.name = name
    return file


def _pool_of(files: Iterable[Any]) -> Any:
    """A pool of these files, each after its imports. Missing imports are left out: most are options."""
    module = need()
    pool = module.descriptor_pool.DescriptorPool()
    known = _add_well_known(pool)
    try:
        for file in files:
            if file.name not in known:
                _keep_imports(file, known)
                pool.AddSerializedFile(file.SerializeToString())
                known.add(file.name)
    except Exception as error:  # noqa: BLE001 - whatever the library raises, the schema is not usable
        raise bad(Reason.BAD_SCHEMA, f"not a Protobuf schema: {type(error).__name__}", str(error)[:160]) from None
    return pool


def _add_well_known(pool: Any) -> set[str]:
    from importlib import import_module  # noqa: PLC0415 - as above

    added = set()
    for name in sorted(_KNOWN, key=lambda name: (name in ("api", "type"), name == "api")):
        file = import_module(f"google.protobuf.{name}_pb2").DESCRIPTOR
        pool.AddSerializedFile(file.serialized_pb)
        added.add(file.name)
    return added


def _keep_imports(file: Any, known: set[str]) -> None:
    public = {file.dependency[index] for index in file.public_dependency}
    kept = [name for name in file.dependency if name in known]
    del file.dependency[:], file.public_dependency[:], file.weak_dependency[:]
    file.dependency.extend(kept)
    file.public_dependency.extend(index for index, name in enumerate(kept) if name in public)
