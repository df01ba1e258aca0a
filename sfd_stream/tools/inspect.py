"""Reads what the checkpoint store holds for a partition. It needs no broker and changes nothing.

The owner may write and prune meanwhile. A fault is reported only if the faulty manifest still exists afterwards.
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, fields
from typing import Any

from sfd_stream.errors import FormatError, RefusedStateError
from sfd_stream.sketch.builder import Parameters
from sfd_stream.state.manifest import (
    BlobRef,
    Kind,
    Manifest,
    blob_name_of,
    breaches,
    manifests_prefix,
    numbers_of,
)
from sfd_stream.state.partition import PartitionState, Shape, restore
from sfd_stream.state.perform import Patience, run
from sfd_stream.state.protocol import bad_blob, load_state, newest_number, read_manifest, read_state
from sfd_stream.state.steps import Refused, Steps, list_keys
from sfd_stream.storage.contract import Store, key_part, partition_prefix
from sfd_stream.wire.columns import Columns, FixedColumns, GrowingColumns, HashedColumns


@dataclass(frozen=True)
class Place:
    """A partition's state in a store."""

    group: str
    topic: str
    partition: int

    @property
    def prefix(self) -> str:
        return partition_prefix(self.group, self.topic, self.partition)

    def __str__(self) -> str:
        return f"{self.topic}/{self.partition}"


@dataclass(frozen=True)
class Standing:
    """The numbers of all manifests of a partition, and the newest manifest or the reason why it can't be read."""

    numbers: tuple[int, ...]
    newest: Manifest | Refused | None


@dataclass(frozen=True)
class Verification:
    """The counts of what was checked, and the faults found."""

    manifests: int
    blobs: int
    stored_bytes: int
    problems: tuple[Refused, ...]


def stand(place: Place) -> Steps[Standing]:
    numbers = yield from _numbers(place)
    while numbers:
        newest = yield from read_manifest(place.prefix, numbers[-1], where=str(place))
        before, numbers = numbers, (yield from _numbers(place))
        if isinstance(newest, Manifest) or numbers[-1:] == before[-1:]:
            return Standing(tuple(before), newest)
    return Standing((), None)


def find(place: Place, number: int | None) -> Steps[Manifest | Refused]:
    """The manifest `number`, or the newest."""
    standing = yield from stand(place)
    if standing.newest is None:
        return Refused(f"there is no checkpoint of {place}", '"sfd-stream checkpoint ls" lists what exists')
    if number is None:
        return standing.newest
    if number not in standing.numbers:
        there = ", ".join(map(str, standing.numbers))
        return Refused(f"there is no checkpoint {number} of {place}", f"there are {there}")
    return (yield from read_manifest(place.prefix, number, where=str(place)))


def verify(place: Place) -> Steps[Verification]:
    """Reads all blobs: checks each checksum, that each manifest follows the previous one, and that each state loads."""
    blobs: dict[str, int] = {}
    problems: list[Refused] = []
    before: Manifest | None = None
    numbers = yield from _numbers(place)
    for number in numbers:
        found = yield from _verify_one(place, number)
        if isinstance(found, Refused):
            if number in (yield from _numbers(place)):  # its owner has not pruned it meanwhile
                problems.append(found)
            continue
        blobs.update({blob.key: blob.size for blob in found.references})
        if before is not None and before.number + 1 == number and (wrong := breaches(before, found)):
            problems.append(_no_successor(place, found, wrong))
        before = found
    return Verification(len(numbers), len(blobs), sum(blobs.values()), tuple(problems))


def _verify_one(place: Place, number: int) -> Steps[Manifest | Refused]:
    manifest = yield from read_manifest(place.prefix, number, where=str(place))
    if isinstance(manifest, Refused):
        return manifest
    stored = yield from load_state(manifest, manifest.snapshot_references, where=str(place))
    if isinstance(stored, Refused):
        return stored
    try:
        restore(stored_shape(manifest.parameters), manifest, stored.sketch, stored.buffer)
    except (FormatError, RefusedStateError, KeyError, TypeError, ValueError) as error:
        return bad_blob(number, str(place), f"it does not load ({type(error).__name__}: {error})")
    return manifest


def _no_successor(place: Place, manifest: Manifest, wrong: list[str]) -> Refused:
    return Refused(
        f"checkpoint {manifest.number} of {place} does not follow the one before: {'; '.join(wrong)}",
        f'run "sfd-stream checkpoint rollback {place}"',
    )


def stored_shape(stored: Mapping[str, Any]) -> Shape:
    """The shape that a manifest's state was made with. Today's settings may differ."""
    # Manifests of older versions, and those without sums of squares, do not have column_squares.
    given = {"column_squares": False, **stored, "seed": tuple(int(part) for part in stored["seed"])}
    parameters = Parameters(**{field.name: given[field.name] for field in fields(Parameters)})
    return Shape(_stored_columns(stored, int(stored["d"])), parameters)


def _stored_columns(stored: Mapping[str, Any], d: int) -> Columns:
    match stored["columns"]:
        case "growing":
            return GrowingColumns(d, max(d, int(stored["d_max"])))
        case "hashed":
            return HashedColumns(d, int(stored["hash_seed"]), names_max=d)
        case "fixed":
            return FixedColumns(d)
        case other:
            raise FormatError(f"columns are {other!r}")


