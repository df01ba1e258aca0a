"""Snapshots of exactly the states that checkpoints hold: when one is due, its bytes, its message. Pure.

The bytes are made once and stored with the checkpoint; publishing them, publishing them again after a crash and reading
them by reference all use those very bytes.
"""

from __future__ import annotations

from dataclasses import dataclass

from sfd_stream.config.model import SnapshotSettings
from sfd_stream.sketch.sketch import Sketch
from sfd_stream.state.manifest import Binding, SnapshotRef, StateId
from sfd_stream.state.partition import Frozen
from sfd_stream.wire.snapshot_ids import SnapshotId
from sfd_stream.wire.snapshots import Message, encode_snapshot, message_of, reference_to, snapshot_of
from sfd_stream.worker.partitions import OwnedPartition

PENDING_AFTER_S = 10.0
"""A snapshot that could not be published, or of a state that was never published, is due again after this time."""


@dataclass(frozen=True)
class SnapshotEncoder:
    settings: SnapshotSettings
    topic: str
    store_url: str

    def is_due(self, owned: OwnedPartition, now_s: float) -> bool:
        """Whether the next checkpoint is to bring a snapshot, and is due for that reason alone."""
        every_s, every_rows, taken = self.settings.every_s, self.settings.every_rows, owned.taken
        elapsed_s = now_s - taken.snapshot_at_s
        if owned.chain.owes_snapshot and elapsed_s >= min(every_s or PENDING_AFTER_S, PENDING_AFTER_S):
            return True
        in_time = every_s is not None and elapsed_s >= every_s
        in_rows = every_rows is not None and taken.unpublished_rows >= every_rows
        return taken.unpublished_since_s is not None and (in_time or in_rows)

    def is_again_due(self, owned: OwnedPartition, now_s: float) -> bool:
        """Whether the newest snapshot is to be published once more: that repairs what a zombie put on top of it.

        No zombie's transaction is visible: there, only what failed is tried again.
        """
        elapsed_s = now_s - owned.taken.republished_at_s
        if self.settings.delivery == "transactional":
            return owned.delivered != owned.chain.newest.state_id and elapsed_s >= PENDING_AFTER_S
        return owned.chain.published is not None and elapsed_s >= self.settings.republish_s

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
            dtype=self.settings.dtype,
            column_sums=self.settings.column_sums,
            column_names=self.settings.column_names,
        )
        return encode_snapshot(snapshot)

    def message(self, encoded: bytes, due: SnapshotRef) -> Message:
        """The bytes themselves, or a reference to them if they are too large for a message."""
        if len(encoded) <= self.settings.inline_max_bytes:
            return message_of(encoded)
        return reference_to(encoded, self.store_url, due.blob.key)

    def advice(self, message_bytes: int) -> str:
        """For a message that the broker found too large."""
        return (
            f"topic {self.topic} takes no message of {message_bytes:,} bytes: raise its max.message.bytes,"
            " or lower snapshot.inline_max_bytes"
        )
