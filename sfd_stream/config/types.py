"""Types of settings beyond pydantic's own: sizes, topics, stores, open mappings.

Every type accepts the forms of a YAML file, an environment variable and a flag, and masks secrets.
"""

from __future__ import annotations

import contextlib
import math
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict, dataclass, fields
from typing import Annotated, Any, Final
from urllib.parse import urlsplit

import yaml
from pydantic import AfterValidator, BeforeValidator, Field, PlainSerializer, PlainValidator, WithJsonSchema

from sfd_stream.config.secrets import mask
from sfd_stream.wire.features import FeatureMap

Scalar = str | int | float | bool

_UNITS: Final = {
    "": 1, "b": 1,
    "k": 10**3, "kb": 10**3, "ki": 2**10, "kib": 2**10,
    "m": 10**6, "mb": 10**6, "mi": 2**20, "mib": 2**20,
    "g": 10**9, "gb": 10**9, "gi": 2**30, "gib": 2**30,
    "t": 10**12, "tb": 10**12, "ti": 2**40, "tib": 2**40,
}  # fmt: skip
_SIZE: Final = re.compile(r"\s*([0-9][0-9_]*(?:\.[0-9]+)?)\s*([a-zA-Z]*)\s*")
_TOPIC: Final = re.compile(r"[a-zA-Z0-9._-]{1,249}")
STORE_SCHEMES: Final = ("file", "s3", "gs", "az", "memory")


def parse_size(value: Any) -> Any:
    """A number of bytes from `1048576`, `512MiB`, `512Mi` or `10MB`. Other types than text are left to pydantic.

    pydantic.ByteSize would not do: it refuses `512Mi`, takes `8bit`, and cuts `1.5` down to 1.
    """
    if not isinstance(value, str):
        return value
    match = _SIZE.fullmatch(value)
    unit = _UNITS.get(match[2].lower()) if match else None
    if match is None or unit is None:
        raise ValueError("must be a number of bytes, like 1048576, 512MiB or 10MB")
    size = float(match[1].replace("_", "")) * unit if "." in match[1] else int(match[1]) * unit
    if size != int(size):
        raise ValueError("must be a whole number of bytes")
    return int(size)


def size_text(size: int) -> str:
    """The shortest exact form of a size: `512MiB`, or the number if no binary unit divides it."""
    for unit in ("TiB", "GiB", "MiB", "KiB"):
        if size and size % _UNITS[unit.lower()] == 0:
            return f"{size // _UNITS[unit.lower()]}{unit}"
    return str(size)


def check_topic(topic: str) -> str:
    if not _TOPIC.fullmatch(topic) or topic in (".", ".."):
        raise ValueError("must be a Kafka topic's name: 1 to 249 letters, digits, '.', '_' or '-'")
    return topic


def split(check: Callable[[str], str]) -> BeforeValidator:
    """Several values from one text, `eu-sketches, us-sketches`: every source can hold a text."""
    return BeforeValidator(
        lambda value: tuple(check(one.strip()) for one in value.split(",")) if isinstance(value, str) else value
    )


def check_store_url(url: str) -> str:
    """Checks that a store exists for the scheme and that the address is complete."""
    parts = urlsplit(url)
    if parts.scheme not in STORE_SCHEMES:
        raise ValueError(f"must start with {', '.join(f'{scheme}://' for scheme in STORE_SCHEMES)}")
    if parts.scheme == "file" and (parts.netloc not in ("", "localhost") or not parts.path.startswith("/")):
        raise ValueError("must have an absolute path, like file:///var/lib/sfd-stream")
    if parts.scheme in ("s3", "gs", "az") and not parts.netloc:
        raise ValueError(f"must name a bucket or container, like {parts.scheme}://bucket/prefix")
    return url


class Properties(Mapping[str, Scalar]):
    """An immutable mapping of names that a library defines (librdkafka, a store). Its repr masks secrets."""

    __slots__ = ("_items",)

    def __init__(self, items: Mapping[str, Scalar]) -> None:
        self._items = dict(items)

    def __getitem__(self, name: str) -> Scalar:
        return self._items[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._items)

    def __len__(self) -> int:
        return len(self._items)

    def __hash__(self) -> int:
        return hash(frozenset(self._items.items()))

    def __eq__(self, other: object) -> bool:
        return dict(self) == dict(other) if isinstance(other, Mapping) else NotImplemented

    def __repr__(self) -> str:
        return f"Properties({mask('', self._items)!r})"


def _refuse_containers(value: Any) -> Any:
    if isinstance(value, Mapping):
        for name, item in value.items():
            if not isinstance(item, Scalar):
                raise ValueError(f"{name} must be a text, a number, true or false")  # noqa: TRY004 - pydantic's way
    return value


