"""A checkpoint's numbered record. Manifests never change, form one chain, and name every byte of the state.

Keys, under the partition's prefix:

    manifests/{number:020d}                        one slot for each number, written by create-if-absent
    blobs/{slot:020d}-{epoch}-{nonce}-{kind}       written for that slot, whether or not the slot was ever filled
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, fields, replace
from enum import Enum
from typing import Any, get_type_hints

from sfd_stream.errors import FormatError
from sfd_stream.wire.frames import checksum, decode_map, encode_map
from sfd_stream.wire.snapshot_ids import SnapshotId

_FRAME_KIND = "manifest"
_DIGITS = 20


class Kind(Enum):
    GENESIS = "genesis"
    CLAIM = "claim"
    CHECKPOINT = "checkpoint"
    ROLLBACK = "rollback"
    RESET = "reset"


@dataclass(frozen=True, order=True)
class StateId:
    """The id of a state: that of the manifest that created it. Ordered: a reader keeps the highest one."""

    epoch: int
    number: int


@dataclass(frozen=True)
class Binding:
    """The cluster, topic and group of a state. An id that the broker does not report is None, and is not compared."""

    cluster_id: str | None
    topic_id: str | None
    group: str
    topic: str
    partition: int

    def filled(self, known: Binding) -> Binding:
        """A copy in which the ids that are unknown here are those of `known`."""
        cluster_id = known.cluster_id if self.cluster_id is None else self.cluster_id
        return replace(self, cluster_id=cluster_id, topic_id=known.topic_id if self.topic_id is None else self.topic_id)

    def snapshot_id(self, state: StateId) -> SnapshotId:
        """The id of the state's snapshot."""
        return SnapshotId(self.cluster_id, self.group, self.topic, self.partition, state.epoch, state.number)


@dataclass(frozen=True)
class BlobRef:
    key: str
    size: int
    checksum: bytes

    def matches(self, data: bytes) -> bool:
        return len(data) == self.size and checksum(data) == self.checksum


@dataclass(frozen=True)
class SnapshotRef:
    """A snapshot's id and its encoded bytes."""

    id: StateId
    blob: BlobRef


@dataclass(frozen=True, kw_only=True)
class Manifest:
    number: int
    epoch: int
    nonce: str
    parent: str | None
    """The nonce of the manifest before this one; None for the first one, or if the one before was unreadable."""
    kind: Kind
    binding: Binding
    next_offset: int
    leader_epoch: int | None
    sketch: BlobRef | None = None
    buffer: tuple[BlobRef, ...] = ()
    counters: Mapping[str, Any]
    parameters: Mapping[str, Any]
    state_id: StateId
    due: SnapshotRef | None = None
    """The last state whose snapshot was due."""
    published: SnapshotRef | None = None
    """The last snapshot known to be acknowledged when this manifest was written."""
    written_at_s: float = field(compare=False)
    """Seconds since 1970, for people: no decision depends on it."""

    @property
    def references(self) -> tuple[BlobRef, ...]:
        return (*self.state_references, *self.snapshot_references)

    @property
    def snapshot_references(self) -> tuple[BlobRef, ...]:
        return tuple(snapshot.blob for snapshot in (self.due, self.published) if snapshot is not None)

    @property
    def state_references(self) -> tuple[BlobRef, ...]:
        return (*((self.sketch,) if self.sketch is not None else ()), *self.buffer)

    @property
    def unpublished(self) -> SnapshotRef | None:
        """The due snapshot, if it was not known to be published when this was written: a new owner publishes it."""
        return self.due if self.has_pending_snapshot(self.published) else None

    def has_pending_snapshot(self, published: SnapshotRef | None) -> bool:
        """Whether the next checkpoint must bring a snapshot: the last one failed, or there was none.

        `published`: the last one that the owner knows to be acknowledged, by itself or an earlier owner. A rollback and
        a reset have no due snapshot, so that readers soon get the state to which they returned.
        """
        return self.due is None or published is None or published.id < self.due.id

    @property
    def has_newer_state(self) -> bool:
        """Whether the state is newer than the last snapshot of it."""
        return self.due is None or self.due.id < self.state_id

    @property
    def next_state_id(self) -> StateId:
        """The id of the state that this manifest's owner would create with its next checkpoint."""
        return StateId(self.epoch, self.number + 1)


