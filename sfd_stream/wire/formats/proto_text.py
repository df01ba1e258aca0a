"""Converts the text of a .proto file into its descriptor, for registries that keep only the text.

It reads the parts of messages (messages, enums, oneofs, maps, nested types, imports, the features of editions). It
skips what does not change how bytes are read: options, services, extensions, reserved numbers. Types stay as written:
the descriptor pool resolves them. Groups are refused.
"""

from __future__ import annotations

import re
from typing import Any, Final, NoReturn

from google.protobuf import descriptor_pb2

_TOKEN: Final = re.compile(
    r"""\s+ | //[^\n]* | /\*.*?\*/ | (?P<text>"(?:[^"\\\n]|\\.)*" | '(?:[^'\\\n]|\\.)*')
    | (?P<name>\.?[A-Za-z_]\w*(?:\.[A-Za-z_]\w*)*) | (?P<number>[-+]?\.?\d[\w.]*(?:[eE][-+]?\d+)?) | (?P<sign>.)""",
    re.VERBOSE | re.DOTALL,
)
_OCTAL: Final = re.compile(r"[-+]?0[0-7]+")
_FIELD: Final = descriptor_pb2.FieldDescriptorProto
_SCALARS: Final = {
    name: getattr(_FIELD, f"TYPE_{name.upper()}")
    for name in (
        "double", "float", "int32", "int64", "uint32", "uint64", "sint32", "sint64", "fixed32", "fixed64",
        "sfixed32", "sfixed64", "bool", "string", "bytes",
    )
}  # fmt: skip
_LABELS: Final = {
    "optional": _FIELD.LABEL_OPTIONAL,
    "required": _FIELD.LABEL_REQUIRED,
    "repeated": _FIELD.LABEL_REPEATED,
}
_CLOSING: Final = {"{": "}", "[": "]", "(": ")", "<": ">"}
_EDITIONS: Final = {"2023": descriptor_pb2.EDITION_2023, "2024": descriptor_pb2.EDITION_2024}


class ProtoSyntaxError(ValueError):
    """The text is not a .proto file that this parser can read."""


def parse_proto(text: str, name: str) -> descriptor_pb2.FileDescriptorProto:
    """The descriptor of a file called `name`. Raises ProtoSyntaxError."""
    return _Parser(text, name).file()


