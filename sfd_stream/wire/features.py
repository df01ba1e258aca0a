"""Records of named fields to named features, as `input.features` describes it. Plain Python, and the reference.

The defaults are those of scikit-learn's DictVectorizer. The order of fields changes nothing: the fields of an object
are taken in the order of their names. The work for a record is proportional to its size. The rules are in
`docs/reference/formats.md`.
"""

from __future__ import annotations

import math
import re
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, Final, Self

from sfd_stream.wire.flatten import PATH_BYTES_MAX, Flattener, kind_name
from sfd_stream.wire.reasons import MAGNITUDE_MAX, Reason, bad

_RULES_MAX: Final = 4096
"""Maximum number of paths whose rule is kept. Paths come from messages, so their number has no other bound."""
_KINDS: Final = ("ignore", "categorical", "text", "vector", "each")
_OPTIONS: Final = (*_KINDS, "log1p", "scale", "clip", "indices", "values")


@dataclass(frozen=True, slots=True)
class FieldOptions:
    """The settings of one field."""

    kind: str | None = None
    clip: tuple[float, float] | None = None
    log1p: bool = False
    scale: float = 1.0
    indices: str | None = None
    values: str | None = None

    @classmethod
    def from_settings(cls, path: str, given: Any) -> FieldOptions:
        """The options from a word (`log1p`) or a mapping (`{scale: 0.01, clip: [0, 100]}`). Raises ValueError."""
        if isinstance(given, str):
            given = {given: True}
        if not isinstance(given, Mapping) or not given:
            raise ValueError(f"fields.{path} must be a word like categorical, or options like {{scale: 0.01}}")
        for name in given:
            if name not in _OPTIONS:
                raise ValueError(f"fields.{path} has the unknown option {name!r}; there are {', '.join(_OPTIONS)}")
        kinds = [name for name in _KINDS if _flag(path, name, given)]
        if len(kinds) > 1:
            raise ValueError(f"fields.{path} must be either {kinds[0]} or {kinds[1]}")
        found = cls(
            kind=kinds[0] if kinds else None,
            clip=_clip(path, given.get("clip")),
            log1p=_flag(path, "log1p", given),
            scale=_number(f"fields.{path}.scale", given.get("scale", 1.0)),
            indices=_name(path, "indices", given),
            values=_name(path, "values", given),
        )
        if found.values is not None and found.indices is None:
            raise ValueError(f"fields.{path} has values without indices")
        return found

    def described(self) -> dict[str, Any]:
        """The options that are set, as plain values."""
        found: dict[str, Any] = {} if self.kind is None else {self.kind: True}
        found |= {"log1p": True} if self.log1p else {}
        found |= {"scale": self.scale} if self.scale != 1.0 else {}
        found |= {"clip": list(self.clip)} if self.clip is not None else {}
        found |= {"indices": self.indices} if self.indices is not None else {}
        return found | ({"values": self.values} if self.values is not None else {})

    def transformed(self, number: float) -> float:
        """Clipped, then sign(x) log(1 + |x|), then scaled. A value that is not finite stays, and is refused later."""
        if not math.isfinite(number):
            return number
        if self.clip is not None:
            number = min(max(number, self.clip[0]), self.clip[1])
        if self.log1p:
            number = math.copysign(math.log1p(abs(number)), number)
        return number * self.scale


_DEFAULT: Final = FieldOptions()


@dataclass(frozen=True, slots=True)
class Rule:
    """The rule for one path. `pruned`: nothing at or below it is read; `wanted`: a value here is included."""

    options: FieldOptions
    pruned: bool
    wanted: bool
    path_bytes: int
    plain: bool


