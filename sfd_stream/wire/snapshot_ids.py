"""Who a snapshot is: its id, its key in the topic, its headers. Two snapshots of one key are ordered by their ids."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from sfd_stream.errors import FormatError

HEADER_PREFIX = "sfd-"
Headers = tuple[tuple[str, bytes], ...]


@dataclass(frozen=True)
class SnapshotId:
    """`epoch` and `number` are those of the manifest that made the state; `window` is room for event time."""

    cluster: str | None
    group: str
    topic: str
    partition: int
    epoch: int
    number: int
    window: str | None = None

    @property
    def key(self) -> str:
        """`{group}/{topic}/{partition}`, with `@{window}` behind it where there is one.

        A topic has no slash, so no two of them are equal.
        """
        base = f"{self.group}/{self.topic}/{self.partition}"
        return base if self.window is None else f"{base}@{self.window}"

    @property
    def order(self) -> tuple[int, int]:
        """The greater of two is the newer."""
        return self.epoch, self.number

    @property
    def rows_of(self) -> tuple[str | None, str, int, str | None]:
        """Whose rows these are, whichever group sketched them."""
        return self.cluster, self.topic, self.partition, self.window

    def __str__(self) -> str:
        return f"{self.key} ({self.epoch}, {self.number})"

    def as_map(self) -> dict[str, Any]:
        return {name: getattr(self, name) for name in _KINDS}

    @classmethod
    def from_map(cls, found: Any) -> SnapshotId:
        if not isinstance(found, Mapping):
            raise FormatError(f"a snapshot's id is {found!r:.100}, not a map")
        for name, kinds in _KINDS.items():
            if type(found.get(name)) not in kinds:
                raise FormatError(f"a snapshot's id has {name} = {found.get(name)!r:.100}")
        return cls(**{name: found[name] for name in _KINDS})

    def headers(self, schema: str) -> Headers:
        """The id as text, so that a reader can choose without decoding; what is absent has no header."""
        pairs = {"schema": schema, **self.as_map()}
        return tuple((HEADER_PREFIX + name, str(value).encode()) for name, value in pairs.items() if value is not None)

    @classmethod
    def from_headers(cls, headers: Iterable[tuple[str, bytes | None]]) -> SnapshotId | None:
        """The id, or None where a tool on the way has dropped headers: then the value itself tells it."""
        texts = {
            name.removeprefix(HEADER_PREFIX): value.decode("utf-8", "replace")
            for name, value in headers
            if value is not None and name.startswith(HEADER_PREFIX)
        }
        try:
            numbers = {name: int(texts[name]) for name in ("partition", "epoch", "number")}
            return cls(texts.get("cluster"), texts["group"], texts["topic"], **numbers, window=texts.get("window"))
        except (KeyError, ValueError):
            return None


_KINDS: dict[str, tuple[type, ...]] = {
    "cluster": (str, type(None)),
    "group": (str,),
    "topic": (str,),
    "partition": (int,),
    "epoch": (int,),
    "number": (int,),
    "window": (str, type(None)),
}


@dataclass(frozen=True)
class Part:
    """One input partition in a snapshot: the snapshot's own, or, in a merged one, one of those it was made of."""

    id: SnapshotId
    partitions: int
    next_offset: int
    rows: int
    made_at_s: float

    def as_map(self) -> dict[str, Any]:
        return {"id": self.id.as_map(), **{name: getattr(self, name) for name in _PART_KINDS}}

    @classmethod
    def from_map(cls, found: Any) -> Part:
        if not isinstance(found, Mapping):
            raise FormatError(f"a snapshot's part is {found!r:.100}, not a map")
        for name, kind in _PART_KINDS.items():
            if type(found.get(name)) is not kind:
                raise FormatError(f"a snapshot's part has {name} = {found.get(name)!r:.100}")
        return cls(SnapshotId.from_map(found.get("id")), **{name: found[name] for name in _PART_KINDS})


_PART_KINDS = {"partitions": int, "next_offset": int, "rows": int, "made_at_s": float}
