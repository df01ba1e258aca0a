"""A chain of checkpoints on a store that fails: at any call, before or after its effect, nothing is lost or doubled."""

from __future__ import annotations

import threading
from typing import Any

import pytest

from sfd_stream.errors import FencedError, RefusedStateError
from sfd_stream.loop.jobs import Jobs
from sfd_stream.loop.runtime import Runtime
from sfd_stream.sketch.builder import Parameters
from sfd_stream.state.manifest import Binding, Manifest, decode_manifest, manifests_prefix
from sfd_stream.state.partition import PartitionState, Shape
from sfd_stream.state.steps import AskCommitted
from sfd_stream.storage.contract import Store
from sfd_stream.storage.memory import MemoryStore
from sfd_stream.wire.columns import FixedColumns
from sfd_stream.wire.rows.decode import decode
from sfd_stream.worker.checkpoint_chain import CheckpointChain
from tests.system.fakes import D, plan_of, rows
from tests.unit.storage.faults import FailAfter, FailBefore, FaultyStore
from tests.unit.worker.chains import a_log, answering, chain_on, driven

BINDING = Binding("cluster", "topic-id", "group", "rows", 0)
SHAPE = Shape(FixedColumns(D), Parameters(D, ell=4, buffer_entries_max=100))


def claim(chain: CheckpointChain) -> PartitionState:
    return driven(chain.claim(BINDING, SHAPE, "earliest", answering(a_log)))[0]


def write(chain: CheckpointChain, state: PartitionState, binding: Binding = BINDING) -> Manifest:
    return driven(chain.write(state.freeze(), binding))


def take(state: PartitionState, count: int) -> None:
    values = [value for value in rows(count) if value is not None]
    state.apply(decode(values, state.columns), state.next_offset + count, None, 0)


def life(store: Store) -> None:
    """A claim, checkpoints and tidying, twice."""
    for _ in range(2):
        chain = chain_on(store)
        state = claim(chain)
        driven(chain.prune())
        for count in (30, 70, 5):
            take(state, count)
            write(chain, state)
            driven(chain.prune())


def left_in(store: Store) -> Any:
    state = claim(chain_on(store))
    return state.rows, state.next_offset, state.sketch()


def calls_of_a_life() -> int:
    store = FaultyStore(MemoryStore("count"))
    life(store)
    return len(store.calls)


@pytest.mark.parametrize("fault", [FailBefore, FailAfter])
def test_one_failed_call_anywhere_changes_nothing(fault: Any) -> None:
    wanted = MemoryStore("wanted")
    life(wanted)
    expected = left_in(wanted)
    assert expected[0] == 210
    for number in range(1, calls_of_a_life() + 1):
        inner = MemoryStore(f"faulty-{number}")
        life(FaultyStore(inner, {number: fault()}))
        assert left_in(inner) == expected, f"call {number}"


def test_the_old_owner_is_fenced_by_a_new_claim_whatever_it_does_next() -> None:
    store = MemoryStore("fence")
    old, new = chain_on(store), chain_on(store)
    state = claim(old)
    claim(new)
    take(state, 10)
    with pytest.raises(FencedError, match="rows/0"):
        write(old, state)
    with pytest.raises(FencedError):
        driven(old.prune())
    manifests = [decode_manifest(store.get(key)) for key in store.list(manifests_prefix("group/rows/0"))]
    assert manifests[-1] == new.manifest


def test_a_snapshot_that_the_next_owner_has_pruned_is_no_damage() -> None:
    """A paused owner that wanted to publish it again ended with exit 3 (seed 40459 of the simulator)."""
    store = MemoryStore("pruned snapshot")
    old, new = chain_on(store), chain_on(store)
    state = claim(old)
    take(state, 10)
    driven(old.write(state.freeze(), BINDING, b"its snapshot"))
    assert driven(old.snapshot_bytes()) == b"its snapshot"
    store.delete(old.newest.due.blob.key)  # type: ignore[union-attr]
    with pytest.raises(RefusedStateError, match="is missing"):
        driven(old.snapshot_bytes())
    store.put(old.newest.due.blob.key, b"its snapshot")  # type: ignore[union-attr]
    claim(new)
    store.delete(old.newest.due.blob.key)  # type: ignore[union-attr]
    with pytest.raises(FencedError):
        driven(old.snapshot_bytes())


@pytest.mark.parametrize("held_at", ["before-blobs", "before-Put", "after-Put", "before-CreateIfAbsent"])
def test_after_its_job_was_cancelled_nothing_more_is_sent_than_the_request_under_way(held_at: str) -> None:
    reached, gate = threading.Event(), threading.Event()

    def reach(point: str) -> None:
        if point == held_at:
            reached.set()
            gate.wait(20)

    store = FaultyStore(MemoryStore(f"cancelled {held_at}"))
    state = claim(chain_on(store))
    take(state, 10)
    runtime = Runtime(store, reach, wall_clock=lambda: 0.0)
    chain, jobs = CheckpointChain(plan_of(), 0, runtime), Jobs[str](runtime)
    chain.manifest = decode_manifest(store.get(store.list(manifests_prefix("group/rows/0"))[-1]))
    jobs.start("0", "checkpoint", chain.write(state.freeze(), BINDING))
    jobs.advance()
    assert reached.wait(20)
    calls = len(store.calls)
    jobs.cancel("0")
    gate.set()
    runtime.io.shutdown(wait=True)
    assert len(store.calls) <= calls + (held_at.startswith("before-") and held_at != "before-blobs")
    assert not jobs.advance(), "a job is not advanced after its release"


def test_a_topic_made_again_between_two_checkpoints_is_refused() -> None:
    chain = chain_on(MemoryStore("again"))
    state = claim(chain)
    take(state, 10)
    other = Binding("cluster", "another-id", "group", "rows", 0)
    with pytest.raises(RefusedStateError, match="deleted and created again"):
        write(chain, state, other)


def test_every_request_is_a_named_point() -> None:
    points: list[str] = []
    chain = chain_on(MemoryStore("points"), reach=points.append)
    state = claim(chain)
    take(state, 10)
    write(chain, state)
    assert {"before-List", "after-List", "before-CreateIfAbsent", "after-CreateIfAbsent", "before-blobs"} <= set(points)
    assert points.index("before-Put") < points.index("after-Put") < len(points) - points[::-1].index("before-List")


def test_a_commit_without_a_checkpoint_is_refused_before_anything_is_written() -> None:
    store = MemoryStore("committed")
    chain = chain_on(store)
    with pytest.raises(RefusedStateError, match="committed offset 7"):
        driven(
            chain.claim(BINDING, SHAPE, "earliest", answering(lambda q: 7 if isinstance(q, AskCommitted) else a_log(q)))
        )
    assert store.list("group") == []
