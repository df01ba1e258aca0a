"""`sfd-stream merge`: merges the sketches of one or more snapshot topics and publishes the result as a snapshot.

Every merge starts from the parts, so that a replaced snapshot has no effect on it. It lists its input partitions, so
that merges of merges know which are missing. It has no store: on start it reads its own newest message and continues
with the next epoch. Run one replica: a second one fences the first, which stops.

Merging and fetching referenced snapshots may take minutes, so both run in the background while the loop turns. All
other waits have limits below that of a liveness probe.
"""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import Executor, wait
from dataclasses import KW_ONLY, dataclass, field
from functools import partial
from typing import Any

from sfd_stream.errors import (
    BrokerRefusedError,
    BrokerUnavailableError,
    FencedError,
    FormatError,
    NoSnapshotError,
    ObjectMissingError,
    RefusedStateError,
    SfdError,
    StoreUnavailableError,
)
from sfd_stream.kafka.errors import CHECK_IT
from sfd_stream.kafka.producer import TOO_LARGE, Sink
from sfd_stream.observe.merge_status import MergeWatch
from sfd_stream.reader.merged import MergedSketch, merge, snapshot_of_merge
from sfd_stream.reader.reader import SnapshotReader
from sfd_stream.reader.report import ratio_of
from sfd_stream.threads import Computing
from sfd_stream.wire.snapshot_ids import EPOCH_MAX, SnapshotId
from sfd_stream.wire.snapshots import Message, Snapshot, encode_snapshot, message_of

FLUSH_S = 30.0
SLICE_S = 0.5
REJOIN_S = 30.0
"""After its start a merger waits this long for the partitions of the last merge. The object of the newest snapshot that
it has read may be deleted already, and the next snapshot not read yet."""


@dataclass(frozen=True)
class MergePlan:
    group: str
    topic: str
    every_s: float
    republish_s: float
    ell: int | None = None
    give_up_s: float = 600.0
    """How long a broker may be unavailable at the start. After the start the service waits without a limit."""


