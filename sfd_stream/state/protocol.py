"""Who owns a partition, and what its state is. The store alone decides; every row counts exactly once.

Each procedure is a generator of requests (`state/steps.py`). A letter at a step names the flaw in
`docs/architecture.md` that the step prevents. Two guards carry everything:

- a slot is filled by create-if-absent, and only a worker's own bytes in it prove that the worker filled it;
- a worker that filled a slot owns it only if a LIST after it is empty [A, B]. The newest manifest is never removed,
  so a zombie that fills a slot which was used and pruned long ago always finds a later one.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from sfd_stream.errors import FormatError, NewerFormatError
from sfd_stream.state.manifest import (
    Binding,
    BlobRef,
    Kind,
    Manifest,
    SnapshotRef,
    blob_key,
    blob_ref,
    decode_manifest,
    encode_manifest,
    manifest_key,
    manifests_prefix,
    numbers_of,
)
from sfd_stream.state.steps import (
    Answer,
    CreateIfAbsent,
    Fenced,
    Put,
    Refused,
    Steps,
    get,
    get_many,
    list_keys,
    until_known,
)

if TYPE_CHECKING:
    from collections.abc import Mapping


@dataclass(frozen=True)
class Created:
    manifest: Manifest


@dataclass(frozen=True)
class StillOwner:
    """When asked, one's own manifest was the newest."""


# -- CREATE ----------------------------------------------------------------------------------------------


def create(prefix: str, manifest: Manifest) -> Steps[Created | Fenced]:
    """Fills the slot with exactly this manifest, or finds that another owner has filled it.

    1. Create-if-absent. 2. After an unknown answer or "exists" (which one's own retried write may cause), the slot's
    content decides. An empty slot gets *the same bytes* again, never others. 3. No later manifest may exist.
    """
    key, data = manifest_key(prefix, manifest.number), encode_manifest(manifest)
    while (yield CreateIfAbsent(key, data)) is not Answer.DONE:
        found = yield from get(key)
        if found == data:  # whole bytes, the nonce among them [G]
            break
        if found is not Answer.MISSING:
            return Fenced(manifest.number)
    if (yield from numbers_after(prefix, manifest.number)):
        return Fenced(manifest.number)
    return Created(manifest)


def numbers_after(prefix: str, number: int) -> Steps[list[int]]:
    keys = yield from list_keys(manifests_prefix(prefix), manifest_key(prefix, number))
    return numbers_of(keys)


def listed_numbers(prefix: str) -> Steps[list[int]]:
    """The numbers of all manifests. Probing for the first free slot is wrong: retention makes slots free again."""
    return numbers_of((yield from list_keys(manifests_prefix(prefix))))


def newest_number(prefix: str) -> Steps[int | None]:
    numbers = yield from listed_numbers(prefix)
    return numbers[-1] if numbers else None


# -- Checkpoint ------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class NewState:
    """A frozen state, ready to be stored: bytes to write, or references to blobs of the last manifest."""

    next_offset: int
    leader_epoch: int | None
    sketch: bytes | BlobRef | None
    buffer: tuple[bytes | BlobRef, ...]
    counters: Mapping[str, Any]
    parameters: Mapping[str, Any]
    snapshot: bytes | None
    """The encoded snapshot if one is due, under the id `Manifest.next_state_id`."""


def checkpoint(
    prefix: str,
    own: Manifest,
    state: NewState,
    *,
    binding: Binding,
    published: SnapshotRef | None,
    nonce: str,
    written_at_s: float,
) -> Steps[Created | Fenced | Refused]:
    """Makes `state` durable as the successor of `own`: blobs, then the manifest, **the commit point**.

    Every dead letter below its offset must be acknowledged before. `binding` has the topic's id as of now: a recreated
    topic may already have more records than our position. A nonce is for one call: each call needs a new one [G]. Once
    a CREATE was sent, only this generator may continue with the slot: if it stops then, the owner must release the
    partition.
    """
    if (refused := check_binding(own.binding, binding)) is not None:
        return refused
    manifest, blobs = plan_checkpoint(prefix, own, state, published=published, nonce=nonce, written_at_s=written_at_s)
    for key, data in blobs.items():
        yield from until_known(Put(key, data))
    return (yield from create(prefix, manifest))


def plan_checkpoint(
    prefix: str,
    own: Manifest,
    state: NewState,
    *,
    published: SnapshotRef | None,
    nonce: str,
    written_at_s: float,
) -> tuple[Manifest, dict[str, bytes]]:
    """The next manifest, and the blobs to put before it, which are named for its slot [C]."""
    made = own.next_state_id
    blobs: dict[str, bytes] = {}

    def stored(kind: str, data: bytes | BlobRef) -> BlobRef:
        if isinstance(data, BlobRef):
            return data
        key = blob_key(prefix, made.number, made.epoch, nonce, kind)
        blobs[key] = data
        return blob_ref(key, data)

    manifest = Manifest(
        number=made.number,
        epoch=made.epoch,
        nonce=nonce,
        parent=own.nonce,
        kind=Kind.CHECKPOINT,
        binding=own.binding,
        next_offset=state.next_offset,
        leader_epoch=state.leader_epoch,
        sketch=None if state.sketch is None else stored("sketch", state.sketch),
        buffer=tuple(stored(f"buffer-{i}", data) for i, data in enumerate(state.buffer)),
        counters=state.counters,
        parameters=state.parameters,
        state_id=made,
        due=own.due if state.snapshot is None else SnapshotRef(made, stored("snapshot", state.snapshot)),
        published=published,
        written_at_s=written_at_s,
    )
    return manifest, blobs