@dataclass(frozen=True)
class FeatureMap:
    """How a record becomes named features. Give it to `HashedColumns` as `mapping`.

    >>> from sfd_stream import FeatureMap
    >>> features = FeatureMap.from_settings({"exclude": ["id"], "fields": {"price": "log1p"}})
    >>> features.features_of({"id": 7, "user": "ann", "items": ["tea", "tea"], "price": 0.0, "geo": {"lat": 52.5}})
    [('geo.lat', 52.5), ('items=tea', 1.0), ('items=tea', 1.0), ('user=ann', 1.0)]
    """

    include: tuple[str, ...] = ()
    exclude: tuple[str, ...] = ()
    fields: tuple[tuple[str, FieldOptions], ...] = ()
    path: str | None = None
    """The part of a message that is the record, or a list of records."""
    _rules: dict[str, Rule] = field(default_factory=dict, init=False, repr=False, compare=False)

    @classmethod
    def from_settings(cls, settings: Mapping[str, Any], *, path: str | None = None) -> Self:
        """The map for the settings `input.features` and `input.path`. Raises ValueError that names the fault.

        >>> FeatureMap.from_settings({"fields": {"price": {"scale": 0.01}}}).features_of({"price": 250})
        [('price', 2.5)]
        """
        if not isinstance(settings, Mapping):
            raise ValueError("must hold include, exclude or fields")  # noqa: TRY004 - pydantic takes ValueErrors
        for name in settings:
            if name not in ("include", "exclude", "fields"):
                raise ValueError(f"has the unknown key {name!r}; there are include, exclude and fields")
        fields = settings.get("fields") or {}
        if not isinstance(fields, Mapping):
            raise ValueError("fields must hold `path: options` lines")  # noqa: TRY004 - as above
        options = ((str(name), FieldOptions.from_settings(str(name), given)) for name, given in fields.items())
        return cls(
            _paths("include", settings.get("include")),
            _paths("exclude", settings.get("exclude")),
            tuple(sorted(options, key=lambda item: item[0])),
            path or None,
        )

    def described(self) -> dict[str, Any]:
        """Plain values that mean this map: what a checkpoint and a snapshot keep.

        >>> FeatureMap.from_settings({"include": ["price"], "fields": {"price": "log1p"}}).described()
        {'include': ['price'], 'fields': {'price': {'log1p': True}}}
        """
        lists = {name: list(getattr(self, name)) for name in ("include", "exclude") if getattr(self, name)}
        fields = {name: options.described() for name, options in self.fields}
        return lists | ({"fields": fields} if fields else {}) | ({"path": self.path} if self.path else {})

    @classmethod
    def from_description(cls, described: Mapping[str, Any]) -> Self:
        """The map that `described` describes.

        >>> FeatureMap.from_description({"exclude": ["id"], "path": "data"})
        FeatureMap(include=(), exclude=('id',), fields=(), path='data')
        """
        settings = {name: value for name, value in described.items() if name != "path"}
        return cls.from_settings(settings, path=described.get("path"))

    def records_of(self, message: Any) -> list[Mapping[str, Any]]:
        """The records of a decoded message: one, or those of a list; none where the path leads to null.

        >>> FeatureMap(path="payload.after").records_of({"payload": {"after": {"price": 1}}})
        [{'price': 1}]
        """
        parts = () if self.path is None else self._steps
        found: list[Mapping[str, Any]] = []
        for item in message if isinstance(message, list | tuple) else (message,):
            part = _followed(item, parts)
            found.extend(part if isinstance(part, list | tuple) else () if part is None else (part,))
        for record in found:
            if not isinstance(record, Mapping):
                raise bad(Reason.BAD_PATH, f"a record must be an object, not a {kind_name(record)}")
        return found

    def features_of(self, record: Mapping[str, Any]) -> list[tuple[str, float]]:
        """Names and values, repeated where a name comes several times. Raises RowDecodeError for a bad record.

        >>> FeatureMap().features_of({"b": True, "a": "x", "c": None})
        [('a=x', 1.0), ('b', 1.0)]
        """
        flattened = Flattener(self)
        flattened.add(record)
        return list(zip(flattened.names, flattened.values, strict=True))

    def rule(self, path: str, bytes_max: int = PATH_BYTES_MAX) -> Rule:
        """What holds for a path; a path that is too long is bad.

        >>> FeatureMap(exclude=("meta.*",)).rule("meta.id").pruned
        True
        """
        found = self._rules.get(path)
        if found is None:
            found = self._resolved(path, bytes_max)
            if len(self._rules) < _RULES_MAX:
                self._rules[path] = found
        if found.path_bytes > bytes_max:
            raise bad(
                Reason.OVER_LIMIT, f"a field's path has {found.path_bytes} bytes; at most {bytes_max} are allowed"
            )
        return found

    def _resolved(self, path: str, bytes_max: int) -> Rule:
        try:
            path_bytes = len(path.encode())
        except UnicodeEncodeError:
            raise bad(Reason.MALFORMED, "a field's name is no valid Unicode text") from None
        if path_bytes > bytes_max:  # before any pattern is tried on it
            return Rule(_DEFAULT, pruned=True, wanted=False, path_bytes=path_bytes, plain=False)
        include, exclude, fields = self._patterns
        options = next((found for pattern, found in fields if pattern.fullmatch(path)), _DEFAULT)
        pruned = options.kind == "ignore" or any(pattern.fullmatch(path) for pattern in exclude)
        wanted = not include or any(pattern.fullmatch(path) for pattern in include)
        return Rule(options, pruned, wanted, path_bytes, plain=wanted and not pruned and options == _DEFAULT)

    def unmatched(self, paths: Collection[str]) -> list[str]:
        """The paths of `include`, `exclude` and `fields` that match none of these paths.

        >>> FeatureMap(include=("pirce", "geo"), exclude=("*.id",)).unmatched(["price", "geo.lat", "user.id"])
        ['pirce']
        """
        named = [*self.include, *self.exclude, *(path for path, _ in self.ordered_fields())]
        include, exclude, fields = self._patterns
        patterns = [*include, *exclude, *(pattern for pattern, _ in fields)]
        return [
            path
            for path, pattern in zip(named, patterns, strict=True)
            if not any(pattern.fullmatch(each) for each in paths)
        ]

    @cached_property
    def _steps(self) -> tuple[str, ...]:
        return tuple((self.path or "").split("."))

    def ordered_fields(self) -> list[tuple[str, FieldOptions]]:
        """In the order in which they are tried: a path before patterns, a longer pattern before a shorter one.

        >>> features = FeatureMap.from_settings({"fields": {"a*": "text", "a.*": "text", "b": "text"}})
        >>> [path for path, options in features.ordered_fields()]
        ['b', 'a.*', 'a*']
        """
        return sorted(self.fields, key=lambda item: ("*" in item[0], -len(item[0]), item[0]))

    @cached_property
    def _patterns(self) -> tuple[list[re.Pattern[str]], list[re.Pattern[str]], list[Any]]:
        return (
            [_pattern(path, below=True) for path in self.include],
            [_pattern(path, below=True) for path in self.exclude],
            [(_pattern(path, below=False), options) for path, options in self.ordered_fields()],
        )


