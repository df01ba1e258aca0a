"""A source without a broker: what it gives and what it answers is a test's to say."""

# ruff: noqa: ARG002 - a fake answers at once, whatever time it is given
from __future__ import annotations

import time
import uuid
from collections.abc import Callable, Collection, Mapping
from typing import Any, cast

from sfd_stream.config.model import CheckpointSettings, InputSettings, SnapshotSettings, WorkerSettings
from sfd_stream.kafka.assignment import RebalanceListener
from sfd_stream.kafka.commits import Commit, Committed
from sfd_stream.kafka.dead_letters import BadMessageGauge
from sfd_stream.kafka.records import PartitionBatch, Record, Start
from sfd_stream.loop.intake import Intake
from sfd_stream.loop.questions import Questions
from sfd_stream.loop.runtime import Plan, Runtime
from sfd_stream.sketch.builder import Parameters
from sfd_stream.state.partition import Shape
from sfd_stream.state.policy import SnapshotPolicy
from sfd_stream.storage.contract import Store
from sfd_stream.storage.memory import MemoryStore
from sfd_stream.wire.columns import FixedColumns
from sfd_stream.wire.rows.encode import encode_row
from sfd_stream.worker.delivery import Delivery
from sfd_stream.worker.partitions import Partitions
from sfd_stream.worker.worker import Worker
from tests.support.watched import Stage

D = 20


class Diary:
    """A log that is read by tests."""

    def __init__(self, lines: list[tuple[str, dict[str, Any]]] | None = None, **bound: Any) -> None:
        self.lines = [] if lines is None else lines
        self._bound = bound

    def bind(self, **context: Any) -> Diary:
        return Diary(self.lines, **{**self._bound, **context})

    def _note(self, event: str, **context: Any) -> None:
        self.lines.append((event, {**self._bound, **context}))

    info = warning = debug = _note

    def said(self, event: str) -> bool:
        return any(event in line for line, _ in self.lines)

    def of(self, event: str) -> list[dict[str, Any]]:
        """What went with the lines that say so."""
        return [context for line, context in self.lines if event in line]


class FakeBatch(PartitionBatch):
    def __init__(self, partition: int, first: int, values: list[bytes | None]) -> None:
        super().__init__(partition, values)
        self._first = first

    @property
    def values(self) -> list[bytes | None]:
        return list(self._messages)

    @property
    def size_bytes(self) -> int:
        return sum(len(value or b"") for value in self._messages)

    @property
    def first_offset(self) -> int:
        return self._first

    @property
    def leader_epoch(self) -> int | None:
        return None

    def record(self, index: int) -> Record:
        place = index % len(self._messages)
        return Record(self.partition, self._first + place, self._messages[place])


