"""Once a second: computes the status from the partitions and their jobs, and logs what does not progress.

The end of a partition comes with each fetch. A partition that is paused or claimed is not fetched: its end is asked for
in the background, every few seconds, and the last known end stays while the broker does not answer. For a partition
that waits for memory or for its state, the offset where it will begin is asked for once: its unread records are lag.
"""

from __future__ import annotations

import contextlib
from collections.abc import Collection, Mapping
from concurrent.futures import Future
from dataclasses import dataclass
from typing import NamedTuple
from weakref import WeakKeyDictionary

from sfd_stream.errors import SfdError
from sfd_stream.kafka.source import Source
from sfd_stream.loop.jobs import STUCK_S, Job, Jobs, Running, Wait, answer
from sfd_stream.loop.runtime import Plan, Runtime
from sfd_stream.observe.facts import LoopState
from sfd_stream.observe.spectra import StateSample
from sfd_stream.observe.status import PartitionStatus, age_s
from sfd_stream.observe.worker_status import Watch
from sfd_stream.state.policy import Backlog, Pending
from sfd_stream.worker.partitions import OwnedPartition, Partitions, Phase
from sfd_stream.worker.sketch_thread import SketchThread

ENDS_EVERY_S, ENDS_TIMEOUT_S = 5.0, 10.0
SILENT_S = 60.0
"""A partition that has records and delivers none is silent after this time."""

STUCK: Mapping[str, str] = {
    "claim": "partition claim does not progress",
    "checkpoint": "partition checkpoint does not progress",
    "publication": "partition publication does not progress",
    "retention": "partition retention does not progress",
}


