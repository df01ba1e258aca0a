"""Once a second: the status, read from the partitions and their jobs; and log lines about what does not progress.

The ends of partitions come with their fetches; a partition that is paused or claimed is not fetched, so its end is
asked for in the background, every few seconds, and a broker that does not answer leaves the last one standing.
Where a partition that waits for room or for its state will begin is asked for once: what it has to read is lag already.
"""

from __future__ import annotations

import contextlib
from collections.abc import Collection, Mapping
from concurrent.futures import Future
from weakref import WeakKeyDictionary

from sfd_stream.errors import SfdError
from sfd_stream.kafka.source import Source
from sfd_stream.observe.facts import Around, JobSeen, Seen
from sfd_stream.observe.spectra import Shot
from sfd_stream.observe.worker_status import Watch
from sfd_stream.worker.jobs import Job, Jobs, Wait, answer
from sfd_stream.worker.partitions import OwnedPartition, Partitions, Phase
from sfd_stream.worker.runtime import Plan, Runtime
from sfd_stream.worker.sketch_thread import SketchThread

ENDS_EVERY_S, ENDS_TIMEOUT_S = 5.0, 10.0
STUCK_S = 30.0
"""A job that waits for one answer longer than this is logged, and as often."""
STUCK: Mapping[str, str] = {
    "claim": "partition claim does not progress",
    "checkpoint": "partition checkpoint does not progress",
    "publication": "partition publication does not progress",
    "retention": "partition retention does not progress",
}


class Report:
    """The loop's thread calls `update` once a turn."""

    def __init__(
        self,
        plan: Plan,
        runtime: Runtime,
        source: Source,
        partitions: Partitions,
        jobs: Jobs[OwnedPartition],
        sketch: SketchThread,
        watch: Watch,
    ) -> None:
        self._plan = plan
        self._runtime = runtime
        self._source = source
        self._partitions = partitions
        self._jobs = jobs
        self._sketch = sketch
        self._watch = watch
        self._ends: WeakKeyDictionary[OwnedPartition, int] = WeakKeyDictionary()
        self._begins_at: WeakKeyDictionary[OwnedPartition, int] = WeakKeyDictionary()
        self._silent: set[int] = set()
        self._stuck_logged_s: dict[OwnedPartition, float] = {}

    def update(self, *, stopping: bool, registry_outage: str | None = None) -> None:
        if not self._watch.due():
            return
        around = Around(
            joined=self._partitions.joined or self._source.has_nothing(),
            stopping=stopping,
            sketch_idle=self._sketch.idle,
            broker_away_s=self._source.away_s,
            outside_group_s=self._source.outside_s,
            registry_outage=registry_outage,
            memory_reserved_bytes=self._partitions.reserved_bytes(),
        )
        read, paused = self._source.positions.keys(), self._source.paused
        seen = [self._seen(owned, read, paused) for owned in self._partitions]
        self._watch.look_around(seen, around, self._shoot)
        self._log_stuck()
        self._log_silent()

    def _shoot(self, partition: int) -> Future[Shot]:
        owned = self._partitions.get(partition)
        assert owned is not None, "it was there in this turn"
        return self._sketch.shoot(owned)

    def _seen(self, owned: OwnedPartition, read: Collection[int], paused: Collection[int]) -> Seen:
        number, taken = owned.number, owned.backlog
        fetched = self._source.known_end(number) if number in read else None
        ends = [end for end in (fetched, self._ends.get(owned)) if end is not None]
        running = self._jobs.of(owned)
        return Seen(
            partition=number,
            state=_state_of(owned),
            facts=None if owned.sketched is None else owned.sketched.facts,
            position=self._source.position(number) if number in read else None,
            committed=self._source.last_committed.get(number),
            end=max(ends, default=None),
            manifest=owned.chain.manifest,
            dirty_since=None if taken is None else taken.dirty_since_s,
            unseen_since=None if taken is None else taken.unpublished_since_s,
            begins_at=self._begins_at.get(owned),
            job=None if running is None else JobSeen(running.kind, running.wait.what, running.wait.since_s or 0.0),
            paused=number in paused,
        )

    # Log lines

    def _log_stuck(self) -> None:
        """A job that waits this long for one answer is logged, and again as long as it does."""
        now_s, logged = self._runtime.clock(), self._stuck_logged_s
        self._stuck_logged_s = {}
        for running in self._jobs:
            owned, wait = running.key, running.wait
            since_s = now_s if wait.since_s is None else wait.since_s
            last_s = logged.get(owned, since_s)
            if now_s - max(since_s, last_s) >= STUCK_S:
                last_s = now_s
                owned.log.warning(
                    STUCK[running.kind],
                    step=wait.what,
                    for_s=round(now_s - since_s),
                    reason=wait.failure or "no answer yet",
                )
            self._stuck_logged_s[owned] = last_s

    def _log_silent(self) -> None:
        """Each partition once when it falls silent, and once when it delivers again."""
        parts = self._watch.status.partitions
        for part in parts:
            owned, silent = self._partitions.get(part.partition), part.silent_s > 0
            if owned is None or silent == (part.partition in self._silent):
                continue
            self._silent ^= {part.partition}
            if silent:
                owned.log.warning("partition delivers no records", unread=part.lag, seconds=part.silent_s)
            else:
                owned.log.info("partition delivers records again")
        self._silent &= {part.partition for part in parts}

    # Where partitions end and begin

    def ask_for_ends(self) -> Job[None]:
        """In the background."""
        while True:
            ours = {owned.number: owned for owned in self._partitions}
            unread = [n for n, owned in ours.items() if owned.sketched is None and owned not in self._begins_at]
            if ours:
                asking = self._runtime.io.submit(_ask, self._source, tuple(ours), unread, self._plan.input.start)
                ends, begins_at = yield from answer("ends", asking)
                self._ends.update((ours[number], end) for number, end in ends.items())
                self._begins_at.update((ours[number], offset) for number, offset in begins_at.items())
            yield Wait("next ends", for_s=ENDS_EVERY_S)


def _state_of(owned: OwnedPartition) -> str:
    """One of metrics.STATES."""
    if owned.phase is Phase.READING and owned.is_paused:
        return "paused"
    return "reading" if owned.phase is Phase.RELEASING else owned.phase.value


def _ask(
    source: Source, partitions: Collection[int], unread: Collection[int], start: str
) -> tuple[Mapping[int, int], Mapping[int, int]]:
    """Where partitions end, and where those that are not read yet begin, as far as the broker answers."""
    ends: Mapping[int, int] = {}
    begins_at: Mapping[int, int] = {}
    with contextlib.suppress(SfdError, TimeoutError):  # the worker itself reports a broker that is unavailable
        ends = source.end_offsets(partitions, ENDS_TIMEOUT_S)
        begins_at = _begins_at(source, unread, start, ends)  # unknown while the last owner's transaction is open
    return ends, begins_at


def _begins_at(source: Source, unread: Collection[int], start: str, ends: Mapping[int, int]) -> dict[int, int]:
    """What the group committed; where it never did, the log's beginning or its end of now, as the settings have it."""
    if not unread:
        return {}
    found = source.committed(unread, ENDS_TIMEOUT_S)
    committed = {partition: offset.offset for partition, offset in found.items() if offset is not None}
    new = [partition for partition in unread if partition not in committed]
    first = source.first_offsets(new, ENDS_TIMEOUT_S) if start == "earliest" else {p: ends[p] for p in new if p in ends}
    return {**committed, **first}
