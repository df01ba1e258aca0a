"""The newest message of every key, by (epoch, number): what came late or twice is dropped. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from sfd_stream.errors import FormatError
from sfd_stream.wire.snapshot_ids import SnapshotId
from sfd_stream.wire.snapshots import Reference, Snapshot, decode_message


@dataclass
class Newest:
    """Bytes by key. They are decoded when somebody looks, so that the past of a topic costs no decoding.

    A message that can't be read is an error for whoever looks, until a newer one of its key takes its place, or the
    same one again in good health.
    """

    group: str | None = None
    dropped: int = 0
    _ids: dict[str, SnapshotId] = field(default_factory=dict)
    _values: dict[str, bytes] = field(default_factory=dict)
    _decoded: dict[str, Snapshot | Reference] = field(default_factory=dict)
    _broken: dict[str, FormatError] = field(default_factory=dict)
    _gone: set[str] = field(default_factory=set)

    def offer(self, key: bytes | None, value: bytes | None, headers: Iterable[tuple[str, bytes | None]] = ()) -> bool:
        """Takes the message if it is news; says whether it is. A null value takes its key away."""
        label = (key or b"").decode("utf-8", "replace")
        if value is None:
            return self._take_away(label)
        try:
            snapshot_id = SnapshotId.from_headers(headers) or decode_message(value).id
        except FormatError as error:
            ours = self.group is None or label.startswith(f"{self.group}/")
            if ours:
                self._broken[label] = type(error)(f"the message {label!r}: {error}")
            return ours
        if self.group is not None and snapshot_id.group != self.group:
            return False
        if not self._is_news(snapshot_id):
            self.dropped += 1
            return False
        self._broken.pop(snapshot_id.key, None)
        self._gone.discard(snapshot_id.key)
        self._ids[snapshot_id.key] = snapshot_id
        self._values[snapshot_id.key] = value
        self._decoded.pop(snapshot_id.key, None)
        return True

    def _is_news(self, told: SnapshotId) -> bool:
        """Newer than what is held, or the same again where that was taken away, or is damaged."""
        last = self._ids.get(told.key)
        if last is None or told.order != last.order:
            return last is None or told.order > last.order
        return told.key in self._gone or told.key in self._broken or not self._is_sound(last)

    def _is_sound(self, held: SnapshotId) -> bool:
        try:
            self._look(held)
        except FormatError:
            return False
        return True

    def _take_away(self, key: str) -> bool:
        """The order is kept, so that nothing older comes back."""
        known = self._broken.pop(key, None) is not None or (key in self._ids and key not in self._gone)
        if key in self._ids:
            self._gone.add(key)
            self._values.pop(key, None)
            self._decoded.pop(key, None)
        return known

    @property
    def ids(self) -> Mapping[str, SnapshotId]:
        return {key: found for key, found in self._ids.items() if key not in self._gone}

    def __len__(self) -> int:
        return len(self._ids) - len(self._gone) + len(self._broken)

    def all(self) -> list[Snapshot | Reference]:
        """Decoded, in the order of groups, topics and partitions."""
        for error in self._broken.values():
            raise error
        return [self._look(found) for found in sorted(self.ids.values(), key=lambda i: (i.group, i.topic, i.partition))]

    def put(self, snapshot: Snapshot) -> None:
        """What a reference led to, in its place."""
        assert self._ids[snapshot.id.key] == snapshot.id
        self._decoded[snapshot.id.key] = snapshot

    def _look(self, told: SnapshotId) -> Snapshot | Reference:
        if told.key not in self._decoded:
            try:
                found = decode_message(self._values[told.key])
            except FormatError as error:
                raise type(error)(f"the snapshot {told}: {error}") from error
            if found.id != told:
                raise FormatError(f"a message's headers say {told}, its value is {found.id}")
            self._decoded[told.key] = found
            del self._values[told.key]  # held once, not twice
        return self._decoded[told.key]