# -- keys ------------------------------------------------------------------------------------------------


def manifests_prefix(prefix: str) -> str:
    return f"{prefix}/manifests/"


def blobs_prefix(prefix: str) -> str:
    return f"{prefix}/blobs/"


def manifest_key(prefix: str, number: int) -> str:
    return f"{manifests_prefix(prefix)}{number:0{_DIGITS}d}"


def blob_key(prefix: str, slot: int, epoch: int, nonce: str, kind: str) -> str:
    return f"{blobs_prefix(prefix)}{slot:0{_DIGITS}d}-{epoch}-{nonce}-{kind}"


def numbers_of(keys: Iterable[str]) -> list[int]:
    """The numbers of the manifests among keys. Other files are ignored."""
    names = (key.rpartition("/")[2] for key in keys)
    return sorted(int(name) for name in names if len(name) == _DIGITS and name.isascii() and name.isdigit())


@dataclass(frozen=True)
class BlobName:
    slot: int
    kind: str


def blob_name_of(key: str) -> BlobName | None:
    """The parts of a blob's key; None for another file, which is not touched."""
    match key.rpartition("/")[2].split("-", 3):
        case [slot, epoch, _, kind] if len(slot) == _DIGITS and slot.isdigit() and epoch.isdigit():
            return BlobName(int(slot), kind)
    return None


def blob_ref(key: str, data: bytes) -> BlobRef:
    return BlobRef(key, len(data), checksum(data))


# -- bytes -----------------------------------------------------------------------------------------------


def encode_manifest(manifest: Manifest) -> bytes:
    _check_offset(manifest)
    values = {each.name: getattr(manifest, each.name) for each in fields(Manifest)}
    return encode_map(_FRAME_KIND, {name: _out(name, value) for name, value in values.items()})


def _out(name: str, value: Any) -> Any:
    if name in _NESTED:
        return _NESTED[name][0](value)
    return dict(value) if isinstance(value, Mapping) else value


def decode_manifest(data: bytes) -> Manifest:
    found = decode_map(data, kind=_FRAME_KIND)
    try:
        manifest = Manifest(**(found | {name: read(found[name]) for name, (_, read) in _NESTED.items()}))
    except (KeyError, TypeError, ValueError) as error:
        raise FormatError(f"a manifest lacks or misstates a field: {error!r}") from error
    for name, wanted in _PLAIN.items():
        if not isinstance(getattr(manifest, name), wanted):
            raise FormatError(f"a manifest has {name} {getattr(manifest, name)!r:.100}")
    _check_offset(manifest)
    return manifest


def _check_offset(manifest: Manifest) -> None:
    """Kafka's clients use negative numbers, such as -1001, for offsets that they do not know."""
    if manifest.next_offset < 0:
        raise FormatError(f"a manifest has next_offset {manifest.next_offset}, which is no offset")


def _blob_out(blob: BlobRef | None) -> list[Any] | None:
    return None if blob is None else [blob.key, blob.size, blob.checksum]


def _blob_in(value: Any) -> BlobRef | None:
    return None if value is None else _required_blob(value)


def _required_blob(value: Any) -> BlobRef:
    match value:
        case [str(key), int(size), bytes(digest)]:
            return BlobRef(key, size, digest)
    raise ValueError(f"blob reference {value!r:.100}")


def _snapshot_out(snapshot: SnapshotRef | None) -> list[Any] | None:
    return None if snapshot is None else [snapshot.id.epoch, snapshot.id.number, _blob_out(snapshot.blob)]


