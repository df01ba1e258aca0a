"""Pinned bases: merged sketches that stay as they are, in the checkpoint store under `bases/`.

Scores by a pinned basis can be compared over weeks, and drift has a fixed reference. A pinned basis is the merged
snapshot itself, stored under its id: pinning it again changes nothing.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass

from sfd_stream.errors import NoSnapshotError, ObjectMissingError, RefusedStateError
from sfd_stream.reader.merged import MergedSketch, merge, snapshot_of_merge
from sfd_stream.score.bases import ScoringBasis, basis_of, check_meaning, id_of
from sfd_stream.storage.contract import Store, key_part
from sfd_stream.wire.columns import Columns
from sfd_stream.wire.snapshot_ids import SnapshotId
from sfd_stream.wire.snapshots import Snapshot, decode_snapshot, encode_snapshot


@dataclass(frozen=True, eq=False)
class Pinned:
    id: str
    at_s: float
    merged: MergedSketch


@dataclass(frozen=True)
class PinnedBases:
    """The pinned bases of one group's sketches of one topic."""

    store: Store
    group: str
    topic: str
    max_bytes: int

    @property
    def _folder(self) -> str:
        return f"bases/{key_part(self.group)}/{key_part(self.topic)}"

    def pin(self, merged: MergedSketch, now_s: float) -> str:
        """Pins it and returns its id. If it is pinned already, it is not changed."""
        basis_id = id_of(merged)
        if basis_id not in self.ids():
            self.store.put(f"{self._folder}/{basis_id}", encode_snapshot(self._snapshot_of(merged, now_s)))
        return basis_id

    def ids(self) -> list[str]:
        return [key.rpartition("/")[2] for key in self.store.list(self._folder)]

    def all(self) -> list[Pinned]:
        """The newest first."""
        return sorted((self.load(basis_id) for basis_id in self.ids()), key=lambda pinned: -pinned.at_s)

    def load(self, basis_id: str) -> Pinned:
        """The basis with this id. NoSnapshotError if none has it, FormatError if it is damaged."""
        try:
            data = self.store.get(f"{self._folder}/{key_part(basis_id)}", max_bytes=self.max_bytes)
        except ObjectMissingError:
            raise NoSnapshotError(
                f'no basis {basis_id} is pinned in {self.store.url}; "sfd-stream basis list" names those that are'
            ) from None
        snapshot = decode_snapshot(data, max_bytes=self.max_bytes)
        return Pinned(basis_id, snapshot.made_at_s, merge([snapshot], snapshot.made_at_s))

    def newest(self) -> Pinned:
        found = self.all()
        if not found:
            raise NoSnapshotError(f'no basis is pinned in {self.store.url}; pin one by "sfd-stream basis pin"')
        return found[0]

    def _snapshot_of(self, merged: MergedSketch, now_s: float) -> Snapshot:
        own = SnapshotId(merged.parts[0].id.cluster, self.group, self.topic, 0, 1, 1)
        return snapshot_of_merge(merged, own, now_s)


@dataclass(eq=False)
class PinnedBasis:
    """Reads one pinned basis, once: the one with this id, or the one that was pinned last."""

    bases: PinnedBases
    id: str | None
    columns: Columns
    k: int | None
    centred: bool
    computing: Callable[[], AbstractContextManager[None]]
    _done: bool = False

    def read(self) -> ScoringBasis | None:
        """The basis; None once it was read. NoSnapshotError while it does not exist, RefusedStateError if it has other
        columns or too few directions.
        """
        if self._done:
            return None
        found = self.bases.newest() if self.id is None else self.bases.load(self.id)
        with self.computing():
            check_meaning(found.merged, self.columns, f"of the pinned basis {found.id}")
            try:
                basis = basis_of(found.merged, self.bases.topic, self.k, centred=self.centred, pinned=True)
            except ValueError as error:
                raise RefusedStateError(f"the pinned basis {found.id} can't score rows: {error}") from None
        self._done = True
        return basis