class FakeSource:
    """One worker's view of a topic: `assign` and `revoke` happen in the next poll."""

    def __init__(self, logs: Mapping[int, list[bytes | None]]) -> None:
        self.logs = dict(logs)
        self.listener: RebalanceListener
        self.positions: dict[int, int] = {}
        self.held: set[int] = set()
        self.paused: set[int] = set()
        self.events: list[Callable[[], Any]] = [lambda: self._assign(self.logs)]
        self.committed_offsets: dict[int, int] = {}
        self.last_committed: dict[int, int] = {}
        self.commits: list[tuple[int, int]] = []
        self.waiting: dict[int, Commit] = {}
        self.acknowledged_commits: dict[int, Commit] = {}
        self.fail_commits = 0
        self.rejoins = 0
        self.unavailable_s: float | None = None
        self.outside_s: float | None = None
        self.outage_words = ""
        self.polls = 0

    def check_available(self, give_up_s: float) -> None:
        """A broker that always answers."""

    def subscribe(self, listener: RebalanceListener) -> None:
        self.listener = listener

    @property
    def assigned(self) -> frozenset[int]:
        return frozenset(self.positions) | self.held

    def poll(self, max_records: int, timeout_s: float) -> list[PartitionBatch]:
        self.polls += 1
        self.send_commits()
        while self.events:
            self.events.pop(0)()
        found: list[PartitionBatch] = []
        for partition, at in self.positions.items():
            values = self.logs[partition][at : at + max_records]
            if values and partition not in self.paused:
                found.append(FakeBatch(partition, at, values))
                self.positions[partition] = at + len(values)
        if not found:
            time.sleep(min(timeout_s, 0.005))
        return found

    def _assign(self, partitions: Collection[int]) -> None:
        for partition, start in self.listener.on_assign(sorted(partitions)).items():
            assert start is None
            self.held.add(partition)

    def revoke(self, partitions: Collection[int]) -> None:
        self.listener.on_revoke(sorted(partitions))
        for partition in partitions:
            self.held.discard(partition)
            self.positions.pop(partition, None)
            for known in (self.last_committed, self.waiting, self.acknowledged_commits):
                known.pop(partition, None)
            self.paused.discard(partition)

    def begin(self, partition: int, start: Start) -> None:
        self.held.remove(partition)
        self.positions[partition] = start.offset

    def pause(self, partitions: Collection[int]) -> None:
        self.paused |= set(partitions)

    def resume(self, partitions: Collection[int]) -> None:
        self.paused -= set(partitions)

    def pause_only(self, wanted: Collection[int]) -> None:
        self.paused = set(wanted)

    def rejoin(self) -> None:
        self.rejoins += 1
        self.events.append(lambda: self.revoke(self.assigned))
        self.events.append(lambda: self._assign(self.logs))

    def commit(self, offsets: Mapping[int, int], metadata: str = "") -> None:
        self.waiting |= {partition: Commit(offset, metadata) for partition, offset in offsets.items()}
        self.send_commits()

    def send_commits(self) -> None:
        """Called in each poll too, as by the real source: a commit that failed is sent again."""
        sent, self.waiting = self.waiting, {}
        for partition, commit in sent.items():
            self.commits.append((partition, commit.offset))
            if self.fail_commits:
                self.fail_commits -= 1
                self.waiting[partition] = commit
            else:
                self.acknowledged_commits[partition] = commit
                self.committed_offsets[partition] = self.last_committed[partition] = commit.offset

    def renew_commits(self, asked: Mapping[int, Commit], found: Mapping[int, Committed | None]) -> list[int]:
        behind = [p for p, commit in asked.items() if (at := found[p]) is not None and at.offset < commit.offset]
        for partition in behind:
            self.commit({partition: asked[partition].offset})
        return behind

    def committed(self, partitions: Collection[int], timeout_s: float) -> dict[int, Committed | None]:
        found = self.committed_offsets
        return {p: Committed(found[p], "", None) if p in found else None for p in partitions}

    def watermarks(self, partition: int, timeout_s: float) -> tuple[int, int]:
        return 0, len(self.logs[partition])

    def end_offsets(self, partitions: Collection[int], timeout_s: float) -> dict[int, int]:
        return {p: len(self.logs[p]) for p in partitions}

    def first_offsets(self, partitions: Collection[int], timeout_s: float) -> dict[int, int]:
        return dict.fromkeys(partitions, 0)

    def known_end(self, partition: int) -> int | None:
        return None

    def has_nothing(self) -> bool:
        return False

    def position(self, partition: int) -> int:
        return self.positions[partition]

    def partition_count(self, timeout_s: float) -> int:
        return len(self.logs)

    def cluster_id(self, timeout_s: float) -> str:
        return "cluster"

    def topic_id(self, timeout_s: float) -> str | None:
        return "topic-id"

    def close(self, timeout_s: float) -> bool:
        if self.assigned:
            self.revoke(self.assigned)
        return True


def rows(count: int) -> list[bytes | None]:
    return [encode_row([number % D], [1.0 + number % 7]) for number in range(count)]


def plan_of(
    *,
    shape: Callable[[int], Shape] | None = None,
    until_end: bool = True,
    start: str = "earliest",
    memory_max_bytes: int = 2**30,
    **checkpoint: Any,
) -> Plan:
    """A checkpoint every 50 rows, in polls of 20."""
    chosen = {"every_rows": 50, "every_s": 3600.0, "keep": 2, "revoke_budget_s": 5.0, "give_up_s": 5.0, **checkpoint}
    return Plan(
        group="group",
        input=InputSettings(topic="rows", start=start),  # type: ignore[arg-type]
        checkpoint=CheckpointSettings(url="memory://", **chosen),
        snapshot=SnapshotSettings(),
        worker=WorkerSettings(batch_records=20, memory_max_bytes=memory_max_bytes),
        shape=shape or (lambda p: Shape(FixedColumns(D), Parameters(D, ell=4, seed=(0, p), buffer_entries_max=100))),
        until_end=until_end,
    )


def worker_on(
    logs: Mapping[int, list[bytes | None]],
    *,
    store: Store | None = None,
    reach: Callable[[str], None] | None = None,
    clock: Callable[[], float] = time.monotonic,
    source_class: type[FakeSource] = FakeSource,
    **changes: Any,
) -> tuple[Worker, FakeSource, Diary]:
    """A worker that reads `logs` to their ends, in memory."""
    plan, diary, source = plan_of(**changes), Diary(), source_class(logs)
    runtime = Runtime(store or MemoryStore(uuid.uuid4().hex), reach, clock=clock, wall_clock=lambda: 0.0)
    gauge = BadMessageGauge(max_share=1.0, window=1000, max_consecutive=1000)
    watch, given, partitions = Stage(partitions=0).watch, cast("Any", source), Partitions(plan)
    worker = Worker(
        plan,
        runtime,
        given,
        None,
        Intake(plan.input, gauge, watch),
        Questions(plan, runtime, given, None),
        partitions,
        Delivery(runtime=runtime, source=given, log=diary, watch=watch, policy=SnapshotPolicy(None, None)),
        watch,
        diary,
    )
    return worker, source, diary
