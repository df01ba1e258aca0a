"""Keeps the newest valid message of every key, by (epoch, number). Drops older ones and skips invalid ones. Pure."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from sfd_stream.errors import FormatError, ObjectMissingError, RefusedStateError, SfdError, StoreRefusedError
from sfd_stream.wire.snapshot_ids import PARTITION_MAX, SnapshotId, followed
from sfd_stream.wire.snapshots import MAX_BYTES, Reference, Snapshot, decode_message, decoded_bytes, id_of

_KEY_BYTES = 1024
"""Memory that a key needs in addition to its message."""

_SAMPLE_BYTES = 1 << 16


KEYS_MAX = 200_000
"""Maximum number of keys: twice the partitions that a topic may have."""


def half_of_the_memory(limit: Path = Path("/sys/fs/cgroup/memory.max")) -> int:
    """Half of the memory of the machine, or of the container if that is less."""
    machine = int(os.sysconf("SC_PHYS_PAGES")) * int(os.sysconf("SC_PAGE_SIZE"))
    with contextlib.suppress(OSError, ValueError):  # no such file, or the word "max"
        machine = min(machine, int(limit.read_text(encoding="ascii")))
    return machine // 2


@dataclass
class _Held:
    """The messages of one key: the newest decoded one, and a newer one that is not decoded yet."""

    good: Snapshot | Reference | None = None
    fresh: tuple[SnapshotId, bytes] | None = None

    @property
    def id(self) -> SnapshotId:
        if self.fresh is not None:
            return self.fresh[0]
        assert self.good is not None
        return self.good.id

    @property
    def bytes(self) -> int:
        decoded = decoded_bytes(self.good) if isinstance(self.good, Snapshot) else 0
        return _KEY_BYTES + decoded + (len(self.fresh[1]) if self.fresh is not None else 0)


@dataclass
class Newest:
    """The newest message of each key. Messages are decoded on request, so that replaced ones are never decoded.

    Any client with write permission can write anything to the topic. A message that is not a snapshot of its key is
    skipped and counted, and the previous valid one stays. A null value removes its key.
    """

    group: str | None = None
    max_snapshot_bytes: int = MAX_BYTES
    max_total_bytes: int = field(default_factory=half_of_the_memory)
    skipped: int = 0
    """Number of messages that are not a snapshot of their key, or refer to one that can't be fetched."""
    error: SfdError | None = None
    """Why the last message was skipped."""
    sample: bytes = b""
    """The first bytes of the last value that is not a snapshot."""
    held_bytes: int = 0
    _held: dict[str, _Held] = field(default_factory=dict)

    def offer(self, key: bytes | None, value: bytes | None, headers: Iterable[tuple[str, bytes | None]] = ()) -> bool:
        """Keeps the message if it is newer, and returns whether it was. A null value removes the key and its order."""
        label = (key or b"").decode("utf-8", "replace")
        if self.group is not None and not label.startswith(f"{self.group}/"):
            return False
        if value is None:
            return self._forget(label)
        header_id, held = SnapshotId.from_headers(headers), self._held.get(label)
        if header_id is not None and header_id.key == label and self._is_old(header_id):
            return False
        try:
            found = _checked(label, value, header_id)
        except FormatError as error:
            self._skip(
                f"the snapshot {header_id}" if header_id is not None else f"the message {label!r:.200}", error, value
            )
            return False
        own = self.group is None or found.group == self.group
        return own and not self._is_old(found) and self._take(label, held or _Held(), found, value)

    def _is_old(self, header_id: SnapshotId) -> bool:
        held = self._held.get(header_id.key)
        return held is not None and header_id.order <= held.id.order

    def _take(self, label: str, held: _Held, found: SnapshotId, value: bytes) -> bool:
        before = held.bytes if label in self._held else 0
        after = _Held(held.good, (found, value))
        if self.held_bytes - before + after.bytes > self.max_total_bytes or (not before and len(self) >= KEYS_MAX):
            self._skip(f"the snapshot {found}", self._too_much(), b"")
            return False
        self._held[label] = after
        self.held_bytes += after.bytes - before
        return True

    def _forget(self, label: str) -> bool:
        held = self._held.pop(label, None)
        if held is not None:
            self.held_bytes -= held.bytes
        return held is not None

    def _skip(self, what: str, error: SfdError, value: bytes = b"") -> None:
        self.skipped += 1
        self.error = type(error)(f"{what}: {error}")
        self.sample = value[:_SAMPLE_BYTES]

    def _too_much(self) -> RefusedStateError:
        return RefusedStateError(
            f"the snapshots of the topic take more than {self.max_total_bytes:,} bytes of memory together, or have "
            f"more than {KEYS_MAX:,} keys; choose one group by group=, or raise max_total_bytes"
        )

    @property
    def ids(self) -> Mapping[str, SnapshotId]:
        return {key: held.id for key, held in self._held.items()}

    def __len__(self) -> int:
        return len(self._held)

    def all(
        self, fetch: Callable[[Reference], Snapshot] | None = None, *, final: bool = True
    ) -> list[Snapshot | Reference]:
        """All decoded snapshots, in the order of groups, topics and partitions. `fetch` resolves a reference.

        An invalid message is skipped. So is a reference to a missing object if `final`; else ObjectMissingError is
        raised, because a newer message may follow. Raises the last error if no valid message is left.
        """
        found, missing = [], None
        for label in sorted(self._held, key=lambda key: _place(self._held[key].id)):
            try:
                self._decode(label, fetch)
            except (FormatError, StoreRefusedError, ObjectMissingError) as error:
                if isinstance(error, ObjectMissingError) and not final:
                    missing = missing or error
                    continue
                self._fall_back(label, error)
            if (held := self._held.get(label)) is not None and held.good is not None:
                found.append(held.good)
        if missing is not None:
            raise missing
        if not found and self.error is not None:
            raise self.error
        return found

    def _decode(self, label: str, fetch: Callable[[Reference], Snapshot] | None) -> None:
        """Decodes the last message of this key."""
        held = self._held[label]
        if held.fresh is None:
            return
        found = decode_message(held.fresh[1], max_bytes=self.max_snapshot_bytes)
        if isinstance(found, Reference) and fetch is not None:
            found = fetch(found)
        after = _Held(found)
        total = self.held_bytes - held.bytes + after.bytes
        if total > self.max_total_bytes:
            raise self._too_much()
        self._held[label], self.held_bytes = after, total

    def _fall_back(self, label: str, error: SfdError) -> None:
        """Returns to the previous valid message, if there is one."""
        held = self._held[label]
        after = _Held(held.good)
        self._skip(f"the snapshot {held.id}", error)
        if after.good is None:
            self._forget(label)
        else:
            self.held_bytes += after.bytes - held.bytes
            self._held[label] = after