def _numbers(place: Place) -> Steps[list[int]]:
    return numbers_of((yield from list_keys(manifests_prefix(place.prefix))))


# -- for people and programs -----------------------------------------------------------------------------


def described(manifest: Manifest) -> dict[str, Any]:
    """A manifest in plain values, with its blobs."""
    return {
        **_named(manifest, "number", "epoch"),
        "kind": manifest.kind.value,
        "state_id": [manifest.state_id.epoch, manifest.state_id.number],
        **_named(manifest.binding, "group", "topic", "partition", "cluster_id", "topic_id"),
        **_named(manifest, "next_offset", "leader_epoch", "written_at_s", "nonce", "parent"),
        "counters": dict(manifest.counters),
        "parameters": dict(manifest.parameters),
        "due": _snapshot_id(manifest.due),
        "published": _snapshot_id(manifest.published),
        "blobs": [_described_blob(blob) for blob in unique(manifest.references)],
    }


def _named(values: object, *names: str) -> dict[str, Any]:
    return {name: getattr(values, name) for name in names}


def unique(blobs: tuple[BlobRef, ...]) -> list[BlobRef]:
    return list({blob.key: blob for blob in blobs}.values())


def stored_bytes(manifest: Manifest) -> int:
    return sum(blob.size for blob in unique(manifest.references))


def rows_in(manifest: Manifest) -> int:
    return int(manifest.counters.get("rows", 0))


def state_words(manifest: Manifest) -> str:
    """What wrote the state: a checkpoint, or a claim, which copies the state of another manifest."""
    if manifest.kind is Kind.CLAIM:
        return f"claim of {manifest.state_id.number}"
    return str(manifest.kind.value)


def _snapshot_id(snapshot: Any) -> list[int] | None:
    return None if snapshot is None else [snapshot.id.epoch, snapshot.id.number]


def _described_blob(blob: BlobRef) -> dict[str, Any]:
    name = blob_name_of(blob.key)
    kind = "blob" if name is None else name.kind
    return {"kind": kind, "key": blob.key, "bytes": blob.size, "checksum": blob.checksum.hex()}


@dataclass(frozen=True)
class PartitionSummary:
    rows: int
    nnz: int
    bad: int
    tombstones: int
    next_offset: int
    squared_frobenius: float
    delta: float


@dataclass(frozen=True)
class Loaded:
    manifest: Manifest
    state: PartitionState


def load_newest(prefix: str, where: str, shape: Shape) -> Steps[Loaded | Refused | None]:
    """The newest state, or None if there is none. It is read again if its owner has pruned it meanwhile."""
    number = yield from newest_number(prefix)
    while number is not None:
        stored = yield from read_state(prefix, number, where=where)
        if not isinstance(stored, Refused):
            state, _ = restore(shape, stored.manifest, stored.sketch, stored.buffer)
            return Loaded(stored.manifest, state)
        newest = yield from newest_number(prefix)
        if newest == number:
            return stored
        number = newest
    return None


def patient(give_up_s: float) -> Patience:
    """Waits for an unavailable store as a command does, for up to `give_up_s`."""
    return Patience(give_up_s, time.monotonic, time.sleep, lambda: random.uniform(0.5, 1))


def places_in(store: Store, group: str, topic: str) -> list[Place]:
    """All partitions of the group and topic that have objects in the store."""
    prefix = f"{key_part(group)}/{key_part(topic)}/"
    parts = {key.removeprefix(prefix).partition("/")[0] for key in store.list(prefix)}
    return [Place(group, topic, partition) for partition in sorted(int(part) for part in parts if part.isdigit())]


def newest_manifests(store: Store, group: str, topic: str, give_up_s: float) -> dict[Place, Manifest]:
    """The newest manifest of each partition, except for partitions whose newest manifest can't be read."""
    found = {place: run(stand(place), store, patient(give_up_s)).newest for place in places_in(store, group, topic)}
    return {place: newest for place, newest in found.items() if isinstance(newest, Manifest)}


def summarise(store: Store, group: str, topic: str, shape: Callable[[int], Shape]) -> dict[int, PartitionSummary]:
    """By partition that has a state."""
    found = {}
    for place in places_in(store, group, topic):
        loaded = run(load_newest(place.prefix, str(place), shape(place.partition)), store, patient(60.0))
        if isinstance(loaded, Refused):
            raise loaded.error()
        if loaded is not None:
            found[place.partition] = _summary(loaded.state)
    return found


def _summary(state: PartitionState) -> PartitionSummary:
    """Delta is that of the sketch computed now, with the rows in the buffer."""
    sketch = state.sketch()
    return PartitionSummary(
        sketch.rows, sketch.nnz, state.bad, state.tombstones, state.next_offset, sketch.squared_frobenius, sketch.delta
    )


def as_report(found: dict[int, PartitionSummary], rows_per_s: float) -> dict[str, Any]:
    """The summary as one JSON object."""
    partitions = {str(p): asdict(summary) for p, summary in sorted(found.items())}
    names = [name for name in PartitionSummary.__dataclass_fields__ if name != "next_offset"]
    total: dict[str, Any] = {name: sum(part[name] for part in partitions.values()) for name in names}
    return {"partitions": partitions, "total": {**total, "rows_per_s": rows_per_s}}
