"""Converts one record into its features: the walk over its fields, and the features of each kind of value."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from datetime import UTC, date, datetime, time
from decimal import Decimal
from enum import Enum
from numbers import Real
from typing import TYPE_CHECKING, Any, Final
from uuid import UUID

from sfd_stream.wire.reasons import MAGNITUDE_MAX, Reason, bad

if TYPE_CHECKING:
    from sfd_stream.wire.features import FeatureMap, FieldOptions, Rule

DEPTH_MAX: Final = 64
"""Maximum nesting of objects and lists; a deeper record is bad."""
PATH_BYTES_MAX: Final = 256
"""Maximum number of bytes of a field's path, unless the settings set another one. Values may be longer."""

_WORD: Final = re.compile(r"[^\W_]+")
_WHOLE_MAX: Final = 2**53


class Flattener:
    """Appends the features of records to `names` and `values`. Raises RowDecodeError at the first fault."""

    def __init__(self, mapping: FeatureMap, path_bytes_max: int = PATH_BYTES_MAX) -> None:
        self.names: list[str] = []
        self.values: list[float] = []
        self._mapping = mapping
        self._bytes_max = path_bytes_max

    def add(self, record: Mapping[str, Any]) -> None:
        self._add_fields("", record, 1)

    def cut(self, count: int) -> None:
        """Removes all but the first `count` features."""
        del self.names[count:], self.values[count:]

    def _add_fields(self, prefix: str, record: Mapping[str, Any], depth: int) -> None:
        if depth > DEPTH_MAX:
            raise bad(Reason.OVER_LIMIT, f"a record is nested more than {DEPTH_MAX} levels deep")
        try:
            keys = sorted(record)
        except TypeError:  # only in a caller's own dictionaries: all keys of messages are texts
            keys = sorted(record, key=str)
        for key in keys:
            value = record[key]
            if value is None:
                continue
            path = f"{prefix}{key}"
            rule = self._mapping.rule(path, self._bytes_max)
            if rule.plain and type(value) is str:  # the most frequent case
                self.names.append(f"{path}={value}")
                self.values.append(1.0)
            elif not rule.pruned:
                self._add_value(path, rule, value, depth)

    def _add_value(self, path: str, rule: Rule, value: Any, depth: int) -> None:
        value = plain_value(value)
        if isinstance(value, dict | Mapping):
            if rule.options.indices is not None:
                self._add_sparse(path, rule, value)
            else:
                self._add_fields(f"{path}.", value, depth + 1)
        elif isinstance(value, list):
            self._add_list(path, rule, value, depth)
        elif rule.wanted:
            self._add_scalar(path, rule, value)

    def _add_scalar(self, path: str, rule: Rule, value: Any) -> None:
        options = rule.options
        if isinstance(value, str):
            self._add_text(path, options, value)
        elif isinstance(value, bytes):
            return
        elif options.kind == "categorical":
            self._put(f"{path}={_number_text(value)}", 1.0)
        else:
            self._put(path, options.transformed(_real(value)))

    def _add_text(self, path: str, options: FieldOptions, text: str) -> None:
        if options.kind == "text":
            for word in _WORD.findall(text.lower()):
                self._put(f"{path}:{word}", 1.0)
        else:
            self._put(f"{path}={text}", 1.0)

    def _add_list(self, path: str, rule: Rule, items: list[Any], depth: int) -> None:
        options = rule.options
        for place, raw in enumerate(items):
            item = plain_value(raw)
            if item is None or isinstance(item, bytes):
                continue
            if options.kind == "each" and isinstance(item, Mapping):
                self._add_fields(f"{path}.", item, depth + 1)
            elif not rule.wanted:
                continue
            elif isinstance(item, str) and options.kind != "vector":
                self._add_text(path, options, item)
            elif not isinstance(item, int | float):
                raise _refused(path, item)
            elif options.kind == "vector":
                self._put(f"{path}[{place}]", options.transformed(_real(item)))
            elif options.kind == "categorical":
                self._put(f"{path}={_number_text(item)}", 1.0)
            else:
                raise _refused(path, item)

    def _add_sparse(self, path: str, rule: Rule, record: Mapping[str, Any]) -> None:
        """A sparse vector: `path[index]` for each of its indices."""
        options = rule.options
        indices = plain_value(record.get(options.indices or ""))
        values = None if options.values is None else plain_value(record.get(options.values))
        if indices is None or not rule.wanted:
            return
        if values is None:
            values = [1.0] * len(indices) if isinstance(indices, list) else None
        if not isinstance(indices, list) or not isinstance(values, list):
            raise bad(Reason.BAD_FIELD, "the indices and values of a sparse vector must be lists:", path)
        if len(indices) != len(values):
            raise bad(Reason.BAD_LENGTH, f"a sparse vector has {len(indices)} indices and {len(values)} values:", path)
        for index, value in zip(indices, values, strict=True):
            if isinstance(index, bool) or not isinstance(index, int | str):
                raise bad(Reason.BAD_FIELD, f"an index of a sparse vector is a {kind_name(index)}:", path)
            name = index if isinstance(index, str) else _number_text(index)
            self._put(f"{path}[{name}]", options.transformed(_real(value)))

    def _put(self, name: str, value: float) -> None:
        if value:
            self.names.append(name)
            self.values.append(value)