def parse_features(value: Any) -> FeatureMap:
    """Parses a mapping, or its text in YAML or JSON from the environment or a flag."""
    if isinstance(value, FeatureMap):
        return value
    value = _from_text(value, "{exclude: [id]}")
    return FeatureMap.from_settings({} if value is None else value)


def _from_text(value: Any, example: str) -> Any:
    if not isinstance(value, str):
        return value
    try:
        return yaml.safe_load(value)
    except yaml.YAMLError:
        raise ValueError(f"must be YAML or JSON, like {example}") from None


@dataclass(frozen=True)
class Thresholds:
    """A row is extreme if it reaches any of the given thresholds."""

    p_max: float | None = None
    residual_over_mean_min: float | None = None
    t2_min: float | None = None

    def __bool__(self) -> bool:
        return bool(self.described())

    def described(self) -> dict[str, float]:
        """The thresholds as written in the settings."""
        return {name: value for name, value in asdict(self).items() if value is not None}


def parse_thresholds(value: Any) -> Thresholds:
    """Parses a mapping, or its text in YAML or JSON from the environment or a flag."""
    if isinstance(value, Thresholds):
        return value
    value = _from_text(value, "{p_max: 0.001}")
    if value is None:
        return Thresholds()
    names = [field.name for field in fields(Thresholds)]
    if not isinstance(value, Mapping) or not set(value) <= set(names):
        raise ValueError(f"must be a mapping with {', '.join(names)}")
    found = {name: _threshold(name, number) for name, number in value.items()}
    if found.get("p_max", 1) > 1:
        raise ValueError("p_max must be at most 1")
    return Thresholds(**found)


def _threshold(name: str, value: Any) -> float:
    number = value
    if isinstance(value, str):  # YAML 1.1 takes 1e-4 for a text
        with contextlib.suppress(ValueError):
            number = float(value)
    if isinstance(number, bool) or not isinstance(number, int | float) or not 0 < number < math.inf:
        raise ValueError(f"{name} must be a number above 0")
    return number


_PATHS: Final = {"type": ["array", "string"], "items": {"type": "string"}}
_POSITIVE: Final = {"type": "number", "exclusiveMinimum": 0}


def _mapping(**properties: dict[str, Any]) -> WithJsonSchema:
    """The schema of a mapping with these keys, or of its text in YAML or JSON."""
    return WithJsonSchema({"type": ["object", "string"], "additionalProperties": False, "properties": properties})


SizeBytes = Annotated[
    int,
    BeforeValidator(parse_size),
    Field(ge=1),
    WithJsonSchema(
        {
            "anyOf": [
                {"type": "integer", "minimum": 1},
                {"type": "string", "pattern": r"^[0-9][0-9_]*(\.[0-9]+)?\s*([kKmMgGtT]i?)?[bB]?$"},
            ]
        }
    ),
]
Topic = Annotated[str, AfterValidator(check_topic), Field(json_schema_extra={"pattern": f"^{_TOPIC.pattern}$"})]
Topics = Annotated[
    tuple[str, ...],
    split(check_topic),
    PlainSerializer(", ".join, return_type=str),
    WithJsonSchema({"type": "string", "pattern": rf"^{_TOPIC.pattern}(\s*,\s*{_TOPIC.pattern})*$"}),
]
StoreUrl = Annotated[str, AfterValidator(check_store_url)]
StoreUrls = Annotated[
    tuple[str, ...],
    split(check_store_url),
    PlainSerializer(", ".join, return_type=str),
    WithJsonSchema({"type": "string"}),
]
Seconds = Annotated[float, Field(gt=0, allow_inf_nan=False)]
OpenMapping = Annotated[
    Mapping[str, Any],
    BeforeValidator(_refuse_containers),
    AfterValidator(Properties),
    PlainSerializer(lambda items: mask("", dict(items)), return_type=dict),
    WithJsonSchema({"type": "object", "additionalProperties": {"type": ["string", "number", "boolean"]}}),
]
FeatureSettings = Annotated[
    FeatureMap,
    PlainValidator(parse_features),
    PlainSerializer(FeatureMap.described, return_type=dict),
    _mapping(
        include=_PATHS,
        exclude=_PATHS,
        fields={"type": "object", "additionalProperties": {"type": ["string", "object"]}},
    ),
]
ThresholdSettings = Annotated[
    Thresholds,
    PlainValidator(parse_thresholds),
    PlainSerializer(Thresholds.described, return_type=dict),
    _mapping(p_max={**_POSITIVE, "maximum": 1}, residual_over_mean_min=_POSITIVE, t2_min=_POSITIVE),
]