@dataclass
class Epochs:
    """The highest epoch of each partition of `topic` that `group` published."""

    group: str
    topic: str
    found: dict[int, int] = field(default_factory=dict)
    forged: dict[int, int] = field(default_factory=dict)
    """Epochs that no owner can exceed."""

    def note(self, key: bytes | None, value: bytes | None, headers: Iterable[tuple[str, bytes | None]] = ()) -> None:
        label = (key or b"").decode("utf-8", "replace")
        prefix = f"{self.group}/{self.topic}/"
        number = label.removeprefix(prefix)
        if not label.startswith(prefix) or not number.isdecimal() or len(number) > len(str(PARTITION_MAX)):
            return
        if value is None:
            self.found.pop(int(number), None)
            self.forged.pop(int(number), None)
            return
        with contextlib.suppress(FormatError):
            header_id = SnapshotId.from_headers(headers) or id_of(value)
            if header_id.key == label:
                of = self.found if followed(header_id.epoch) else self.forged
                of[header_id.partition] = max(header_id.epoch, of.get(header_id.partition, 0))


def _checked(label: str, value: bytes, header_id: SnapshotId | None) -> SnapshotId:
    """The id in the value. It must match the id in the headers."""
    found = id_of(value)
    if header_id is not None and header_id != found:
        raise FormatError(f"a message's headers say {header_id}, its value is {found}")
    if found.key != label:
        raise FormatError(f"it is under the key {label!r:.200}, and its value is {found}")
    return found


def _place(of: SnapshotId) -> tuple[str, str, int, str]:
    return of.group, of.topic, of.partition, of.window or ""