def plain_value(value: Any) -> Any:
    """None, bool, int, float, str, bytes, a list or a mapping; RowDecodeError for anything else."""
    if type(value) in _EXACT or isinstance(value, _PLAIN):  # the exact types first: asking an ABC takes long
        return value
    for kinds, convert in _CONVERSIONS:
        if isinstance(value, kinds):
            return convert(value)
    if hasattr(value, "tolist"):  # numpy's arrays and scalars
        return plain_value(value.tolist())
    if hasattr(value, "__index__"):
        return int(value)
    raise bad(Reason.BAD_FIELD, f"a field is a {type(value).__name__}, which no feature can be made of")


def _time_text(moment: datetime) -> str:
    """RFC 3339, in UTC where the zone is known, without a fraction that is zero."""
    if moment.tzinfo is None:
        return moment.isoformat()
    return moment.astimezone(UTC).isoformat().replace("+00:00", "Z")


_EXACT: Final = frozenset({type(None), bool, int, float, str, bytes, list, dict})
_PLAIN: Final = (bool, int, float, str, bytes, list, Mapping)
_CONVERSIONS: Final[tuple[tuple[Any, Any], ...]] = (
    ((tuple, set, frozenset), lambda items: list(items) if isinstance(items, tuple) else sorted(items, key=str)),
    (Decimal, float),
    (datetime, _time_text),
    ((date, time), lambda value: value.isoformat()),
    (UUID, str),
    (Enum, lambda value: value.name),
    ((bytearray, memoryview), bytes),
    (Real, float),
)


def _real(value: Any) -> float:
    if isinstance(value, bool | int | float):
        try:
            return float(value)
        except OverflowError:
            raise bad(Reason.TOO_LARGE, f"a value above {MAGNITUDE_MAX:g} in magnitude") from None
    raise bad(Reason.BAD_FIELD, f"a {kind_name(value)} where a number should be")


def _number_text(number: Any) -> str:
    """The text of a number as a category: 1 and 1.0 are the same category, in every format."""
    if isinstance(number, bool):
        return "true" if number else "false"
    if isinstance(number, float) and not math.isfinite(number):
        raise bad(Reason.NOT_FINITE, "a value is NaN or infinite")
    if abs(number) > MAGNITUDE_MAX:
        raise bad(Reason.TOO_LARGE, f"a value above {MAGNITUDE_MAX:g} in magnitude")
    if isinstance(number, int):
        return str(int(number))
    return str(int(number)) if number.is_integer() and abs(number) < _WHOLE_MAX else repr(number)


def _refused(path: str, item: Any) -> Exception:
    if isinstance(item, Mapping):
        return bad(Reason.BAD_FIELD, "a list of objects needs each, or ignore, in input.features:", path)
    if isinstance(item, list | str):
        return bad(Reason.BAD_FIELD, f"a list has a {kind_name(item)} where no feature can be made of it:", path)
    return bad(Reason.BAD_FIELD, "a list of numbers needs vector, categorical or ignore in input.features:", path)


def kind_name(value: Any) -> str:
    kinds = ((type(None), "null"), (bool, "boolean"), (int | float, "number"), (str, "text"), (list, "list"))
    return next((name for kind, name in kinds if isinstance(value, kind)), "object")
