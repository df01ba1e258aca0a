"""The identity of a snapshot: its id, its key in the topic, its headers. Ids order two snapshots of one key."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, get_args, get_type_hints

from sfd_stream.errors import FormatError

HEADER_PREFIX = "sfd-"
Headers = tuple[tuple[str, bytes], ...]

EPOCH_MAX = NUMBER_MAX = 2**53 - 1
"""The greatest that a reader accepts; every language represents these integers exactly."""

EPOCH_TAKEN_MAX = 2**52
"""The greatest epoch on a topic above which a writer goes. Takeovers alone never reach it: a greater one is forged."""

PARTITION_MAX = 2**31 - 1
PARTITIONS_MAX = 100_000
"""The most partitions of a topic that a reader accepts; it names those that are missing."""

TEXT_MAX = 1000


@dataclass(frozen=True)
class SnapshotId:
    """`epoch` and `number` are those of the manifest that created the state. `window` is reserved for event time."""

    cluster: str | None
    group: str
    topic: str
    partition: int
    epoch: int
    number: int
    window: str | None = None

    @property
    def key(self) -> str:
        """`{group}/{topic}/{partition}`, followed by `@{window}` if there is one.

        A topic has no slash, so two different ids never have the same key.
        """
        base = f"{self.group}/{self.topic}/{self.partition}"
        return base if self.window is None else f"{base}@{self.window}"

    @property
    def order(self) -> tuple[int, int]:
        """The greater of two is newer."""
        return self.epoch, self.number

    @property
    def rows_of(self) -> tuple[str | None, str, int, str | None]:
        """The origin of the rows, independent of the group that sketched them."""
        return self.cluster, self.topic, self.partition, self.window

    def __str__(self) -> str:
        """For people. A writer to the topic chooses the texts, so control characters are escaped."""
        return f"{repr(self.key)[1:-1]} ({self.epoch}, {self.number})"

    def as_map(self) -> dict[str, Any]:
        return {name: getattr(self, name) for name in _KINDS}

    @classmethod
    def from_map(cls, found: Any) -> SnapshotId:
        if not isinstance(found, Mapping):
            raise FormatError(f"a snapshot's id is {found!r:.100}, not a map")
        for name in _KINDS:
            if name not in found or not _is_fit(name, found[name]):
                raise FormatError(f"a snapshot's id has {name} = {found.get(name)!r:.100}")
        return cls(**{name: found[name] for name in _KINDS})

    def headers(self, schema: str) -> Headers:
        """The id as text, so that a reader can choose without decoding. A field without a value has no header."""
        pairs = {"schema": schema, **self.as_map()}
        return tuple((HEADER_PREFIX + name, str(value).encode()) for name, value in pairs.items() if value is not None)

    @classmethod
    def from_headers(cls, headers: Iterable[tuple[str, bytes | None]]) -> SnapshotId | None:
        """The id; None if a tool has dropped headers: then the value has it."""
        texts = {
            name.removeprefix(HEADER_PREFIX): value.decode("utf-8", "replace")
            for name, value in headers
            if value is not None and name.startswith(HEADER_PREFIX)
        }
        try:
            numbers = {name: _number(texts.get(name, "")) for name in _LARGEST}
            return cls.from_map({"cluster": None, "window": None, **texts, **numbers})
        except FormatError:
            return None


def next_epoch(own: int, on_topic: int | None) -> int:
    """The epoch of a writer whose last one was `own` (0: none): above it, and above `on_topic`, its topic's epoch."""
    return max(own, followed(on_topic)) + 1


def followed(on_topic: int | None) -> int:
    """The epoch that a topic has for a key; 0 if there is none, or if it is above EPOCH_TAKEN_MAX.

    Such an epoch is forged. A writer above it would soon be above EPOCH_MAX, which no reader accepts. Then a null value
    under that key is needed.
    """
    return on_topic if on_topic is not None and on_topic <= EPOCH_TAKEN_MAX else 0


def _number(text: str) -> int | None:
    """The number; None if the text is no plain number of a reasonable length."""
    return int(text) if len(text) < 20 and text.isascii() and text.isdecimal() else None


def _is_fit(name: str, value: Any) -> bool:
    if type(value) not in _KINDS[name]:
        return False
    if name in _LARGEST:
        return bool(0 <= value <= _LARGEST[name])
    return value is None or (len(value) <= TEXT_MAX and not (name == "topic" and "/" in value))


_LARGEST = {"partition": PARTITION_MAX, "epoch": EPOCH_MAX, "number": NUMBER_MAX}
_KINDS = {name: get_args(kind) or (kind,) for name, kind in get_type_hints(SnapshotId).items()}
"""The types that each part of an id may have."""


@dataclass(frozen=True)
class SnapshotPart:
    """One input partition in a snapshot: the snapshot's own, or, in a merge, one of its parts."""

    id: SnapshotId
    partitions: int
    next_offset: int
    rows: int
    made_at_s: float

    def as_map(self) -> dict[str, Any]:
        return {"id": self.id.as_map(), **{name: getattr(self, name) for name in _PART_KINDS}}

    @classmethod
    def from_map(cls, found: Any) -> SnapshotPart:
        if not isinstance(found, Mapping):
            raise FormatError(f"a snapshot's part is {found!r:.100}, not a map")
        for name, kind in _PART_KINDS.items():
            value: Any = found.get(name)
            alike = type(value) is kind
            if not alike or not 0 <= value < math.inf or (name == "partitions" and value > PARTITIONS_MAX):
                raise FormatError(f"a snapshot's part has {name} = {value!r:.100}")
        return cls(SnapshotId.from_map(found.get("id")), **{name: found[name] for name in _PART_KINDS})


_PART_KINDS = {"partitions": int, "next_offset": int, "rows": int, "made_at_s": float}
