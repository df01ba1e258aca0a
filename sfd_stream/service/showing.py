"""Shows a running worker to its watch: after each turn that it lives, once a second what it sees. The loop's thread.

The ends of partitions come with their fetches; a partition that is paused or claimed is not fetched, so its end is
asked for beside the loop, every few seconds, and a broker that does not answer leaves the last one standing.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from concurrent.futures import Executor, Future
from typing import Protocol

from sfd_stream.errors import SfdError
from sfd_stream.kafka.source import Source
from sfd_stream.service.looks import Shot
from sfd_stream.service.seen import Around, Seen
from sfd_stream.service.tenure import Plan, Tenure
from sfd_stream.service.watch import Watch

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
    def tenures(self) -> Tenures: ...
    @property
    def sketching(self) -> Sketching: ...


class Showing:
    """Call it after each turn."""

    def __init__(self, beside: Executor, clock: Callable[[], float]) -> None:
        self._beside = beside
        self._clock = clock
        self._ends: Mapping[int, int] = {}
        self._asking: Future[Mapping[int, int]] | None = None
        self._ask_at_s = 0.0

    def __call__(self, worker: Shown) -> None:
        watch, tenures = worker.watch, worker.tenures.all()
        if not watch.due():
            return
        self._look_after_ends(worker.source, [tenure.partition for tenure in tenures])
        around = Around(
            joined=worker.tenures.joined or worker.source.has_nothing(),
            stopping=worker.stopping,
            sketch_idle=worker.sketching.idle,
            broker_away_s=worker.source.away_s,
            memory_reserved_bytes=_reserved(worker.plan, tenures),
        )
        read = worker.source.positions.keys()
        seen = [self._seen(tenure, worker.source, read) for tenure in tenures]
        watch.look_around(seen, around, lambda partition: _shoot(worker, partition))

    def _seen(self, tenure: Tenure, source: Source, read: Collection[int]) -> Seen:
        partition = tenure.partition
        fetched = source.known_end(partition) if partition in read else None
        ends = [end for end in (fetched, self._ends.get(partition)) if end is not None]
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
        )

    def _look_after_ends(self, source: Source, partitions: Collection[int]) -> None:
        if self._asking is not None and self._asking.done():
            answer, self._asking = self._asking.result(), None
            self._ends = {partition: answer[partition] for partition in partitions if partition in answer}
        if self._asking is None and partitions and self._clock() >= self._ask_at_s:
            self._ask_at_s = self._clock() + ENDS_EVERY_S
            self._asking = self._beside.submit(_ask, source, tuple(partitions))


def _ask(source: Source, partitions: tuple[int, ...]) -> Mapping[int, int]:
    try:
        return source.end_offsets(partitions, ENDS_TIMEOUT_S)
    except (SfdError, TimeoutError):
        return {}  # the worker has its own way of telling that a broker is away or refuses


def state_of(tenure: Tenure) -> str:
    """One of metrics.STATES."""
    if tenure.finished:
        return "finished"
    if tenure.state is None:
        return "claiming" if tenure.job is not None else "waiting"
    return "paused" if tenure.held_back else "reading"


def _reserved(plan: Plan, tenures: Iterable[Tenure]) -> int:
    return sum(plan.shape(tenure.partition).memory_bytes() for tenure in tenures if tenure.in_memory)


def _shoot(worker: Shown, partition: int) -> Future[Shot]:
    tenure = worker.tenures.get(partition)
    assert tenure is not None, "it was seen in this turn"
    return worker.sketching.shoot(tenure)
