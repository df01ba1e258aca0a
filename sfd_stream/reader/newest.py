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

    A message that can't be read is an error for whoever looks, until a newer one of its key takes its place.
    """

    group: str | None = None
    dropped: int = 0
    _ids: dict[str, SnapshotId] = field(default_factory=dict)
    _values: dict[str, bytes] = field(default_factory=dict)
    _decoded: dict[str, Snapshot | Reference] = field(default_factory=dict)
    _broken: dict[str, FormatError] = field(default_factory=dict)

    def offer(self, key: bytes | None, value: bytes | None, headers: Iterable[tuple[str, bytes | None]] = ()) -> bool:
        """Takes the message if it is news; says whether it is. A tombstone is none."""
        if value is None:
            return False
        label = (key or b"").decode("utf-8", "replace")
        try:
            snapshot_id = SnapshotId.from_headers(headers) or decode_message(value).id
        except FormatError as error:
            self._broken[label] = type(error)(f"the message {label!r}: {error}")
            return True
        if self.group is not None and snapshot_id.group != self.group:
            return False
        last = self._ids.get(snapshot_id.key)
        if last is not None and snapshot_id.order <= last.order:
            self.dropped += 1
            return False
        self._broken.pop(snapshot_id.key, None)
        self._ids[snapshot_id.key] = snapshot_id
        self._values[snapshot_id.key] = value
        self._decoded.pop(snapshot_id.key, None)
        return True

    @property
    def ids(self) -> Mapping[str, SnapshotId]:
        return dict(self._ids)

    def __len__(self) -> int:
        return len(self._ids) + len(self._broken)

    def all(self) -> list[Snapshot | Reference]:
        """Decoded, in the order of groups, topics and partitions."""
        for error in self._broken.values():
            raise error
        return [
            self._look(found) for found in sorted(self._ids.values(), key=lambda i: (i.group, i.topic, i.partition))
        ]

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
        return self._decoded[told.key]
