"""`sfd-stream merge`: keeps the merged sketch of one or more snapshot topics and publishes it, in snapshot form.

Every merge starts from the parts, so that a snapshot that was replaced is really gone from it, and names the input
partitions that it holds, so that merges of merges can still tell what is missing. It has no store: on start it reads
its own newest message and goes on with the next epoch. One replica; a second one fences the first, which stops.

Merging, and fetching what snapshots refer to, may take minutes: that is done beside, and the loop goes on turning. All
else that waits has a limit of its own, below what a liveness probe allows.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from concurrent.futures import Executor, wait
from dataclasses import dataclass
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
    StoreUnavailableError,
)
from sfd_stream.kafka.errors import CHECK_IT
from sfd_stream.kafka.producer import TOO_LARGE, Sink
from sfd_stream.observe.merge_status import MergeWatch
from sfd_stream.reader.merged import MergedSketch, merge, snapshot_of_merge
from sfd_stream.reader.reader import SnapshotReader
from sfd_stream.threads import Computing
from sfd_stream.wire.snapshot_ids import EPOCH_MAX, SnapshotId
from sfd_stream.wire.snapshots import Message, Snapshot, encode_snapshot, message_of

FLUSH_S = 30.0
SLICE_S = 0.5


@dataclass(frozen=True)
class MergePlan:
    group: str
    topic: str
    every_s: float
    republish_s: float
    ell: int | None = None
    give_up_s: float = 600.0
    """How long a broker may be unavailable while it starts; once it has begun it waits without a limit."""


class Merger:
    """`start` once, then `turn` again and again; `run` does both until `stop`. `own` reads what it publishes itself."""

    def __init__(
        self,
        plan: MergePlan,
        inputs: Sequence[SnapshotReader],
        own: SnapshotReader,
        sink: Sink,
        beside: Executor,
        watch: MergeWatch,
        *,
        clock: Callable[[], float],
        wall_clock: Callable[[], float],
        log: Any,
        prepare: Callable[[], None] = lambda: None,
        computing: Computing | None = None,
    ) -> None:
        self.plan = plan
        self.log = log
        self.last: SnapshotId | None = None
        self.published = 0
        self._inputs = inputs
        self._own = own
        self._sink = sink
        self._beside = beside
        self._watch = watch
        self._clock = clock
        self._wall_clock = wall_clock
        self._epoch = 0
        self._number = 0
        self._newest: Message | None = None
        self._changed = True
        self._published_at = 0.0
        self._stopped = threading.Event()
        self._computing = computing or Computing()
        self._prepare = prepare

    def run(self) -> None:
        try:
            self.start()
            while not self._stopped.is_set():
                self.turn()
        finally:
            self._computing.close()

    def stop(self) -> None:
        self._stopped.set()

    def start(self) -> None:
        """Takes the epoch after that of the newest message under its own key, and reads all parts."""
        self._patiently(self._prepare)
        self._patiently(lambda: self._own.refresh(self._going))
        newest = self._own_newest()
        if newest is not None and newest.epoch >= EPOCH_MAX:
            raise RefusedStateError(
                f"topic {self.plan.topic} has a forged snapshot under the key {newest.key} whose epoch is the "
                "highest possible: publish a null value under that key"
            )
        self._epoch = 1 if newest is None else newest.epoch + 1
        self.last = newest
        for reader in self._inputs:
            if self._going():
                self._patiently(partial(reader.refresh, self._going))
        self._watch.started()
        self.log.info("merge started", topic=self.plan.topic, epoch=self._epoch)

    def _patiently(self, step: Callable[[], Any]) -> None:
        """Repeats the step while no broker answers: it may be restarting. Returns early after `stop`."""
        deadline = self._clock() + self.plan.give_up_s
        while self._going():
            try:
                step()
            except BrokerUnavailableError:
                if self._clock() >= deadline:
                    raise
            else:
                return

    def _going(self) -> bool:
        """Reading a long topic takes its time: meanwhile it reports that it is alive, and can be stopped."""
        self._watch.alive()
        return not self._stopped.is_set()

    def turn(self) -> None:
        self.publish_due()
        self._listen()

    def publish_due(self) -> None:
        """The merge, if a part has changed; the same again, if it is time."""
        self._check_alone()
        if self._changed:
            self._publish_merge()
        elif self._newest is not None and self._clock() - self._published_at >= self.plan.republish_s:
            self._publish(self._newest)

    def publish_once(self) -> None:
        """The merge of what was read, in the topic when this returns; raises where `turn` would try again."""
        self._check_alone()
        if not self._publish_new(self._merge()):
            raise BrokerRefusedError(
                f"topic {self.plan.topic} did not acknowledge the merged snapshot within {FLUSH_S:g} s; {CHECK_IT}"
            )

    def _listen(self) -> None:
        """For `every_s`, or until stopped."""
        slices = max(round(self.plan.every_s / SLICE_S), 1)
        for _ in range(slices):
            if self._stopped.is_set():
                return
            self._watch.alive()
            for reader in self._inputs:
                self._changed |= reader.wait(self.plan.every_s / slices / len(self._inputs))
        self._own.wait(0.01)

    def _publish_merge(self) -> None:
        merged = self._merged()
        if merged is not None:
            self._publish_new(merged)

    def _publish_new(self, merged: MergedSketch) -> bool:
        """Under the next number. Returns whether the broker has acknowledged it."""
        self._number += 1
        snapshot_id = SnapshotId(self._own.cluster_id, self.plan.group, self.plan.topic, 0, self._epoch, self._number)
        encoded = encode_snapshot(snapshot_of_merge(merged, snapshot_id, self._wall_clock()))
        self._newest = message_of(encoded)
        self._changed = not self._publish(self._newest)
        if not self._changed:
            self.last = snapshot_id
            self.published += 1
            self._watch.published(merged, len(encoded))
            self._say(merged, len(encoded))
        return not self._changed

    def _merged(self) -> MergedSketch | None:
        """None while there is nothing to merge, while a snapshot can't be fetched, and after `stop`."""
        began, job = self._clock(), self._beside.submit(self._merge)
        while not wait([job], SLICE_S).done:
            self._watch.alive()
            if self._stopped.is_set():
                return None
        try:
            merged: MergedSketch = job.result()
        except NoSnapshotError:
            return None
        except (ObjectMissingError, StoreUnavailableError) as error:
            self._watch.failed("fetch")
            self.log.warning("snapshot fetch failed, will retry", error=str(error))
            return None
        self._watch.merged(self._clock() - began)
        return merged

    def _merge(self) -> MergedSketch:
        with self._computing():  # except the requests that the readers make
            parts = [snapshot for reader in self._inputs for snapshot in _held(reader)]
            if not parts:
                names = ", ".join(reader.topic for reader in self._inputs)
                raise NoSnapshotError(f"there is nothing to merge: no snapshot in {names}")
            limit = min(reader.max_total_bytes for reader in self._inputs)
            return merge(parts, self._wall_clock(), ell=self.plan.ell, max_bytes=limit)

    def _publish(self, message: Message) -> bool:
        """Returns whether the broker has acknowledged it; if not, it is published again later."""
        ticket = self._sink.publish(self.plan.topic, message.key, message.value, message.headers)
        self._sink.flush(FLUSH_S)
        if ticket is not None and ticket.error == TOO_LARGE:
            raise BrokerRefusedError(
                f"the merged snapshot of {len(message.value):,} bytes is larger than topic {self.plan.topic} takes: "
                "raise kafka.message.max.bytes and the topic's max.message.bytes, or lower merge.ell"
            )
        if ticket is None or not ticket.delivered:
            self._watch.failed("publish")
            self.log.warning("merged snapshot publish failed, will retry", why=repr(ticket))
            return False
        self._watch.acknowledged()
        self._published_at = self._clock()
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
        return self._own.ids.get(key)

    def _say(self, merged: MergedSketch, size: int) -> None:
        said = self.log.info if merged.complete else self.log.warning
        ratio = merged.delta / merged.squared_frobenius if merged.squared_frobenius else 0.0
        said(
            "published" if merged.complete else "published, but incomplete",
            number=self._number,
            partitions=len(merged.parts),
            missing=list(merged.missing[:10]),
            rows=merged.rows,
            delta_ratio=round(ratio, 6),
            payload_bytes=size,
        )


def _held(reader: SnapshotReader) -> list[Snapshot]:
    """Nothing where the topic has nothing that can be used; the reader logs why."""
    try:
        return reader.held()
    except (NoSnapshotError, FormatError):
        return []
