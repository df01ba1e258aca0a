"""A store, a log, a compacted output topic and a broker's offsets, with an oracle that watches every effect.

Exact: the model's "sketch" is the list of the offsets that were applied, so a row lost or counted twice is
seen at once. `World.effect` is the one place where anything happens; it raises `Violation` at the first thing
that must not. Writes may happen late, twice, or without their answer: `World.late` holds those on their way.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any

import numpy as np

from sfd_stream.errors import FormatError
from sfd_stream.state import manifest as m
from sfd_stream.state.manifest import Binding, BlobRef, Kind, Manifest, SnapshotRef, StateId
from sfd_stream.state.steps import (
    Answer,
    AskCommitted,
    AskLog,
    AskOutputEpoch,
    CreateIfAbsent,
    Delete,
    Get,
    GetMany,
    List,
    LogFacts,
    Put,
)
from sfd_stream.wire.frames import decode_arrays, decode_map, encode_arrays, encode_map

PREFIX = "group/rows/0"
BINDING = Binding("cluster", "topic-id", "group", "rows", 0)
FOREIGN = Binding("cluster", "another-topic-id", "group", "rows", 0)
PARAMETERS = {"ell": 4, "d": 10, "columns": "fixed", "hash_seed": 0}


class Violation(AssertionError):  # noqa: N818 - a law was broken
    pass


def law(holds: object, what: str) -> None:
    if not holds:
        raise Violation(what)


@dataclass(frozen=True)
class Produce:
    snapshot: SnapshotRef
    data: bytes


@dataclass(frozen=True)
class Commit:
    offset: int


@dataclass(frozen=True)
class Poll:
    """Where the log ends now."""


@dataclass(frozen=True)
class Choose:
    """A choice that the program leaves to the schedule: an int below `options`."""

    options: int


WRITES = (CreateIfAbsent, Put, Delete, Produce, Commit)


def encode_offsets(offsets: tuple[int, ...]) -> bytes:
    return encode_arrays("sketch", {}, {"offsets": np.array(offsets, dtype=np.int64)})


@lru_cache(maxsize=4096)
def decode_offsets(data: bytes) -> tuple[int, ...]:
    return tuple(decode_arrays(data).arrays["offsets"].tolist())


@lru_cache(maxsize=4096)
def decode_snapshot(data: bytes) -> tuple[StateId, tuple[int, ...]]:
    fields = decode_map(data, kind="snapshot")
    return StateId(*fields["id"]), tuple(fields["offsets"])


def encode_snapshot(state_id: StateId, offsets: tuple[int, ...]) -> bytes:
    return encode_map("snapshot", {"id": [state_id.epoch, state_id.number], "offsets": list(offsets)})


@lru_cache(maxsize=4096)
def read(data: bytes) -> Manifest | None:
    try:
        return m.decode_manifest(data)
    except FormatError:
        return None


@dataclass
class World:
    keep: int = 2
    old_epoch: int | None = None
    """What an earlier life of this partition, whose store was wiped, left on the output topic."""
    objects: dict[str, bytes] = field(default_factory=dict)
    late: list[Any] = field(default_factory=list)
    log_end: int = 0
    committed: int | None = None
    topic: list[StateId] = field(default_factory=list)
    chain: list[Manifest] = field(default_factory=list)
    """Every manifest that ever rightly extended the chain; pruning does not shorten it."""
    snapshots: dict[StateId, tuple[BlobRef, bytes]] = field(default_factory=dict)
    backup: tuple[dict[str, bytes], list[Manifest]] | None = None
    restored: bool = False
    """Whether the store was ever put back to a backup, while nobody worked on it."""

    def __post_init__(self) -> None:
        if self.old_epoch is not None:
            self.topic.append(StateId(self.old_epoch, 9))

    @property
    def newest(self) -> int:
        return len(self.chain)

    # -- effects ---------------------------------------------------------------------------------------

    def effect(self, request: Any) -> Any:  # noqa: PLR0911, PLR0912 - one branch a request
        match request:
            case List(prefix, after):
                keys = [key for key in self.objects if key.startswith(prefix)]
                return sorted(key for key in keys if after is None or key > after)
            case Get(key):
                return self.objects.get(key, Answer.MISSING)
            case GetMany(keys):
                return [self.objects.get(key, Answer.MISSING) for key in keys]
            case AskLog():
                return LogFacts(0, self.log_end)
            case AskCommitted():
                return self.committed
            case AskOutputEpoch():
                return max((record.epoch for record in self.topic), default=None)
            case Poll():
                return self.log_end
            case CreateIfAbsent(key, data):
                if key in self.objects:
                    return Answer.EXISTS
                self._created(key, data)
            case Put(key, data):
                law(self.objects.get(key, data) == data, f"{key} changes its content")
                self.objects[key] = data
            case Delete(key):
                self._deleted(key)
            case Produce(snapshot, data):
                self._produced(snapshot, data)
            case Commit(offset):
                law(offset <= max(x.next_offset for x in self.chain), "forgotten before durable")
                self.committed = offset
            case _:
                raise TypeError(request)
        return Answer.DONE

    # -- the oracle ------------------------------------------------------------------------------------

    def _created(self, key: str, data: bytes) -> None:
        self.objects[key] = data
        manifest = read(data)
        law(manifest is not None and key == m.manifest_key(PREFIX, manifest.number), "not a manifest")
        assert manifest is not None
        law(manifest.number <= self.newest + 1, "a gap in the chain")
        if manifest.number == self.newest + 1:
            self._extended(manifest)

    def _extended(self, manifest: Manifest) -> None:
        law(manifest.binding == BINDING, "a foreign configuration claimed the partition")
        if self.chain:
            law(not (bad := m.breaches(self.chain[-1], manifest)), f"{manifest.number}: {bad}")
            if manifest.kind is Kind.CLAIM:
                shown = max((record.epoch for record in self.topic), default=0)
                law(manifest.epoch > shown, f"readers drop what the owner of epoch {manifest.epoch} publishes")
        else:
            law(manifest.kind is Kind.GENESIS, "the first manifest is no genesis")
            law(manifest.state_id > max(self.topic, default=StateId(0, 0)), "readers drop the new life")
        for blob in manifest.references:
            law(blob.key in self.objects, f"{manifest.number} refers to {blob.key}, which is gone")
            law(blob.matches(self.objects[blob.key]), f"{blob.key} is not what {manifest.number} means")
        rows = [x for blob in manifest.state_references for x in decode_offsets(self.objects[blob.key])]
        law(
            rows == list(range(manifest.next_offset)),
            f"{manifest.number} does not count every row once: {rows}",
        )
        self.chain.append(manifest)
        if manifest.due is not None and manifest.due.id == manifest.state_id and manifest.kind is Kind.CHECKPOINT:
            self.snapshots[manifest.due.id] = (manifest.due.blob, self.objects[manifest.due.blob.key])

    def _deleted(self, key: str) -> None:
        self.objects.pop(key, None)
        if key.startswith(m.manifests_prefix(PREFIX)):
            (number,) = m.numbers_of([key])
            law(number < self.floor(), f"{key} belonged to one of the last {self.keep} states")
            return
        for manifest in self.chain[self.floor() - 1 :]:
            law(all(blob.key != key for blob in manifest.references), f"{manifest.number} needs {key}")
        shown = max(self.topic, default=None)
        if shown in self.snapshots:
            law(self.snapshots[shown][0].key != key, f"the newest published snapshot lost {key}")

    def floor(self) -> int:
        """The manifest that made the oldest of the last `keep` distinct states (1 if there are fewer)."""
        number = self.newest
        for _ in range(self.keep):
            if number < 1:
                return 1
            made = self.chain[number - 1].state_id.number
            number = made - 1
        return made

    def _produced(self, snapshot: SnapshotRef, data: bytes) -> None:
        law(snapshot.id in self.snapshots, f"{snapshot.id} is visible and not durable, or named twice")
        law(self.snapshots[snapshot.id] == (snapshot.blob, data), f"{snapshot.id} has two contents")
        state_id, offsets = decode_snapshot(data)
        made = self.chain[state_id.number - 1]
        law(state_id == snapshot.id == made.state_id, f"{snapshot.id} carries the id {state_id}")
        law(offsets == tuple(range(made.next_offset)), f"{snapshot.id} is not a snapshot of its state")
        self.topic.append(snapshot.id)

    # -- backups ---------------------------------------------------------------------------------------

    def back_up(self) -> None:
        self.backup = dict(self.objects), list(self.chain)

    def restore(self) -> None:
        """The store as it was then. The log, the output topic and the broker's offsets are as they are now."""
        assert self.backup is not None
        self.objects, self.chain = dict(self.backup[0]), list(self.backup[1])
        made = {manifest.state_id for manifest in self.chain}
        self.snapshots = {state_id: found for state_id, found in self.snapshots.items() if state_id in made}
        self.late.clear()
        self.restored = True

    # -- laws asked for by programs --------------------------------------------------------------------

    def check_created(self, manifest: Manifest) -> None:
        ours = manifest.number <= self.newest and self.chain[manifest.number - 1].nonce == manifest.nonce
        law(ours, f"an owner believes in {manifest.number}, which is a fork")

    def check_fenced(self, number: int, nonce: str) -> None:
        """Only somebody else's manifest fences: in the slot that was wanted, or after it."""
        other = number <= self.newest and self.chain[number - 1].nonce != nonce
        law(other or number < self.newest, f"who wanted {number} was fenced by nobody")

    def watched(self) -> list[StateId]:
        """What a reader that watches accepts: he keeps the highest id and drops lower or equal ones."""
        accepted: list[StateId] = []
        for record in self.topic:
            if not accepted or record > accepted[-1]:
                accepted.append(record)
        return accepted