@dataclass(eq=False)
class Merger:
    """Call `start` once, then `turn` repeatedly. `run` does both until `stop`. `own` reads its own publications."""

    plan: MergePlan
    inputs: Sequence[SnapshotReader]
    own: SnapshotReader
    sink: Sink
    background: Executor
    watch: MergeWatch
    _: KW_ONLY
    clock: Callable[[], float]
    wall_clock: Callable[[], float]
    log: Any
    prepare: Callable[[], None] = lambda: None
    computing: Computing = field(default_factory=Computing)

    def __post_init__(self) -> None:
        self.last: SnapshotId | None = None
        self.published = 0
        self._epoch = 0
        self._number = 0
        self._newest: Message | None = None
        self._changed = True
        self._published_at = 0.0
        self._before: SnapshotId | None = None  # the newest merge at the start
        self._awaited: frozenset[str] | None = None
        self._awaited_until_s = 0.0
        self._stopped = threading.Event()

    def run(self) -> None:
        try:
            self.start()
            while not self._stopped.is_set():
                self.turn()
        finally:
            self.computing.close()

    def stop(self) -> None:
        self._stopped.set()

    def start(self) -> None:
        """Takes the epoch after that of its own newest message, and reads all parts."""
        self._patiently(self.prepare)
        self._patiently(lambda: self.own.refresh(self._going))
        newest = self._own_newest()
        if newest is not None and newest.epoch >= EPOCH_MAX:
            raise RefusedStateError(
                f"topic {self.plan.topic} has a forged snapshot under the key {newest.key} whose epoch is the "
                "highest possible: publish a null value under that key"
            )
        self._epoch = 1 if newest is None else newest.epoch + 1
        self.last = self._before = newest
        for reader in self.inputs:
            if self._going():
                self._patiently(partial(reader.refresh, self._going))
        self._awaited_until_s = self.clock() + REJOIN_S
        self.watch.started()
        self.log.info("merge started", topic=self.plan.topic, epoch=self._epoch)

    def _patiently(self, step: Callable[[], Any]) -> None:
        """Repeats the step while no broker answers, because it may be restarting. Returns early after `stop`."""
        deadline = self.clock() + self.plan.give_up_s
        while self._going():
            try:
                step()
            except BrokerUnavailableError:
                if self.clock() >= deadline:
                    raise
            else:
                return

    def _going(self) -> bool:
        """Called while a long topic is read: reports that the service is alive, and returns False after `stop`."""
        self.watch.alive()
        return not self._stopped.is_set()

    def turn(self) -> None:
        self.publish_due()
        self._listen()

    def publish_due(self) -> None:
        """Publishes a new merge if a part has changed, or the same merge again if that is due."""
        self._check_alone()
        if self._changed:
            merged = self._merged()
            if merged is not None:
                self._publish_new(merged)
        elif self._newest is not None and self.clock() - self._published_at >= self.plan.republish_s:
            self._publish(self._newest)

    def publish_once(self) -> None:
        """Publishes a merge of the parts and waits until it is acknowledged. Raises where `turn` would retry."""
        self._check_alone()
        if not self._publish_new(self._merge()):
            raise BrokerRefusedError(
                f"topic {self.plan.topic} did not acknowledge the merged snapshot within {FLUSH_S:g} s; {CHECK_IT}"
            )

    def _listen(self) -> None:
        """Reads the parts for `every_s`, or until stopped."""
        slices = max(round(self.plan.every_s / SLICE_S), 1)
        for _ in range(slices):
            if self._stopped.is_set():
                return
            self.watch.alive()
            for reader in self.inputs:
                self._changed |= reader.wait(self.plan.every_s / slices / len(self.inputs))
        self.own.wait(0.01)

    def _publish_new(self, merged: MergedSketch) -> bool:
        """Publishes the merge with the next number. Returns whether the broker has acknowledged it."""
        self._number += 1
        snapshot_id = SnapshotId(self.own.cluster_id, self.plan.group, self.plan.topic, 0, self._epoch, self._number)
        encoded = encode_snapshot(snapshot_of_merge(merged, snapshot_id, self.wall_clock()))
        self._newest = message_of(encoded)
        self._changed = not self._publish(self._newest)
        if not self._changed:
            self.last = snapshot_id
            self.published += 1
            self.watch.published(merged, len(encoded))
            self._log_published(merged, len(encoded))
        return not self._changed

    def _merged(self) -> MergedSketch | None:
        """The merge of all parts. None if there are no parts, if a snapshot can't be fetched, and after `stop`."""
        began, job = self.clock(), self.background.submit(lambda: self._merge(self._awaited_parts()))
        while not wait([job], SLICE_S).done:
            self.watch.alive()
            if self._stopped.is_set():
                return None
        try:
            merged: MergedSketch = job.result()
        except NoSnapshotError:
            return None
        except (ObjectMissingError, StoreUnavailableError) as error:
            self.watch.failed("fetch")
            self.log.warning("snapshot fetch failed, will retry", error=str(error))
            return None
        self.watch.merged(self.clock() - began)
        return merged

    def _merge(self, awaited: frozenset[str] = frozenset()) -> MergedSketch:
        """The merge of all parts. ObjectMissingError if an awaited one is not among them."""
        with self.computing():  # except for the requests of the readers
            parts = [snapshot for reader in self.inputs for snapshot in _held(reader)]
            if not parts:
                names = ", ".join(reader.topic for reader in self.inputs)
                raise NoSnapshotError(f"there is nothing to merge: no snapshot in {names}")
            if gone := awaited and awaited - {part.id.key for snapshot in parts for part in snapshot.parts}:
                names = ", ".join(sorted(gone)[:10])
                raise ObjectMissingError(f"partitions of the last merge have no snapshot that can be read yet: {names}")
            limit = min(reader.max_total_bytes for reader in self.inputs)
            return merge(parts, self.wall_clock(), ell=self.plan.ell, max_bytes=limit)

    def _awaited_parts(self) -> frozenset[str]:
        """The partitions of the newest merge at the start; none after REJOIN_S."""
        if self._before is None or self.clock() >= self._awaited_until_s:
            return frozenset()
        if self._awaited is None:
            self._awaited = frozenset()
            with contextlib.suppress(SfdError):  # others may have written to the topic
                mine = [snapshot for snapshot in self.own.held() if snapshot.id == self._before]
                self._awaited = frozenset(part.id.key for snapshot in mine for part in snapshot.parts)
        return self._awaited

    def _publish(self, message: Message) -> bool:
        """Returns whether the broker has acknowledged the message. If not, it is published again later."""
        ticket = self.sink.publish(self.plan.topic, message.key, message.value, message.headers)
        self.sink.flush(FLUSH_S)
        if ticket is not None and ticket.error == TOO_LARGE:
            raise BrokerRefusedError(
                f"the merged snapshot of {len(message.value):,} bytes is larger than topic {self.plan.topic} takes: "
                "raise kafka.message.max.bytes and the topic's max.message.bytes, or lower merge.ell"
            )
        if ticket is None or not ticket.delivered:
            self.watch.failed("publish")
            self.log.warning("merged snapshot publish failed, will retry", why=repr(ticket))
            return False
        self.watch.acknowledged()
        self._published_at = self.clock()
        return True

    def _check_alone(self) -> None:
        newest = self._own_newest()
        if newest is not None and newest.order > (self._epoch, self._number):
            raise FencedError(
                f"another merger publishes {newest} to {self.plan.topic}, newer than ours of epoch {self._epoch}: "
                "run one replica, or give the other one a group.id and a merge.topic of its own"
            )

    def _own_newest(self) -> SnapshotId | None:
        key = SnapshotId(None, self.plan.group, self.plan.topic, 0, 0, 0).key
        return self.own.ids.get(key)

    def _log_published(self, merged: MergedSketch, size: int) -> None:
        write = self.log.info if merged.complete else self.log.warning
        write(
            "published" if merged.complete else "published, but incomplete",
            number=self._number,
            partitions=len(merged.parts),
            missing=list(merged.missing[:10]),
            rows=merged.rows,
            delta_ratio=round(ratio_of(merged), 6),
            payload_bytes=size,
        )


def _held(reader: SnapshotReader) -> list[Snapshot]:
    """The snapshots of one topic; empty if none of them is usable. The reader logs the reason."""
    try:
        return reader.held()
    except (NoSnapshotError, FormatError):
        return []
