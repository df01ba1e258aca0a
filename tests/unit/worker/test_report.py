"""What the status says of a worker while it runs, on a fake source: also of what it does not read yet."""

from __future__ import annotations

import json
import threading

import pytest

from sfd_stream.kafka.records import PartitionBatch
from sfd_stream.loop.jobs import STUCK_S
from sfd_stream.observe.status import PartitionStatus, as_json
from sfd_stream.observe.worker_status import STATUS_EVERY_S
from sfd_stream.worker.report import ENDS_EVERY_S, SILENT_S
from sfd_stream.worker.worker import Worker
from tests.support.watched import Clock
from tests.system.fakes import plan_of, rows, worker_on
from tests.unit.worker.test_worker import reading, turn_until


def statuses(worker: Worker, clock: Clock) -> tuple[PartitionStatus, ...]:
    """After the ends were asked for once more."""
    before = worker.background.of("status")
    assert before is not None
    asked = before.wait
    clock.now += ENDS_EVERY_S
    turn_until(worker, lambda: before.wait is not asked and before.wait.what == "next ends")
    clock.now += STATUS_EVERY_S
    worker._report.update(stopping=False)
    return worker.watch.status.partitions


@pytest.mark.parametrize(
    ("start", "committed", "begins_at"), [("earliest", {}, 0), ("earliest", {1: 40}, 40), ("latest", {}, 300)]
)
def test_a_partition_without_room_shows_where_it_begins_and_how_far_it_is_behind(
    start: str, committed: dict[int, int], begins_at: int
) -> None:
    clock, chosen = Clock(), {"memory_max_bytes": 5_000, "start": start, "until_end": False}
    worker, source, _ = worker_on({0: rows(10), 1: rows(300)}, clock=clock, **chosen)
    worker.watch.clock = clock
    source.committed_offsets = committed
    worker.open()
    turn_until(worker, lambda: reading(worker, 0))
    shown = statuses(worker, clock)[1]
    assert (shown.state, shown.applied, shown.lag) == ("waiting", begins_at, 300 - begins_at)
    source.logs[1] += rows(50)
    assert statuses(worker, clock)[1].lag == 350 - begins_at
    assert worker.watch.status.doing == "no room in memory for partition 1: not read until there is"


def test_a_partition_that_falls_silent_is_logged_once_and_again_when_it_delivers() -> None:
    clock = Clock()
    worker, source, diary = worker_on({0: rows(10), 1: rows(10)}, clock=clock, until_end=False)
    worker.watch.clock = clock
    worker.open()
    turn_until(worker, lambda: worker.progress.rows == 20)
    poll, silent = source.poll, [True]

    def deaf(max_records: int, timeout_s: float) -> list[PartitionBatch]:
        kept = source.positions.pop(1) if silent[0] else None
        found = poll(max_records, timeout_s)
        if kept is not None:
            source.positions[1] = kept
        return found

    source.poll = deaf  # type: ignore[method-assign]
    source.logs[1] += rows(30)
    for _ in range(30):
        worker.turn()
        statuses(worker, clock)
    told = diary.of("partition delivers no records")
    assert [(each["partition"], each["unread"]) for each in told] == [(1, 30)]
    assert told[0]["seconds"] >= SILENT_S
    shown = worker.watch.status.partitions
    assert [(part.silent_s > 0, part.stuck_s > 0) for part in shown] == [(False, False), (True, True)]
    assert not diary.said("partition delivers records again")
    silent[0] = False
    turn_until(worker, lambda: worker.progress.rows == 50 and worker.sketch.idle)
    statuses(worker, clock)
    assert [each["partition"] for each in diary.of("partition delivers records again")] == [1]
    assert worker.watch.status.partitions[1].stuck_s == 0.0


def test_a_checkpoint_that_does_not_progress_is_logged_and_in_the_status_until_it_does() -> None:
    clock, gate = Clock(), threading.Event()

    def reach(point: str) -> None:
        if point == "before-Put":
            gate.wait(60)

    worker, source, diary = worker_on({0: rows(50), 1: rows(10)}, clock=clock, reach=reach, until_end=False)
    worker.watch.clock = clock
    worker.open()
    turn_until(worker, lambda: waits_for(worker, 0) == "Put")
    clock.now += STUCK_S + 5
    worker.turn()
    lines = diary.of("partition checkpoint does not progress")
    assert [(line["partition"], line["step"], line["for_s"]) for line in lines] == [(0, "Put", STUCK_S + 5)]
    stuck, other = json.loads(as_json(worker.watch.status, 0.0, 0))["workers"][0]["partitions"]
    assert (stuck["job"], stuck["waits_for"], stuck["waits_s"]) == ("checkpoint", "Put", STUCK_S + 5)
    assert (other["job"], other["waits_for"], other["waits_s"]) == (None, None, 0.0)
    gate.set()
    turn_until(worker, lambda: not worker.jobs)
    clock.now += STUCK_S + 5
    worker.turn()
    assert len(diary.of("partition checkpoint does not progress")) == 1
    assert [part.job for part in worker.watch.status.partitions] == [None, None]
    source.close(5.0)


def test_a_partition_that_waits_for_memory_or_for_the_store_is_logged_once() -> None:
    clock, room = Clock(), plan_of().shape(0).memory_bytes()
    worker, source, diary = worker_on({0: rows(10), 1: rows(10)}, clock=clock, until_end=False, memory_max_bytes=room)
    worker.watch.clock = clock
    worker.open()
    turn_until(worker, lambda: worker.progress.rows == 10)
    read, waiting = worker.partitions
    for behind in (True, True, False, False):
        read.store_behind = behind
        clock.now += 1.0
        worker._report.update(stopping=False)
    assert [line["partition"] for line in diary.of("not enough memory to read the partition")] == [waiting.number]
    assert [line["partition"] for line in diary.of("partition paused: the checkpoint store")] == [read.number]
    assert [line["partition"] for line in diary.of("partition resumed: the checkpoint store")] == [read.number]
    source.close(5.0)


def waits_for(worker: Worker, partition: int) -> str | None:
    owned = worker.partitions.get(partition)
    running = None if owned is None else worker.jobs.of(owned)
    return None if running is None else running.wait.what