@dataclass
class Memory:
    """What the report keeps of a partition from one status to the next. Times are readings of the worker's clock."""

    end: int | None = None  # of its log, by the broker's last answer
    begins_at: int | None = None  # the offset where reading will begin, if the partition is not read yet
    moved: tuple[float, int | None, int] = (0.0, None, 0)  # when `applied` last moved, to where, and the lag then
    delivered: tuple[float, int | None] = (0.0, None)  # when a record last arrived or none was expected; the position
    replay_to: int | None = None  # the log's end when the partition was restored
    is_replayed: bool = False
    is_silent: bool = False
    is_waiting: bool = False
    is_behind: bool = False

    def flat_s(self, applied: int | None, lag: int | None, now_s: float) -> float:
        """How long the applied offset has not moved while the lag grew: a stuck partition. An idle topic gives 0."""
        moved_s, where, lag_then = self.moved
        if applied is None or applied != where or lag is None:
            self.moved = (now_s, applied, lag or 0)
            return 0.0
        return round(now_s - moved_s, 1) if now_s - moved_s >= STUCK_S and lag > lag_then else 0.0

    def silent_s(self, position: int | None, now_s: float, *, expected: bool) -> float:
        """How long a partition has delivered no record although one is `expected`; 0 below a minute."""
        if not expected or position != self.delivered[1]:
            self.delivered = (now_s, position)
            return 0.0
        silent_s = now_s - self.delivered[0]
        return round(silent_s, 1) if silent_s >= SILENT_S else 0.0

    def ends_replay(self, applied: int | None, end: int | None) -> bool:
        """True once: when the state reaches the end that the log had at the first status after the restore."""
        if self.is_replayed or applied is None or end is None:
            return False
        self.replay_to = end if self.replay_to is None else self.replay_to
        self.is_replayed = applied >= self.replay_to
        return self.is_replayed


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
        self._memories: WeakKeyDictionary[OwnedPartition, Memory] = WeakKeyDictionary()

    def memory(self, owned: OwnedPartition) -> Memory:
        return self._memories.setdefault(owned, Memory())

    def update(self, *, stopping: bool, registry_outage: str | None = None) -> None:
        if self._watch.due():
            self.publish(
                LoopState(
                    joined=self._partitions.joined or self._source.has_nothing(),
                    stopping=stopping,
                    sketch_idle=self._sketch.idle,
                    broker_away_s=self._source.unavailable_s,
                    outside_group_s=self._source.outside_s,
                    registry_outage=registry_outage,
                    memory_reserved_bytes=self._partitions.reserved_bytes(),
                )
            )

    def publish(self, loop: LoopState) -> None:
        ours = sorted(self._partitions, key=lambda owned: owned.number)
        read = [owned for owned in ours if owned.sketched is not None]
        self._watch.sampler.consider({owned.number: owned.live.facts.rows for owned in read}, self._copy_state)
        parts = [self._status_of(owned, loop) for owned in ours]
        self._watch.update(parts, loop)
        for running, for_s in self._jobs.stuck():
            reason = running.wait.failure or "no answer yet"
            running.key.log.warning(STUCK[running.kind], step=running.wait.what, for_s=for_s, reason=reason)
        for owned, part in zip(ours, parts, strict=True):
            self._log_silent(owned, part)
            self._log_waiting(owned)

    def _copy_state(self, partition: int) -> Future[StateSample]:
        owned = self._partitions.get(partition)
        assert owned is not None, "it was there in this turn"
        return self._sketch.copy_state(owned)

    # A partition

    def _status_of(self, owned: OwnedPartition, loop: LoopState) -> PartitionStatus:
        number, memory, now_s = owned.number, self.memory(owned), self._runtime.clock()
        taken, manifest, running = owned.backlog, owned.chain.manifest, self._jobs.of(owned)
        facts = None if owned.sketched is None else owned.sketched.facts
        place = self._place_of(owned, loop)
        silent_s = self._silent_s(owned, place, loop)
        stuck_s = _claim_s(owned, running, now_s) or memory.flat_s(place.applied, place.lag, now_s)
        if facts is not None and memory.ends_replay(place.applied, place.log_end):
            self._watch.replayed(now_s - owned.live.restored_s, owned.live.restored, facts)
        return PartitionStatus(
            partition=number,
            state=_state_of(owned),
            applied=place.applied,
            committed=self._source.last_committed.get(number),
            end=place.end,
            lag=place.lag,
            stuck_s=max(stuck_s, silent_s),
            silent_s=silent_s,
            number=manifest.number if manifest is not None else None,
            epoch=manifest.epoch if manifest is not None else None,
            checkpoint_age_s=0.0 if taken is None else _age_s(taken.unstored, now_s),
            snapshot_age_s=self._snapshot_age_s(taken, now_s),
            snapshot_bytes=None if owned.chain.published is None else owned.chain.published.blob.size,
            job=running.kind if running is not None else None,
            waits_for=running.wait.what if running is not None else None,
            waits_s=age_s(now_s, running.wait.since_s) if running is not None else 0.0,
            **self._watch.sketch_fields(number, facts),
        )

    def _place_of(self, owned: OwnedPartition, loop: LoopState) -> _Place:
        """`applied` is the next offset to apply; the position, if all that was read is applied (control records have no
        rows). For a partition that is not read yet it is the offset where reading will begin: what follows is lag.
        """
        source, number, memory, manifest = self._source, owned.number, self.memory(owned), owned.chain.manifest
        is_read = number in source.positions
        position, fetched = (source.position(number), source.known_end(number)) if is_read else (None, None)
        if owned.sketched is None:
            applied = manifest.next_offset if manifest is not None else memory.begins_at
        else:
            applied = owned.sketched.facts.next_offset
            if loop.sketch_idle and position is not None:
                applied = max(position, applied)
        return _Place(position, applied, _largest(fetched, memory.end))

    def _silent_s(self, owned: OwnedPartition, place: _Place, loop: LoopState) -> float:
        readable = _state_of(owned) == "reading" and owned.number not in self._source.paused
        has_records = place.position is not None and place.log_end is not None and place.log_end > place.position
        expected = readable and has_records and loop.broker_away_s is None
        return self.memory(owned).silent_s(place.position, self._runtime.clock(), expected=expected)

    def _snapshot_age_s(self, taken: Backlog | None, now_s: float) -> float | None:
        if self._watch.settings.snapshot.topic is None:
            return None
        return 0.0 if taken is None else _age_s(taken.unpublished, now_s)

    # Log lines

    def _log_silent(self, owned: OwnedPartition, part: PartitionStatus) -> None:
        """Logs once when a partition falls silent, and once when it delivers again."""
        memory, is_silent = self.memory(owned), part.silent_s > 0
        if is_silent and not memory.is_silent:
            owned.log.warning("partition delivers no records", unread=part.lag, seconds=part.silent_s)
        elif memory.is_silent and not is_silent:
            owned.log.info("partition delivers records again")
        memory.is_silent = is_silent

    def _log_waiting(self, owned: OwnedPartition) -> None:
        """Logs once when a partition begins to wait for memory or for the store, and once when it reads again."""
        memory = self.memory(owned)
        if owned.phase is Phase.WAITING and not memory.is_waiting:
            owned.log.warning("not enough memory to read the partition: raise worker.memory_max_bytes or add workers")
        if owned.store_behind and not memory.is_behind:
            owned.log.warning("partition paused: the checkpoint store does not keep up")
        elif memory.is_behind and not owned.store_behind:
            owned.log.info("partition resumed: the checkpoint store has caught up")
        memory.is_waiting, memory.is_behind = owned.phase is Phase.WAITING, owned.store_behind

    # Where partitions end and begin

    def ask_for_ends(self) -> Job[None]:
        """In the background: asks where partitions end, and where those that are not read yet begin."""
        while True:
            ours = {owned.number: self.memory(owned) for owned in self._partitions}
            new = [n for n, memory in ours.items() if memory.begins_at is None and not self._is_read(n)]
            if ours:
                asking = self._runtime.io.submit(_ask, self._source, tuple(ours), new, self._plan.input.start)
                ends, begins_at = yield from answer("ends", asking)
                for number, memory in ours.items():
                    memory.end = ends.get(number, memory.end)
                    memory.begins_at = begins_at.get(number, memory.begins_at)
            yield Wait("next ends", for_s=ENDS_EVERY_S)

    def _is_read(self, number: int) -> bool:
        owned = self._partitions.get(number)
        return owned is not None and owned.sketched is not None


