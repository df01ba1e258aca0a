"""The sketch thread: batches in order, a freeze between two of them, and a loop that is not far ahead."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from concurrent.futures import Executor, Future
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest

from sfd_stream.errors import RefusedStateError
from sfd_stream.loop.runtime import Runtime
from sfd_stream.state.partition import PartitionState
from sfd_stream.wire.columns import FixedColumns
from sfd_stream.wire.rows.decode import DecodedBatch, decode
from sfd_stream.worker import sketch_thread
from sfd_stream.worker.partitions import OwnedPartition
from sfd_stream.worker.sketch_thread import PATIENCE_S, SketchThread
from tests.support.watched import Clock, Stage
from tests.system.fakes import D, Diary, FakeBatch, plan_of, rows


class Later(Executor):
    """Runs what was submitted when a test says so."""

    def __init__(self) -> None:
        self.waiting = deque[tuple[Future[Any], Callable[[], Any]]]()

    def submit(self, call: Callable[..., Any], /, *args: Any, **named: Any) -> Future[Any]:
        future = Future[Any]()
        self.waiting.append((future, lambda: call(*args, **named)))
        return future

    def run(self, count: int = 100) -> None:
        for _ in range(min(count, len(self.waiting))):
            future, call = self.waiting.popleft()
            try:
                future.set_result(call())
            except Exception as error:  # noqa: BLE001 - as an executor does
                future.set_exception(error)


class Sketching:
    """A partition that is read, and the thread that owns its state."""

    def __init__(self) -> None:
        self.executor, self.clock, self.next_offset = Later(), Clock(0.0), 0
        runtime = Runtime(None, clock=self.clock, sketch=self.executor)  # type: ignore[arg-type]
        stage = Stage(partitions=1)
        self.thread, chain = SketchThread(runtime, stage.watch), SimpleNamespace(where="rows/0")
        self.owned = OwnedPartition(0, chain, Diary(), assigned_s=0.0)  # type: ignore[arg-type]
        self.thread.begin(self.owned, PartitionState(plan_of().shape(0), 0))

    def take(self, count: int, change: Callable[[DecodedBatch], DecodedBatch] = lambda decoded: decoded) -> None:
        batch = FakeBatch(0, self.next_offset, rows(count))
        self.next_offset = batch.next_offset
        self.thread.apply(self.owned, batch, change(decode(batch.present()[1], FixedColumns(D))), 0)


def test_batches_are_applied_in_order_and_a_freeze_has_those_before_it_and_no_other() -> None:
    one = Sketching()
    one.take(10)
    one.take(20)
    freezing = one.thread.freeze(one.owned)
    one.take(5)
    assert not one.thread.idle
    assert one.owned.live.facts.rows == 0, "the loop does not wait"
    one.executor.run()
    one.thread.collect()
    assert one.thread.idle
    assert freezing.result().next_offset == 30
    assert (one.owned.live.facts.rows, one.owned.live.facts.next_offset) == (35, 35)


def test_the_loop_waits_when_it_is_far_ahead_and_after_a_while_it_pauses_reading(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(sketch_thread, "AHEAD_ENTRIES", 50)
    one = Sketching()
    one.take(20)  # 20 rows and 20 non-zeros
    one.thread.collect()
    assert one.thread.spare_s is None, "the thread keeps up"
    one.take(20)
    one.thread.collect()
    assert one.thread.spare_s == PATIENCE_S
    one.clock.now += PATIENCE_S + 1
    assert one.thread.spare_s == 0.0
    one.executor.run(count=1)
    one.thread.collect()
    assert one.thread.spare_s is None


def test_a_state_whose_batch_failed_takes_no_rows_and_is_not_frozen() -> None:
    def too_large(decoded: DecodedBatch) -> DecodedBatch:
        return replace(decoded, block=replace(decoded.block, values=decoded.block.values * 1e300))

    one = Sketching()
    one.take(10, too_large)
    one.take(10)
    freezing = one.thread.freeze(one.owned)
    one.executor.run()
    with pytest.raises(RefusedStateError, match='run "sfd-stream checkpoint reset rows/0 --to latest"'):
        one.thread.collect()
    assert isinstance(freezing.exception(), RefusedStateError)
    assert one.owned.live.facts.rows == 0


def test_offsets_without_a_record_are_passed_over_once_all_rows_are_applied() -> None:
    one = Sketching()
    one.take(10)
    with pytest.raises(AssertionError):
        one.thread.pass_over(one.owned, 12)
    one.executor.run()
    one.thread.collect()
    one.thread.pass_over(one.owned, 12)
    assert (one.owned.live.facts.next_offset, one.owned.live.facts.rows) == (12, 10)