# -- Publish (idempotent) --------------------------------------------------------------------------------


def check_owner(prefix: str, own: Manifest) -> Steps[StillOwner | Fenced]:
    """Called just before a snapshot of `own` is produced: is `own` still the newest, and still what we wrote?

    Uses a LIST, not a GET of slot n+1: retention may have removed that one, and a late duplicate of our own create may
    have revived n. Then slots n and n+1 look unchanged. A zombie that stops after this check can still produce [E]:
    readers drop its snapshot, and a later publication repairs the topic.
    """
    if (yield from numbers_after(prefix, own.number)):
        return Fenced(own.number)
    found = yield from get(manifest_key(prefix, own.number))
    return StillOwner() if found == encode_manifest(own) else Fenced(own.number)


# -- reading, with every check that needs no broker ----------------------------------------------------


def read_manifest(prefix: str, number: int, *, where: str) -> Steps[Manifest | Refused]:
    data = yield from get(manifest_key(prefix, number))
    repair = f'run "sfd-stream checkpoint rollback {where}"'
    if data is Answer.MISSING:
        return Refused(f"checkpoint {number} of {where} is listed but can't be read", repair)
    try:
        manifest = decode_manifest(data)
    except FormatError as error:
        return unusable(number, where, error)
    if manifest.number != number:
        return Refused(f"checkpoint {number} of {where} has the number {manifest.number} inside", repair)
    return manifest


def check_binding(stored: Binding, wanted: Binding) -> Refused | None:
    where = f"{wanted.topic}/{wanted.partition}"
    names = (stored.group, stored.topic, stored.partition)
    if names != (wanted.group, wanted.topic, wanted.partition):
        return Refused(
            f"the checkpoint found for {where} of group {wanted.group} belongs to "
            f"{stored.topic}/{stored.partition} of group {stored.group}",
            "set checkpoint.url to a place of its own",
        )
    if _differ(stored.cluster_id, wanted.cluster_id):
        return Refused(
            f"the checkpoint of {where} is of Kafka cluster {stored.cluster_id}, this is {wanted.cluster_id}",
            f'connect to that cluster, or run "sfd-stream checkpoint reset {where} --to earliest"',
        )
    if _differ(stored.topic_id, wanted.topic_id):
        return Refused(
            f"topic {wanted.topic} was deleted and created again: the checkpoint of {where} is of topic id "
            f"{stored.topic_id}, the topic's is {wanted.topic_id}",
            f'run "sfd-stream checkpoint reset {where} --to earliest"',
        )
    return None


def _differ(stored: str | None, wanted: str | None) -> bool:
    return stored is not None and wanted is not None and stored != wanted


@dataclass(frozen=True)
class StoredState:
    """A manifest, and the verified bytes of its state, in the order of `Manifest.state_references`."""

    manifest: Manifest
    blobs: tuple[bytes, ...]
    others: tuple[bytes, ...]

    @property
    def sketch(self) -> bytes | None:
        return None if self.manifest.sketch is None else self.blobs[0]

    @property
    def buffer(self) -> tuple[bytes, ...]:
        return self.blobs[len(self.blobs) - len(self.manifest.buffer) :]


def read_state(prefix: str, number: int, *, where: str) -> Steps[StoredState | Refused]:
    """Reads manifest `number` with the bytes of its state."""
    manifest = yield from read_manifest(prefix, number, where=where)
    return manifest if isinstance(manifest, Refused) else (yield from load_state(manifest, where=where))


def load_state(manifest: Manifest, others: tuple[BlobRef, ...] = (), *, where: str) -> Steps[StoredState | Refused]:
    """Reads the bytes of a manifest's state and, in the same requests, those of other blobs."""
    wanted = manifest.state_references
    datas = yield from load_blobs((*wanted, *others), number=manifest.number, where=where)
    if isinstance(datas, Refused):
        return datas
    return StoredState(manifest, datas[: len(wanted)], datas[len(wanted) :])


def load_blobs(blobs: tuple[BlobRef, ...], *, number: int, where: str) -> Steps[tuple[bytes, ...] | Refused]:
    """Reads the bytes of each blob, and verifies them against its reference."""
    datas = yield from get_many(tuple(blob.key for blob in blobs))
    good = []
    for blob, data in zip(blobs, datas, strict=True):
        if data is Answer.MISSING:
            return bad_blob(number, where, f"{blob.key} is missing")
        if not blob.matches(data):
            return bad_blob(number, where, f"{blob.key} has a bad checksum")
        good.append(data)
    return tuple(good)


def load_due(prefix: str, own: Manifest, *, where: str) -> Steps[bytes | Fenced | Refused]:
    """Reads the due snapshot of `own`. If it is missing, another owner may have continued and removed it."""
    assert own.due is not None
    found = yield from load_blobs((own.due.blob,), number=own.number, where=where)
    if not isinstance(found, Refused):
        return found[0]
    owner = yield from check_owner(prefix, own)
    return owner if isinstance(owner, Fenced) else found


def unusable(number: int, where: str, error: Exception) -> Refused:
    if isinstance(error, NewerFormatError):
        return Refused(f"checkpoint {number} of {where}: {error}", "upgrade this worker", newer=True)
    return bad_blob(number, where, str(error))


def bad_blob(number: int, where: str, what: str) -> Refused:
    return Refused(
        f"checkpoint {number} of {where} can't be restored: {what}",
        f'run "sfd-stream checkpoint rollback {where}"',
    )