class _Place(NamedTuple):
    """Where a partition stands: the next record to read, the next to apply, the end of its log."""

    position: int | None
    applied: int | None
    log_end: int | None

    @property
    def end(self) -> int | None:
        return _largest(self.log_end, self.applied)

    @property
    def lag(self) -> int | None:
        return None if self.end is None or self.applied is None else self.end - self.applied


def _largest(*offsets: int | None) -> int | None:
    return max((offset for offset in offsets if offset is not None), default=None)


def _age_s(pending: Pending, now_s: float) -> float:
    return age_s(now_s, pending.begun_since_s, pending.since_s)


def _claim_s(owned: OwnedPartition, running: Running[OwnedPartition] | None, now_s: float) -> float:
    """How long a claim has been at one step, whatever the lag is; 0 for less than STUCK_S."""
    if owned.phase is not Phase.CLAIMING or running is None or running.wait.since_s is None:
        return 0.0
    claim_s = now_s - running.wait.since_s
    return round(claim_s, 1) if claim_s >= STUCK_S else 0.0


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
    """The committed offset; without one, the beginning of the log or its end as of now, as `input.start` says."""
    if not unread:
        return {}
    found = source.committed(unread, ENDS_TIMEOUT_S)
    committed = {partition: offset.offset for partition, offset in found.items() if offset is not None}
    new = [partition for partition in unread if partition not in committed]
    first = source.first_offsets(new, ENDS_TIMEOUT_S) if start == "earliest" else {p: ends[p] for p in new if p in ends}
    return {**committed, **first}