class _Parser:
    def __init__(self, text: str, name: str) -> None:
        found = ((match.lastgroup, match.group()) for match in _TOKEN.finditer(text))
        self._tokens = [token for kind, token in found if kind is not None]
        self._at = 0
        self._file = descriptor_pb2.FileDescriptorProto(name=name, syntax="proto2")

    def file(self) -> descriptor_pb2.FileDescriptorProto:
        while self._at < len(self._tokens):
            self._top(self._next())
        if self._file.syntax == "proto2":
            self._file.ClearField("syntax")
        return self._file

    def _top(self, word: str) -> None:
        file = self._file
        if word in ("syntax", "edition"):
            self._expect("=")
            self._set_syntax(word, _unquoted(self._next()))
            self._expect(";")
        elif word == "package":
            file.package = self._next()
            self._expect(";")
        elif word == "import":
            self._import()
        elif word == "message":
            self._message(file.message_type.add())
        elif word == "enum":
            self._enum(file.enum_type.add())
        elif word == "option":
            self._option(file)
        elif word in ("service", "extend"):
            self._skip_statement()
        elif word != ";":
            self._refuse(word)

    def _set_syntax(self, word: str, value: str) -> None:
        if word == "syntax":
            self._file.syntax = value
        elif value in _EDITIONS:
            self._file.syntax, self._file.edition = "editions", _EDITIONS[value]
        else:
            self._refuse(value)

    def _import(self) -> None:
        word = self._next()
        if word in ("public", "weak", "option"):
            if word == "public":
                self._file.public_dependency.append(len(self._file.dependency))
            word = self._next()
        self._file.dependency.append(_unquoted(word))
        self._expect(";")

    def _message(self, message: Any) -> None:
        message.name = self._next()
        self._expect("{")
        optional: list[Any] = []
        while (word := self._next()) != "}":
            if word == "message":
                self._message(message.nested_type.add())
            elif word == "enum":
                self._enum(message.enum_type.add())
            elif word == "oneof":
                self._oneof(message)
            elif word == "option":
                self._option(message)
            elif word in ("reserved", "extensions", "extend"):
                self._skip_statement()
            elif word != ";":
                label = _LABELS.get(word)
                field = self._field(message, self._next() if label else word, label)
                if word == "optional" and self._file.syntax == "proto3":
                    optional.append(field)
        for field in optional:  # after all real oneofs, as protoc does it
            field.proto3_optional, field.oneof_index = True, len(message.oneof_decl)
            message.oneof_decl.add(name=f"_{field.name}")

    def _oneof(self, message: Any) -> None:
        index = len(message.oneof_decl)
        message.oneof_decl.add(name=self._next())
        self._expect("{")
        while (word := self._next()) != "}":
            if word == "option":
                self._skip_statement()
            elif word != ";":
                self._field(message, word, None).oneof_index = index

    def _field(self, message: Any, kind: str, label: int | None) -> Any:
        if kind == "map" and self._peek() == "<":
            return self._map(message)
        if kind == "group":
            self._refuse(kind)
        field = message.field.add(label=label or _FIELD.LABEL_OPTIONAL)
        _set_type(field, kind)
        self._name_and_number(field)
        return field

    def _map(self, message: Any) -> Any:
        self._expect("<")
        key = self._next()
        self._expect(",")
        value = self._next()
        self._expect(">")
        field = message.field.add(label=_FIELD.LABEL_REPEATED)
        self._name_and_number(field)
        entry = message.nested_type.add(name=f"{_camel(field.name)}Entry")
        entry.options.map_entry = True
        for number, (name, kind) in enumerate((("key", key), ("value", value)), start=1):
            _set_type(entry.field.add(name=name, number=number, label=_FIELD.LABEL_OPTIONAL), kind)
        field.type_name = entry.name
        return field

    def _name_and_number(self, field: Any) -> None:
        field.name = self._next()
        self._expect("=")
        field.number = self._number()
        if self._peek() == "[":
            self._field_options(field)
        self._expect(";")

    def _option(self, target: Any) -> None:
        """After `option`."""
        if self._peek().startswith("features."):
            self._feature(target)
            self._expect(";")
        else:
            self._skip_statement()

    def _field_options(self, field: Any) -> None:
        self._expect("[")
        while self._peek() != "]":
            if self._peek().startswith("features."):
                self._feature(field)
            elif (word := self._next()) in _CLOSING and word != "<":
                self._skip_group(word)
        self._expect("]")

    def _feature(self, target: Any) -> None:
        """A feature of an edition, like `features.field_presence = IMPLICIT`. Features of languages are skipped."""
        name = self._next().removeprefix("features.")
        self._expect("=")
        value = self._next()
        known = descriptor_pb2.FeatureSet.DESCRIPTOR.fields_by_name.get(name)
        if known is None or value not in known.enum_type.values_by_name:
            self._refuse(f"features.{name} = {value}", "a known feature")
        setattr(target.options.features, name, known.enum_type.values_by_name[value].number)

    def _enum(self, enum: Any) -> None:
        enum.name = self._next()
        self._expect("{")
        while (word := self._next()) != "}":
            if word == "option":
                self._option(enum)
            elif word == "reserved":
                self._skip_statement()
            elif word != ";":
                self._expect("=")
                enum.value.add(name=word, number=self._number())
                if self._peek() == "[":
                    self._skip_group(self._next())
                self._expect(";")
        if len({value.number for value in enum.value}) < len(enum.value):
            enum.options.allow_alias = True

    # -- tokens --

    def _next(self) -> str:
        if self._at >= len(self._tokens):
            raise ProtoSyntaxError("the text ends in the middle of a definition")
        self._at += 1
        return self._tokens[self._at - 1]

    def _peek(self) -> str:
        return self._tokens[self._at] if self._at < len(self._tokens) else ""

    def _expect(self, wanted: str) -> None:
        if (found := self._next()) != wanted:
            self._refuse(found, wanted)

    def _refuse(self, found: str, wanted: str = "a definition") -> NoReturn:
        raise ProtoSyntaxError(f"{found[:40]!r} stands where {wanted} should be")

    def _number(self) -> int:
        word = self._next()
        word = word + self._next() if word in ("-", "+") else word
        try:
            return int(word, 8 if _OCTAL.fullmatch(word) else 0)
        except ValueError:
            self._refuse(word, "a whole number")

    def _skip_statement(self) -> None:
        """Up to the semicolon, or over the body that ends the statement."""
        while (word := self._next()) != ";":
            if word in _CLOSING and word != "<":
                self._skip_group(word)
                if word == "{" and self._peek() != ";":
                    return

    def _skip_group(self, opening: str) -> None:
        closing = _CLOSING[opening]
        while (word := self._next()) != closing:
            if word in _CLOSING and word != "<":
                self._skip_group(word)


def _set_type(field: Any, kind: str) -> None:
    if kind in _SCALARS:
        field.type = _SCALARS[kind]
    else:
        field.type_name = kind


def _unquoted(text: str) -> str:
    return text[1:-1] if text[:1] in ("'", '"') else text


def _camel(name: str) -> str:
    return "".join(part[:1].upper() + part[1:] for part in name.split("_"))