def _snapshot_in(value: Any) -> SnapshotRef | None:
    match value:
        case None:
            return None
        case [int(epoch), int(number), blob]:
            return SnapshotRef(StateId(epoch, number), _required_blob(blob))
    raise ValueError(f"snapshot reference {value!r:.100}")


_NESTED: dict[str, tuple[Callable[[Any], Any], Callable[[Any], Any]]] = {
    "kind": (lambda kind: kind.value, Kind),
    "binding": (vars, lambda given: Binding(**given)),
    "sketch": (_blob_out, _blob_in),
    "buffer": (lambda blobs: [*map(_blob_out, blobs)], lambda given: tuple(map(_required_blob, given))),
    "state_id": (lambda state: [state.epoch, state.number], lambda given: StateId(*given)),
    "due": (_snapshot_out, _snapshot_in),
    "published": (_snapshot_out, _snapshot_in),
}
"""Fields that are values of our own: how to write and how to read each."""

_MAPS = ("counters", "parameters")
_PLAIN = dict.fromkeys(_MAPS, dict) | {
    name: kind for name, kind in get_type_hints(Manifest).items() if name not in (*_NESTED, *_MAPS)
}
"""The types of all other fields."""


# -- the chain's law -------------------------------------------------------------------------------------


def breaches(before: Manifest, after: Manifest) -> list[str]:
    """The reasons why `after` is no valid successor of `before`; none if it is one."""
    wrong = []
    if after.number != before.number + 1:
        wrong.append(f"number {after.number} after {before.number}")
    if after.parent != before.nonce:
        wrong.append("its parent is another manifest")
    wrong += _KIND_LAWS[after.kind](before, after)
    old = {blob.key for blob in before.references}
    for blob in after.references:
        name = blob_name_of(blob.key)
        if blob.key not in old and (name is None or name.slot != after.number):
            wrong.append(f"it refers to {blob.key}, neither its predecessor's nor its own")
    return wrong


def _claim_law(before: Manifest, after: Manifest) -> list[str]:
    copied = replace(
        before,
        number=after.number,
        epoch=after.epoch,
        nonce=after.nonce,
        parent=after.parent,
        kind=Kind.CLAIM,
        binding=before.binding.filled(after.binding),
    )
    right = copied == after and after.epoch > before.epoch
    return [] if right else ["a claim raises the epoch and copies all else"]


def _checkpoint_law(before: Manifest, after: Manifest) -> list[str]:
    wrong = []
    if (after.epoch, after.binding) != (before.epoch, before.binding):
        wrong.append("a checkpoint keeps the epoch and the binding")
    if after.state_id != before.next_state_id:
        wrong.append("a checkpoint's state is named by itself")
    if after.next_offset < before.next_offset:
        wrong.append("a checkpoint never goes back")
    if after.due != before.due and (after.due is None or after.due.id != after.state_id):
        wrong.append("a checkpoint's due snapshot is the last one or its own")
    if after.published not in (before.published, before.due):
        wrong.append("what is published was due before")
    return wrong


def _repair_law(before: Manifest, after: Manifest) -> list[str]:
    wrong = []
    if after.epoch <= before.epoch or after.state_id != StateId(after.epoch, after.number):
        wrong.append("a repair raises the epoch and makes a state of its own")
    if after.due is not None or after.published != before.published:
        wrong.append("a repair has no snapshot yet and keeps the published one")
    return wrong


def _genesis_law(_: Manifest, __: Manifest) -> list[str]:
    return ["a genesis follows nothing"]


_KIND_LAWS = {
    Kind.GENESIS: _genesis_law,
    Kind.CLAIM: _claim_law,
    Kind.CHECKPOINT: _checkpoint_law,
    Kind.ROLLBACK: _repair_law,
    Kind.RESET: _repair_law,
}
