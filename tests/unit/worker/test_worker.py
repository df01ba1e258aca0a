"""The worker's laws on a fake source: what it does when a thread, a store, a commit or its ownership fails."""

from __future__ import annotations

import threading
import time
import uuid
from collections.abc import Mapping
from typing import Any

import pytest

from sfd_stream.errors import BrokerRefusedError, RefusedStateError, StoreRefusedError, StoreUnavailableError
from sfd_stream.sketch.builder import Parameters
from sfd_stream.state.manifest import Binding, Manifest, decode_manifest, manifests_prefix
from sfd_stream.state.partition import PartitionState, Shape
from sfd_stream.state.perform import Patience, run
from sfd_stream.state.policy import PAUSED_AFTER
from sfd_stream.state.steps import AskLog, LogFacts, Question
from sfd_stream.storage.contract import partition_prefix
from sfd_stream.storage.memory import MemoryStore
from sfd_stream.tools.inspect import Loaded, load_newest
from sfd_stream.wire.columns import GrowingColumns
from sfd_stream.wire.rows.encode import encode_row
from sfd_stream.worker.delivery import CONFIRM_EVERY_S
from sfd_stream.worker.partitions import OwnedPartition, Phase
from sfd_stream.worker.worker import Worker
from tests.system.fakes import rows, worker_on
from tests.unit.worker.chains import answering, chain_on, driven

PREFIX = partition_prefix("group", "rows", 0)


def newest(worker: Worker, partition: int = 0) -> Manifest:
    store = worker.runtime.store
    keys = store.list(manifests_prefix(partition_prefix("group", "rows", partition)))
    return decode_manifest(store.get(keys[-1]))


def state_of(worker: Worker, partition: int = 0) -> PartitionState:
    steps = load_newest(partition_prefix("group", "rows", partition), "rows/0", worker.plan.shape(partition))
    loaded = run(steps, worker.runtime.store, Patience(1, time.monotonic, time.sleep, lambda: 1.0))
    assert isinstance(loaded, Loaded)
    return loaded.state


def turn_until(worker: Worker, condition: Any) -> None:
    deadline = time.monotonic() + 20
    while not condition():
        assert time.monotonic() < deadline
        worker.turn()


def owned_by(worker: Worker, partition: int) -> OwnedPartition:
    owned = worker.partitions.get(partition)
    assert owned is not None
    return owned


def live(worker: Worker, partition: int) -> PartitionState:
    state = owned_by(worker, partition).live.state
    assert state is not None
    return state


def reading(worker: Worker, partition: int) -> bool:
    owned = worker.partitions.get(partition)
    return owned is not None and owned.phase is Phase.READING


def another_claims(worker: Worker, partition: int = 0) -> Manifest:
    chain = chain_on(worker.runtime.store, partition)
    binding = Binding("cluster", "topic-id", "group", "rows", partition)

    def answer(question: Question) -> Any:
        return LogFacts(0, 10**6) if isinstance(question, AskLog) else 0

    driven(chain.claim(binding, worker.plan.shape(partition), "earliest", answering(answer)))
    return chain.newest


def test_all_rows_are_counted_and_committed() -> None:
    worker, source, _ = worker_on({0: rows(1000), 1: rows(300)})
    worker.run()
    assert [state_of(worker, p).rows for p in (0, 1)] == [1000, 300]
    assert source.committed_offsets == {0: 1000, 1: 300}
    assert worker.progress.checkpoints > 5


def test_with_start_latest_a_partition_added_while_it_runs_starts_at_its_beginning() -> None:
    worker, source, _ = worker_on({0: rows(100)}, until_end=False, start="latest")
    worker.open()
    turn_until(worker, lambda: reading(worker, 0))
    source.logs[0] += rows(30)
    source.logs[1] = rows(200)
    source.events.append(lambda: source._assign([1]))
    turn_until(worker, lambda: worker.progress.rows == 230)
    worker.stop()
    source.close(5.0)
    assert [state_of(worker, p).rows for p in (0, 1)] == [30, 200]


def test_nothing_is_committed_before_it_is_durable() -> None:
    worker, source, _ = worker_on({0: rows(700), 1: rows(300)})
    commit, early = source.commit, []

    def watched(offsets: Mapping[int, int], metadata: str = "") -> None:
        early.extend((p, offset) for p, offset in offsets.items() if newest(worker, p).next_offset < offset)
        commit(offsets, metadata)

    source.commit = watched  # type: ignore[method-assign]
    worker.run()
    assert len(source.commits) > 5
    assert not early