def differences(stored: Mapping[str, Any] | None, wanted: Mapping[str, Any] | None) -> str:
    """The differences between two descriptions, in words: `fields.price was log1p and is scale 0.01`."""
    if stored is None or wanted is None:
        names = ["rows of msgpack" if each is None else "records with input.features" for each in (stored, wanted)]
        return f"the state holds {names[0]} and the settings ask for {names[1]}"
    old, new = _lines(stored), _lines(wanted)
    changed = [name for name in sorted(old.keys() | new.keys()) if old.get(name) != new.get(name)]
    changes = (f"{name} was {old.get(name, 'not set')} and is {new.get(name, 'not set')}" for name in changed)
    return "; ".join(changes)


def _lines(described: Mapping[str, Any]) -> dict[str, str]:
    lines = {f"fields.{path}": _words(options) for path, options in described.get("fields", {}).items()}
    lines |= {name: ", ".join(described[name]) for name in ("include", "exclude") if name in described}
    return lines | ({"input.path": str(described["path"])} if "path" in described else {})


def _words(options: Mapping[str, Any]) -> str:
    return ", ".join(name if value is True else f"{name} {value}" for name, value in options.items()) or "default"


# -- settings ------------------------------------------------------------------------------------------------


def _paths(name: str, given: Any) -> tuple[str, ...]:
    if given is None:
        return ()
    given = [given] if isinstance(given, str) else given
    if not isinstance(given, list | tuple) or not all(isinstance(path, str) and path for path in given):
        raise ValueError(f"{name} must be a list of paths, like [user, geo.*]")
    return tuple(given)


def _pattern(path: str, *, below: bool) -> re.Pattern[str]:
    """`*` stands for any characters, dots included. With `below`, a path covers all that lies under it."""
    text = ".*".join(re.escape(part) for part in re.split(r"\*+", path))
    return re.compile(text + (r"(?:\..*)?" if below else ""), re.DOTALL)


def _flag(path: str, name: str, given: Mapping[str, Any]) -> bool:
    value = given.get(name, False)
    if not isinstance(value, bool):
        raise ValueError(f"fields.{path}.{name} must be true or false")  # noqa: TRY004 - pydantic takes ValueErrors
    return value


def _name(path: str, name: str, given: Mapping[str, Any]) -> str | None:
    value = given.get(name)
    if value is not None and not (isinstance(value, str) and value):
        raise ValueError(f"fields.{path}.{name} must name a field")
    return value


def _clip(path: str, given: Any) -> tuple[float, float] | None:
    if given is None:
        return None
    if not isinstance(given, list | tuple) or len(given) != 2:
        raise ValueError(f"fields.{path}.clip must be two numbers, like [0, 100]")
    low, high = (_number(f"fields.{path}.clip", bound) for bound in given)
    if low > high:
        raise ValueError(f"fields.{path}.clip must be two numbers, the lower one first")
    return low, high


def _number(what: str, given: Any) -> float:
    if isinstance(given, bool) or not isinstance(given, int | float) or not abs(given) <= MAGNITUDE_MAX:
        raise ValueError(f"{what} must be a finite number")
    return float(given)


def _followed(item: Any, steps: Iterable[str]) -> Any:
    """The value to which the path leads; None if a value on the way is null."""
    for step in steps:
        if item is None:
            return None
        if not isinstance(item, Mapping) or step not in item:
            raise bad(Reason.BAD_PATH, "input.path leads to no record: there is no field", step)
        item = item[step]
    return item
