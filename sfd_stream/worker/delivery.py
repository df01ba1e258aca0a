"""Delivers a partition's newest manifest to the broker: publishes its snapshot and commits its offset.

    offsets only    nothing to publish; the offset is committed
    idempotent      the snapshot is published and acknowledged, then the offset is committed
    transactional   both in one transaction (transactional.py)

A delivery that fails stays pending in the manifest. This owner or the next one calls `deliver` again later.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from sfd_stream.errors import SfdError
from sfd_stream.kafka.producer import TOO_LARGE, Sink, Ticket
from sfd_stream.kafka.source import Source
from sfd_stream.observe.logs import Log
from sfd_stream.observe.worker_status import Watch
from sfd_stream.state.offset_metadata import metadata_of
from sfd_stream.worker.jobs import Job, Wait, answer, reached
from sfd_stream.worker.partitions import Commit, OwnedPartition, Partitions, Phase
from sfd_stream.worker.runtime import Runtime
from sfd_stream.worker.snapshots import SnapshotEncoder

COMMIT_AGAIN_S = 1.0
CONFIRM_EVERY_S, CONFIRM_TIMEOUT_S = 30.0, 5.0
"""How often the committed offsets are compared with ours. The coordinator lets every member of a group commit offsets
of every partition: a member that lost a partition without notice may commit an older offset after us."""


@dataclass(eq=False, kw_only=True)
class Delivery:
    """Commits offsets, and publishes snapshots if there is an encoder. Only the loop's thread calls it.

    A snapshot may be published twice, under the same id with the same bytes. A zombie that slept between its owner
    check and its produce may publish an older snapshot after a newer one. Readers that have the newer one drop it; all
    others get the newest one again with the next publication.
    """

    runtime: Runtime
    source: Source
    partitions: Partitions
    log: Log
    watch: Watch
    encoder: SnapshotEncoder | None = None  # None: nothing is published
    sink: Sink | None = None
    _again_s: float | None = None  # when commits that failed are sent again

    def deliver(self, owned: OwnedPartition, snapshot: bytes | None = None, *, again: bool = False) -> Job[None]:
        """Delivers the newest manifest. `snapshot`: the bytes of its pending snapshot, if the caller has them. `again`:
        publish the newest snapshot once more.
        """
        if again:
            snapshot = yield from owned.chain.snapshot_bytes()
        if snapshot is not None and self.encoder is not None:
            yield from self._publish(owned, self.encoder, snapshot)
        yield from self._commit(owned)

    def _publish(self, owned: OwnedPartition, encoder: SnapshotEncoder, snapshot: bytes) -> Job[None]:
        """A snapshot that the broker does not acknowledge stays pending."""
        due = owned.chain.newest.due
        assert due is not None
        yield from owned.chain.check_owner()
        began_s = self.runtime.clock()
        message = encoder.message(snapshot, due)
        yield from reached(self.runtime, "before-publish")
        ticket = yield from self._acknowledged(encoder.topic, *message)
        yield from reached(self.runtime, "after-publish")
        if ticket.delivered:
            owned.chain.acknowledge(due)
            owned.taken.end_snapshot()
            self.watch.snapshot_published(owned.number, self.runtime.clock() - began_s)
            return
        too_large = ticket.error == TOO_LARGE
        self.watch.snapshot_failed("refused" if too_large else "unavailable")
        reason = encoder.advice(len(message[1])) if too_large else ticket.error
        owned.log.warning("snapshot publish failed, will retry", reason=reason)

    def _acknowledged(self, *message: Any) -> Job[Ticket]:
        """Waits for the delivery report, which polling the sink brings."""
        assert self.sink is not None
        ticket = self.sink.publish(*message)
        while ticket is None or not ticket.done:
            yield Wait("delivery report")
            ticket = ticket or self.sink.publish(*message)  # None: the queue was full
        return ticket

    def _commit(self, owned: OwnedPartition) -> Job[None]:
        published = self.encoder is None or owned.chain.is_published
        wanted = Commit(owned.chain.newest.next_offset, metadata_of(None, published=published))
        if owned.commit is not None and owned.commit[:2] == wanted[:2]:
            return
        yield from reached(self.runtime, "before-commit")
        self._send(owned, wanted)
        yield from reached(self.runtime, "after-commit")

    def _send(self, owned: OwnedPartition, commit: Commit) -> None:
        owned.commit = commit
        self.source.commit({owned.number: commit.offset}, commit.metadata)

    def serve(self) -> None:
        """Called once a turn. Sends a failed commit again until it is acknowledged or replaced by a newer one."""
        now_s = self.runtime.clock()
        for result in self.source.commit_results():
            owned = self.partitions.get(result.partition)
            if owned is not None and owned.commit is not None and owned.commit.offset == result.offset:
                owned.commit = owned.commit._replace(acknowledged=result.error is None)
            if result.error is not None:
                self.log.debug("commit failed", partition=result.partition, error=result.error)
                self._again_s = now_s + COMMIT_AGAIN_S
        if self._again_s is not None and self._again_s <= now_s:
            self._again_s = None
            for owned in self.partitions:
                if owned.commit is not None and not owned.commit.acknowledged:
                    self._send(owned, owned.commit)

    def confirm(self) -> Job[None]:
        """In the background: where the committed offset is older than our last commit, commits ours again."""
        while True:
            yield Wait("next confirmation", for_s=CONFIRM_EVERY_S)
            ours = {owned: owned.commit for owned in self.partitions if owned.commit and owned.commit.acknowledged}
            if not ours:
                continue
            numbers = [owned.number for owned in ours]
            try:
                asking = self.runtime.io.submit(self.source.committed, numbers, CONFIRM_TIMEOUT_S)
                found = yield from answer("committed", asking)
            except (SfdError, TimeoutError):
                continue  # the next round asks again; the worker itself reports a broker that is unavailable
            for owned, commit in ours.items():
                committed = found[owned.number]
                unchanged = owned.phase is not Phase.RELEASED and owned.commit is commit
                if unchanged and committed is not None and committed.offset < commit.offset:
                    owned.log.info("committed offset went back, committing it again", committed=committed.offset)
                    self._send(owned, commit._replace(acknowledged=False))

    def close(self) -> None:
        """Nothing to close."""
