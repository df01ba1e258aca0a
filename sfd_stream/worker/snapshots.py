"""Snapshots of exactly the states that checkpoints hold: when one is due, its bytes, its message. Pure.

The bytes are encoded once and stored with the checkpoint. The first publication, a publication after a crash and a
reference all use these same bytes.
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
"""After this time a checkpoint brings the snapshot that is missing or failed, or a failed transaction is repeated."""


@dataclass(frozen=True)
class SnapshotEncoder:
    settings: SnapshotSettings
    topic: str
    store_url: str

    def is_due(self, owned: OwnedPartition, now_s: float) -> bool:
        """Whether a snapshot is due. If so, a checkpoint with a snapshot is due too."""
        every_s, every_rows, taken = self.settings.every_s, self.settings.every_rows, owned.taken
        elapsed_s = now_s - taken.snapshot_at_s
        if owned.chain.owes_snapshot and elapsed_s >= min(every_s or PENDING_AFTER_S, PENDING_AFTER_S):
            return True
        in_time = every_s is not None and elapsed_s >= every_s
        in_rows = every_rows is not None and taken.unpublished_rows >= every_rows
        return taken.unpublished_since_s is not None and (in_time or in_rows)

    def is_again_due(self, owned: OwnedPartition, now_s: float) -> bool:
        """Whether the newest snapshot is to be published once more: a zombie may have published an older one after it.

        In transactional delivery a zombie's snapshot never becomes visible: only a failed delivery is repeated.
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
        """A message with the bytes, or with a reference to them if they are larger than `snapshot.inline_max_bytes`."""
        if len(encoded) <= self.settings.inline_max_bytes:
            return message_of(encoded)
        return reference_to(encoded, self.store_url, due.blob.key)

    def advice(self, message_bytes: int) -> str:
        """What to do about a message that the broker refused as too large."""
        return (
            f"topic {self.topic} takes no message of {message_bytes:,} bytes: raise its max.message.bytes,"
            " or lower snapshot.inline_max_bytes"
        )
