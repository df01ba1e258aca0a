"""Decodes records into rows. Bad messages go to the dead-letter topic, or stop the worker before their batch counts."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from sfd_stream.config.model import InputSettings
from sfd_stream.errors import RowDecodeError, TooManyBadMessagesError
from sfd_stream.kafka.dead_letters import BadMessageGauge, DeadLetters
from sfd_stream.kafka.records import PartitionBatch
from sfd_stream.loop.jobs import Job, Wait
from sfd_stream.observe.worker_status import IntakeWatch
from sfd_stream.wire.columns import Columns
from sfd_stream.wire.formats.records import Decoder, MsgpackDecoder
from sfd_stream.wire.rows.decode import DecodedBatch


@dataclass(eq=False)
class Intake:
    """`letters` is None if no dead-letter topic is set. Only the loop's thread calls it."""

    settings: InputSettings
    gauge: BadMessageGauge
    watch: IntakeWatch
    decoder: Decoder = field(default_factory=MsgpackDecoder)
    letters: DeadLetters | None = None

    def missing_schemas(self, batch: PartitionBatch) -> frozenset[int]:
        """Starts to look up the schemas that the batch needs and that are not known yet. Returns their ids."""
        return self.decoder.missing(batch.present()[1])

    def take(self, batch: PartitionBatch, columns: Columns) -> tuple[DecodedBatch, int]:
        """Decodes a batch. Returns its rows, and how many of its records were tombstones."""
        places, messages = batch.present()
        decoded = self.decoder.decode(messages, columns, self.settings.limits)
        self._send_bad(batch, places, decoded.bad)
        tombstones = len(batch) - len(places)
        counts = {"messages": len(batch), "rows": decoded.block.rows, "nnz": decoded.block.nnz}
        self.watch.took(batch.partition, **counts, size=batch.size_bytes, tombstones=tombstones)
        return decoded, tombstones

    def _send_bad(
        self, batch: PartitionBatch, places: Sequence[int], bad: Sequence[tuple[int, RowDecodeError]]
    ) -> None:
        """`places`: the index in the batch of each record that is no tombstone. Tombstones are neither good nor bad."""
        done, excerpts = 0, self.watch.excerpts
        for message, error in bad:
            record = batch.record(places[message])
            where = f"{self.settings.topic}/{record.partition} offset {record.offset}"
            if self.letters is None:
                raise TooManyBadMessagesError(
                    f"{where} is not rows ({error}) and dead_letters.topic is not set: set it, or fix the producer"
                )
            self.gauge.good(message - done)
            done = message + 1
            self.letters.send(record, error.reason)
            words, value = (str(error), record.value) if excerpts else (error.words, None)
            self.watch.dead_letter(record.partition, record.offset, error.reason, words, value)
            self.gauge.bad(error.reason, where)
        self.gauge.good(len(places) - done)

    def acknowledged(self, partition: int, next_offset: int) -> Job[None]:
        """Waits until the dead-letter topic has acknowledged every bad message below the offset."""
        while self.letters is not None and not self.letters.acknowledged(partition, next_offset):
            yield Wait("dead letters", failure=self.letters.failure)

    def forget(self, partition: int) -> None:
        """Called at release: the next owner reads the same records again."""
        if self.letters is not None:
            self.letters.forget(partition)
