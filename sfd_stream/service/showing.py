"""Shows a running worker to its watch: after each turn that it lives, once a second what it sees. The loop's thread.

The ends of partitions come with their fetches; a partition that is paused or claimed is not fetched, so its end is
asked for beside the loop, every few seconds, and a broker that does not answer leaves the last one standing.
Where a partition that waits for room or for its state will begin is asked for once: what it has to read is lag already.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Collection, Iterable, Mapping
from concurrent.futures import Executor, Future
from typing import Literal, NamedTuple, Protocol

from sfd_stream.errors import SfdError
from sfd_stream.kafka.source import Source
from sfd_stream.service.looks import Shot
from sfd_stream.service.seen import Around, Seen
from sfd_stream.service.status import Status
from sfd_stream.service.tenure import Plan, Tenure
from sfd_stream.service.watch import Watch

Start = Literal["earliest", "latest"]

ENDS_EVERY_S = 5.0
ENDS_TIMEOUT_S = 10.0


class Tenures(Protocol):
    joined: bool

    def all(self) -> list[Tenure]: ...
    def get(self, partition: int) -> Tenure | None: ...


class Sketching(Protocol):
    @property
    def idle(self) -> bool: ...
    def shoot(self, tenure: Tenure) -> Future[Shot]: ...


class Shown(Protocol):
    """What is shown of a worker."""

    plan: Plan
    source: Source
    watch: Watch

    @property
    def stopping(self) -> bool: ...
    @property
    def registry_outage(self) -> str | None: ...
    @property
    def tenures(self) -> Tenures: ...
    @property
    def sketching(self) -> Sketching: ...


class _Asked(NamedTuple):
    ends: Mapping[int, int]
    begins_at: Mapping[int, int]


class Showing:
    """Call it after each turn."""

    def __init__(self, beside: Executor, clock: Callable[[], float]) -> None:
        self._beside = beside
        self._clock = clock
        self._known = _Asked({}, {})
        self._asking: Future[_Asked] | None = None
        self._ask_at_s = 0.0
        self._silent: set[int] = set()

    def __call__(self, worker: Shown) -> None:
        watch, tenures = worker.watch, worker.tenures.all()
        if not watch.due():
            return
        self._look_after_ends(worker.source, tenures, worker.plan.start)
        around = Around(
            joined=worker.tenures.joined or worker.source.has_nothing(),
            stopping=worker.stopping,
            sketch_idle=worker.sketching.idle,
            broker_away_s=worker.source.away_s,
            memory_reserved_bytes=_reserved(worker.plan, tenures),
            registry_outage=worker.registry_outage,
        )
        read = worker.source.positions.keys()
        seen = [self._seen(tenure, worker.source, read) for tenure in tenures]
        watch.look_around(seen, around, lambda partition: _shoot(worker, partition))
        self._log_silent(watch.status, worker.tenures)

    def _seen(self, tenure: Tenure, source: Source, read: Collection[int]) -> Seen:
        partition = tenure.partition
        fetched = source.known_end(partition) if partition in read else None
        ends = [end for end in (fetched, self._known.ends.get(partition)) if end is not None]
        return Seen(
            partition=partition,
            state=state_of(tenure),
            facts=tenure.facts,
            position=source.position(partition) if partition in read else None,
            committed=source.last_committed.get(partition),
            end=max(ends, default=None),
            manifest=tenure.keeper.manifest,
            dirty_since=tenure.dirty_since,
            unseen_since=tenure.unseen_since,
            begins_at=self._known.begins_at.get(partition),
            claim_step_s=tenure.step_s if tenure.state is None and tenure.job is not None else None,
            paused=partition in source.paused,
        )

    def _log_silent(self, status: Status, tenures: Tenures) -> None:
        """Each partition once when it falls silent, and once when it delivers again."""
        for part in status.partitions:
            tenure = tenures.get(part.partition)
            silent = part.silent_s > 0
            if tenure is None or silent == (part.partition in self._silent):
                continue
            self._silent ^= {part.partition}
            if silent:
                tenure.log.warning("partition delivers no records", unread=part.lag, seconds=part.silent_s)
            else:
                tenure.log.info("partition delivers records again")
        self._silent &= {part.partition for part in status.partitions}

    def _look_after_ends(self, source: Source, tenures: Collection[Tenure], start: Start) -> None:
        ours = {tenure.partition for tenure in tenures}
        unread = {tenure.partition for tenure in tenures if tenure.facts is None}
        known = self._known
        if self._asking is not None and self._asking.done():
            answer, self._asking = self._asking.result(), None
            known = _Asked({**known.ends, **answer.ends}, {**answer.begins_at, **known.begins_at})
        self._known = _Asked(_only(known.ends, ours), _only(known.begins_at, unread))
        if self._asking is None and ours and self._clock() >= self._ask_at_s:
            self._ask_at_s = self._clock() + ENDS_EVERY_S
            unread -= self._known.begins_at.keys()
            self._asking = self._beside.submit(_ask, source, tuple(ours), tuple(unread), start)


def _only(offsets: Mapping[int, int], partitions: Collection[int]) -> Mapping[int, int]:
    return {partition: offset for partition, offset in offsets.items() if partition in partitions}


def _ask(source: Source, partitions: tuple[int, ...], unread: tuple[int, ...], start: Start) -> _Asked:
    ends: Mapping[int, int] = {}
    begins_at: Mapping[int, int] = {}
    with contextlib.suppress(SfdError, TimeoutError):  # the worker itself reports a broker that is unavailable
        ends = source.end_offsets(partitions, ENDS_TIMEOUT_S)
        begins_at = _begins_at(source, unread, start, ends)  # unknown while the last owner's transaction is open
    return _Asked(ends, begins_at)


def _begins_at(source: Source, unread: tuple[int, ...], start: Start, ends: Mapping[int, int]) -> dict[int, int]:
    """What the group committed; where it never did, the log's beginning or its end of now, as the settings have it."""
    if not unread:
        return {}
    found = source.committed(unread, ENDS_TIMEOUT_S)
    committed = {partition: offset.offset for partition, offset in found.items() if offset is not None}
    new = tuple(partition for partition in unread if partition not in committed)
    first = source.first_offsets(new, ENDS_TIMEOUT_S) if start == "earliest" else _only(ends, new)
    return {**committed, **first}


def state_of(tenure: Tenure) -> str:
    """One of metrics.STATES."""
    if tenure.finished:
        return "finished"
    if tenure.state is None:
        return "claiming" if tenure.job is not None else "waiting"
    return "paused" if tenure.held_back or tenure.schemas_awaited else "reading"


def _reserved(plan: Plan, tenures: Iterable[Tenure]) -> int:
    return sum(plan.shape(tenure.partition).memory_bytes() for tenure in tenures if tenure.in_memory)


def _shoot(worker: Shown, partition: int) -> Future[Shot]:
    tenure = worker.tenures.get(partition)
    assert tenure is not None, "it was seen in this turn"
    return worker.sketching.shoot(tenure)
