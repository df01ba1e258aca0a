"""Snapshots of exactly the states that checkpoints hold: when one is due, its bytes, its message.

The bytes are made once and stored with the checkpoint; publishing them, publishing them again after a crash and reading
them by reference all use those very bytes. Nothing here blocks the loop: the sketch is made of a frozen state.
"""

from __future__ import annotations

from dataclasses import dataclass

from sfd_stream.service.tenure import Tenure
from sfd_stream.sketch.sketch import Sketch
from sfd_stream.state.manifest import Binding, SnapshotRef, StateId
from sfd_stream.state.partition import Frozen
from sfd_stream.wire.snapshot_ids import SnapshotId
from sfd_stream.wire.snapshots import Message, encode_snapshot, message_of, reference_to, snapshot_of

OWED_AFTER_S = 10.0
"""A snapshot that could not be published, or of a state that was never shown, is tried again this often."""


@dataclass(frozen=True)
class Publishing:
    """`snapshot.*` of the settings."""

    topic: str
    store_url: str
    every_s: float | None
    every_rows: int | None
    republish_s: float
    inline_max_bytes: int
    dtype: str
    column_sums: bool
    column_names: bool
    transactional: bool = False

    def is_due(self, tenure: Tenure, now_s: float) -> bool:
        """Whether the next checkpoint is to bring a snapshot, and is due for that reason alone."""
        elapsed_s = now_s - tenure.snapshot_at
        if tenure.keeper.owes_snapshot and elapsed_s >= min(self.every_s or OWED_AFTER_S, OWED_AFTER_S):
            return True
        in_time = self.every_s is not None and elapsed_s >= self.every_s
        in_rows = self.every_rows is not None and tenure.rows_unseen >= self.every_rows
        return tenure.unseen and (in_time or in_rows)

    def is_again_due(self, tenure: Tenure, now_s: float) -> bool:
        """Whether the newest snapshot is to be published once more: it heals what a zombie put on top of it.

        No zombie's transaction is seen: there, only what failed is tried again.
        """
        if self.transactional:
            manifest = tenure.keeper.manifest
            failed = manifest is not None and tenure.delivered != manifest.state_id
            return failed and now_s - tenure.republished_at >= OWED_AFTER_S
        return tenure.keeper.published is not None and now_s - tenure.republished_at >= self.republish_s

    def encode(
        self, sketch: Sketch, frozen: Frozen, state_id: StateId, binding: Binding, partitions: int, made_at_s: float
    ) -> bytes:
        """The snapshot of a frozen state and its sketch, under the id of the manifest that will hold it."""
        given = (binding.cluster_id, binding.group, binding.topic, binding.partition)
        snapshot = snapshot_of(
            sketch,
            frozen.columns,
            SnapshotId(*given, state_id.epoch, state_id.number),
            partitions=partitions,
            next_offset=frozen.next_offset,
            made_at_s=made_at_s,
            dtype=self.dtype,
            column_sums=self.column_sums,
            column_names=self.column_names,
        )
        return encode_snapshot(snapshot)

    def advice(self, message_bytes: int) -> str:
        """For a message that the broker found too large."""
        return (
            f"topic {self.topic} takes no message of {message_bytes:,} bytes: raise its max.message.bytes,"
            " or lower snapshot.inline_max_bytes"
        )

    def message(self, encoded: bytes, due: SnapshotRef) -> Message:
        """The bytes themselves, or where they rest if they are too large for a message."""
        if len(encoded) <= self.inline_max_bytes:
            return message_of(encoded)
        return reference_to(encoded, self.store_url, due.blob.key)