def test_a_committed_offset_that_went_back_is_committed_again() -> None:
    """The coordinator lets every member commit every partition: one that lost this one unawares came last."""
    now = [0.0]
    worker, source, _ = worker_on({0: rows(100)}, until_end=False, clock=lambda: now[0])
    worker.open()
    turn_until(worker, lambda: source.last_committed.get(0, 0) >= 50)
    at, source.committed_offsets[0] = source.last_committed[0], 20
    now[0] += CONFIRM_EVERY_S
    turn_until(worker, lambda: source.committed_offsets[0] == at)
    commits, source.committed_offsets[0] = len(source.commits), 120
    now[0] += CONFIRM_EVERY_S
    for _ in range(20):
        worker.turn()
    assert (len(source.commits), source.committed_offsets[0]) == (commits, 120), "we may be the one that lost it"


def test_an_error_while_sketching_ends_it_with_that_error_and_no_checkpoint_of_it() -> None:
    worker, _, _ = worker_on({0: rows(1000)})
    worker.open()
    turn_until(worker, lambda: worker.progress.checkpoints > 0)
    state = live(worker, 0)
    absorb = state.builder.absorb
    calls = [0]

    def fail_third(block: Any) -> int:
        calls[0] += 1
        if calls[0] == 3:
            absorb(block.take(0, block.rows // 2))
            raise MemoryError("too large")
        return absorb(block)

    state.builder.absorb = fail_third  # type: ignore[method-assign]
    with pytest.raises(MemoryError, match="too large"):
        worker.run()
    state = state_of(worker)
    assert state.rows == state.next_offset, "no half of a batch is in the store"


def test_a_row_that_needs_more_columns_than_fit_into_memory_is_refused_before_it_is_counted() -> None:
    """Of a growing matrix: one row with a large index must not take a gigabyte where 64 MiB are allowed."""
    shape = Shape(GrowingColumns(1024, 2**20), Parameters(1024, ell=50, buffer_entries_max=100))
    log = [*rows(100), encode_row([2**20 - 1])]
    worker, _, _ = worker_on({0: log}, shape=lambda _: shape, memory_max_bytes=64 * 2**20)
    with pytest.raises(RefusedStateError, match=r"rows/0.*1048576 columns.*raise worker\.memory_max_bytes") as refused:
        worker.run()
    assert "input.d_max" in str(refused.value)
    state = state_of(worker)
    assert (state.rows, state.next_offset, state.builder.d) == (100, 100, 1024)


def test_a_stored_state_with_more_columns_than_fit_into_memory_is_refused() -> None:
    shape = Shape(GrowingColumns(1024, 2**20), Parameters(1024, ell=50, buffer_entries_max=100))
    log, store = [*rows(20), encode_row([2**17 - 1])], MemoryStore(uuid.uuid4().hex)
    worker, _, _ = worker_on({0: log}, shape=lambda _: shape, store=store)
    worker.run()
    worker, _, _ = worker_on({0: log}, shape=lambda _: shape, store=store, memory_max_bytes=64 * 2**20)
    with pytest.raises(RefusedStateError, match=r"rows/0.*131072 columns"):
        worker.run()


@pytest.mark.parametrize("found_by", ["the loop", "a checkpoint"])
def test_rows_too_large_to_be_added_up_are_refused_with_the_repair_and_cost_no_other_partition(found_by: str) -> None:
    worker, source, _ = worker_on({0: rows(1000), 1: rows(300)})
    worker.open()
    turn_until(worker, lambda: worker.progress.checkpoints > 0 and reading(worker, 0))
    state = live(worker, 0)

    def overflow(_: Any) -> int:
        raise OverflowError("the squared Frobenius norm would exceed 1")

    state.builder.absorb = overflow  # type: ignore[method-assign]
    if found_by == "a checkpoint":
        worker.sketch.collect = lambda: None  # type: ignore[method-assign]
    with pytest.raises(RefusedStateError, match=r'norm.*run "sfd-stream checkpoint reset rows/0 --to latest"'):
        worker.run()
    state = state_of(worker)
    assert state.rows == state.next_offset
    assert state_of(worker, 1).rows == source.committed_offsets[1]


def test_a_checkpoint_due_right_after_a_failed_batch_writes_nothing() -> None:
    worker, _, _ = worker_on({0: rows(40)}, until_end=False)
    worker.open()
    turn_until(worker, lambda: worker.progress.rows == 40 and worker.sketch.idle and not worker.jobs)
    state = live(worker, 0)
    state._whole = False  # as a batch leaves it that failed in the middle
    before = newest(worker)
    worker._start_checkpoint(owned_by(worker, 0))
    with pytest.raises(AssertionError, match="half-way"):
        turn_until(worker, lambda: False)
    assert newest(worker) == before


def test_a_commit_that_fails_is_sent_again() -> None:
    worker, source, _ = worker_on({0: rows(10)})
    source.fail_commits = 2
    worker.run()
    assert source.committed_offsets == {0: 10}


def test_a_fenced_owner_drops_the_partition_writes_nothing_and_rejoins() -> None:
    worker, source, diary = worker_on({0: rows(10), 1: rows(10)}, until_end=False)
    worker.open()
    turn_until(worker, lambda: worker.progress.rows == 20)
    turn_until(worker, lambda: not worker.jobs)
    thief = another_claims(worker)
    source.logs[0] = rows(200)
    turn_until(worker, lambda: source.rejoins)
    [said] = diary.of("partition fenced, another owner has taken over")
    assert (said["partition"], said["epoch"], said["number"]) == (0, 1, 1), "as whom it was fenced"
    assert newest(worker) == thief, "it wrote nothing after the claim"
    assert worker.progress.fences == 1
    assert source.committed_offsets[0] == 0, "and committed nothing"
    turn_until(worker, lambda: reading(worker, 0) and source.positions[0] == 200)
    assert newest(worker, 1).next_offset == 10, "the others were given up with a last checkpoint"
    worker.stop()
    worker.run()
    assert state_of(worker).rows == 200


def test_tidying_up_notices_a_new_owner_too() -> None:
    worker, source, diary = worker_on({0: rows(10)}, until_end=False)
    worker.open()
    turn_until(worker, lambda: worker.progress.rows == 10)
    turn_until(worker, lambda: not worker.jobs)
    another_claims(worker)
    owned = owned_by(worker, 0)
    worker.jobs.start(owned, "retention", owned.chain.prune())
    turn_until(worker, lambda: source.rejoins)
    assert diary.said("partition fenced, another owner has taken over")


def test_no_right_to_delete_is_said_and_stops_nothing() -> None:
    class Locked(MemoryStore):
        def delete(self, key: str) -> None:
            raise StoreRefusedError(f"object lock on {key}")

    worker, _, diary = worker_on({0: rows(500)}, store=Locked("locked"))
    worker.run()
    assert diary.said("old checkpoints not deleted")
    assert state_of(worker).rows == 500


def test_a_store_that_is_away_pauses_reading_and_the_loop_goes_on() -> None:
    gate, away = threading.Event(), threading.Event()

    def reach(point: str) -> None:
        if point == "before-Put" and away.is_set():
            gate.wait(20)

    worker, source, _ = worker_on({0: rows(2000)}, reach=reach)
    away.set()
    worker.open()
    turn_until(worker, lambda: any(owned.store_behind for owned in worker.partitions))
    polls = source.polls
    turn_until(worker, lambda: source.polls == polls + 20)
    assert source.positions[0] <= 2 * PAUSED_AFTER * 50 + 20, "those of one checkpoint under way, and those after it"
    gate.set()
    turn_until(worker, lambda: source.positions[0] == 2000)
    worker.run()
    assert state_of(worker).rows == 2000


class Away(MemoryStore):
    away = False

    def put(self, key: str, data: bytes) -> None:
        if self.away:
            raise StoreUnavailableError("no route")
        super().put(key, data)


def test_a_store_that_is_away_is_counted_and_said_while_it_is() -> None:
    store = Away("outage")
    worker, _, diary = worker_on({0: rows(60)}, store=store, until_end=False)
    worker.open()
    turn_until(worker, lambda: reading(worker, 0))
    store.away = True

    def counted() -> float:
        value = worker.watch.meter.registry.get_sample_value
        return value("sfd_checkpoint_failures_total", {"kind": "unavailable"}) or 0.0

    turn_until(worker, lambda: counted() >= 2)
    said = diary.of("checkpoint store request failed, will retry")
    assert said[0] == {"partition": 0, "epoch": 1, "number": 1, "job": "checkpoint", "reason": "no route"}
    store.away = False
    worker.stop()
    worker.run()
    assert state_of(worker).rows == 60


def test_a_store_away_for_good_ends_it_after_its_patience() -> None:
    store = Away("away")
    worker, _, _ = worker_on({0: rows(10)}, store=store, give_up_s=0.2)
    store.away = True
    with pytest.raises(StoreUnavailableError, match="no route"):
        worker.run()


def test_a_revoke_leaves_a_last_checkpoint_and_no_commit_comes_after_it() -> None:
    worker, source, _ = worker_on({0: rows(30), 1: rows(30)}, until_end=False)
    worker.open()
    turn_until(worker, lambda: worker.progress.rows == 60)
    source.events.append(lambda: source.revoke([0]))
    turn_until(worker, lambda: worker.partitions.get(0) is None)
    assert newest(worker).next_offset == 30
    assert source.committed_offsets[0] == 30
    commits = [commit for commit in source.commits if commit[0] == 0]
    for _ in range(5):
        worker.turn()
    assert [commit for commit in source.commits if commit[0] == 0] == commits


@pytest.mark.parametrize(
    ("held_at", "made", "said"),
    [
        ("before-blobs", None, "partition released without final checkpoint"),
        ("after-manifest", 1.0, "partition released, all rows durable"),
    ],
)
def test_a_revoke_past_its_budget_lets_go_and_nothing_is_committed_later(
    held_at: str, made: float | None, said: str
) -> None:
    gate = threading.Event()
    worker, source, diary = worker_on(
        {0: rows(30)},
        until_end=False,
        revoke_budget_s=0.1,
        reach=lambda point: None if point != held_at else gate.wait(20) and None,
    )
    worker.open()
    turn_until(worker, lambda: worker.progress.rows == 30)
    source.events.append(lambda: source.revoke([0]))
    turn_until(worker, lambda: worker.partitions.get(0) is None)
    [let_go] = [line for line, _ in diary.lines if line.startswith("partition released")]
    assert let_go.startswith(said)
    counted = worker.watch.meter.registry.get_sample_value
    assert counted("sfd_checkpoints_total", {"partition": "0"}) == made
    assert counted("sfd_checkpoint_failures_total", {"kind": "abandoned"}) == (0 if made else 1)
    source.events.append(lambda: source._assign([0]))
    gate.set()
    turn_until(worker, lambda: reading(worker, 0))
    for _ in range(20):
        worker.turn()
    *first, last = source.commits
    assert last == (0, 30 if made else 0), "the second claim's own"
    assert first in ([], [(0, 0)]), "the first claim's own, if it was in time; not that of the released checkpoint"


def test_a_revoke_does_not_wait_for_a_claim() -> None:
    """There is nothing to save, and a claim that reads a long output topic would hold up the whole group."""
    gate, reached = threading.Event(), threading.Event()

    def reach(point: str) -> None:
        if point == "before-CreateIfAbsent" and not reached.is_set():
            reached.set()
            gate.wait(60)

    worker, source, _ = worker_on({0: rows(30)}, until_end=False, reach=reach)
    worker.open()
    turn_until(worker, reached.is_set)
    waits: list[float] = []
    wait = worker.runtime.wait
    object.__setattr__(worker.runtime, "wait", lambda seconds: waits.append(seconds) or wait(seconds))
    worker.on_revoke([0])
    assert worker.partitions.get(0) is None
    assert not waits, "the loop waits for the claim"
    source.held.clear()
    gate.set()
    source.events.append(lambda: source._assign([0]))
    turn_until(worker, lambda: worker.progress.rows == 30)


def test_a_lost_partition_writes_nothing_more() -> None:
    worker, source, _ = worker_on({0: rows(30)}, until_end=False)
    worker.open()
    turn_until(worker, lambda: worker.progress.rows == 30)
    before = newest(worker)
    worker.on_lost([0])
    worker.stop()
    source.positions.clear()
    worker.run()
    assert newest(worker) == before


def test_a_broker_that_does_not_answer_is_asked_again_and_the_loop_is_not_held_up() -> None:
    worker, source, _ = worker_on({0: rows(10)})
    asked = [0]
    answer = source.watermarks

    def slow(partition: int, timeout_s: float) -> tuple[int, int]:
        asked[0] += 1
        assert threading.current_thread() is not threading.main_thread(), "the loop would wait for it"
        if asked[0] < 4:
            raise TimeoutError("not now")
        return answer(partition, timeout_s)

    source.watermarks = slow  # type: ignore[method-assign]
    worker.run()
    assert asked[0] == 4
    assert state_of(worker).rows == 10


def test_a_broker_that_never_answers_a_claim_is_given_up() -> None:
    worker, source, _ = worker_on({0: rows(10)}, give_up_s=0.1)

    def never(partition: int, timeout_s: float) -> tuple[int, int]:
        raise TimeoutError("broker did not answer")

    source.watermarks = never  # type: ignore[method-assign]
    with pytest.raises(BrokerRefusedError, match=r"did not answer, and not for 0\.1 s"):
        worker.run()


def test_a_worker_that_is_stopped_while_the_broker_is_unavailable_ends() -> None:
    worker, source, _ = worker_on({0: rows(10)}, give_up_s=3600)

    def never(timeout_s: float) -> str:
        worker.stop()
        raise TimeoutError("broker did not answer")

    source.cluster_id = never  # type: ignore[method-assign]
    worker.run()
    assert source.positions == {}, "nothing was read"


def test_a_long_shrink_pauses_reading_and_never_polling(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sfd_stream.worker.sketch_thread.PATIENCE_S", 0.01)
    monkeypatch.setattr("sfd_stream.worker.sketch_thread.AHEAD_ENTRIES", 100)
    worker, source, _ = worker_on({0: rows(2000)})
    worker.open()
    turn_until(worker, lambda: worker.progress.rows > 0)
    gate = threading.Event()
    worker.runtime.sketch.submit(gate.wait, 20)
    turn_until(worker, lambda: 0 in source.paused)
    at, polls = source.positions[0], source.polls
    for _ in range(10):
        worker.turn()
    assert (source.positions[0], source.polls) == (at, polls + 10)
    gate.set()
    worker.run()
    assert state_of(worker).rows == 2000


def test_an_exception_in_a_rebalance_ends_it() -> None:
    worker, _, _ = worker_on({0: rows(10)})

    def broken(_: int) -> Any:
        raise LookupError("no such shape")

    object.__setattr__(worker.plan, "shape", broken)
    with pytest.raises(LookupError, match="no such shape"):
        worker.run()


@pytest.mark.parametrize("waits_for", ["broker", "store"])
def test_a_claim_that_does_not_progress_is_logged_and_visible(monkeypatch: pytest.MonkeyPatch, waits_for: str) -> None:
    """An answer that never comes: no lag is known, nothing fails, and the loop goes on turning."""
    now, gate = [1_000.0], threading.Event()

    def reach(point: str) -> None:
        if waits_for == "store" and point == "before-CreateIfAbsent":
            gate.wait(60)

    worker, source, diary = worker_on(
        {0: rows(10)}, until_end=False, reach=reach, clock=lambda: now[0] + time.monotonic() % 1e-3, give_up_s=600.0
    )
    if waits_for == "broker":

        def silent(*_: Any) -> Any:
            if gate.wait(0.01):
                return 0, 10
            raise TimeoutError("b:1 did not answer within 5 s (no answer)")

        monkeypatch.setattr(source, "watermarks", silent)
    worker.watch.clock = worker.runtime.clock
    worker.open()

    def shown() -> Any:
        return worker.watch.status.partitions[0]

    def step() -> str:
        running = worker.jobs.of(owned_by(worker, 0))
        assert running is not None
        return running.wait.what

    wanted = "AskLog" if waits_for == "broker" else "CreateIfAbsent"
    worker.turn()
    turn_until(worker, lambda: step() == wanted)
    now[0] += 10
    worker.turn()
    assert not diary.said("partition claim does not progress")
    assert (shown().state, shown().stuck_s) == ("claiming", 0.0)
    now[0] += 25
    worker.turn()
    told = diary.of("partition claim does not progress")
    assert [(line["partition"], line["step"], line["for_s"]) for line in told] == [(0, wanted, 35)]
    assert "did not answer" in told[0]["reason"] or waits_for == "store"
    assert shown().stuck_s >= 35
    assert (shown().job, shown().waits_for, shown().waits_s > 34) == ("claim", wanted, True)
    assert worker.watch.status.doing == "stuck: the claim of partition 0 does not progress"
    now[0] += 20
    worker.turn()
    assert len(diary.of("partition claim does not progress")) == 1, "not in a flood"
    now[0] += 20
    worker.turn()
    assert len(diary.of("partition claim does not progress")) == 2, "but as long as it lasts"
    gate.set()
    turn_until(worker, lambda: reading(worker, 0) and not worker.jobs)
    now[0] += 2
    worker.turn()
    assert (shown().state, shown().stuck_s, shown().job) == ("reading", 0.0, None)
    worker.stop()
    source.close(5.0)
