"""The keeper on a store that fails: at whichever call, before or after its effect, nothing is lost or doubled."""

from __future__ import annotations

import time
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from sfd_stream.errors import FencedError, RefusedStateError
from sfd_stream.service.keeper import AbandonedError, Keeper, Surroundings
from sfd_stream.sketch.builder import Parameters
from sfd_stream.state.manifest import Binding, decode_manifest, manifests_prefix
from sfd_stream.state.partition import PartitionState, Shape
from sfd_stream.state.steps import AskCommitted, AskLog, LogFacts, Question
from sfd_stream.storage import Store
from sfd_stream.storage.memory import MemoryStore
from sfd_stream.wire.columns import FixedColumns
from sfd_stream.wire.rows import decode
from tests.service.fakes import D, rows
from tests.storage.faults import FailAfter, FailBefore, FaultyStore

BINDING = Binding("cluster", "topic-id", "group", "rows", 0)
SHAPE = Shape(FixedColumns(D), Parameters(D, ell=4, buffer_entries_max=100))


def around(store: Store, reach: Any = lambda _: None) -> Surroundings:
    return Surroundings(store, ThreadPoolExecutor(1), time.monotonic, lambda: 0.0, time.sleep, 5.0, 2, reach)


def keeper_on(store: Store, reach: Any = lambda _: None) -> Keeper:
    return Keeper("group", "rows", 0, around(store, reach))


def answer(question: Question) -> Any:
    return LogFacts(0, 10**6) if isinstance(question, AskLog) else None


def claim(keeper: Keeper) -> PartitionState:
    return keeper.claim(BINDING, SHAPE, "earliest", answer)


def take(state: PartitionState, count: int) -> None:
    values = [value for value in rows(count) if value is not None]
    state.apply(decode(values, state.columns), state.next_offset + count, None, 0)


def life(store: Store) -> None:
    """A claim, checkpoints and tidying, twice."""
    for _ in range(2):
        keeper = keeper_on(store)
        state = claim(keeper)
        keeper.tidy()
        for count in (30, 70, 5):
            take(state, count)
            keeper.make_durable(state.freeze(), BINDING)
            keeper.tidy()


def left_in(store: Store) -> Any:
    state = claim(keeper_on(store))
    return state.rows, state.next_offset, state.sketch()


def calls_of_a_life() -> int:
    store = FaultyStore(MemoryStore("count"))
    life(store)
    return len(store.calls)


@pytest.mark.parametrize("fault", [FailBefore, FailAfter])
def test_one_failed_call_anywhere_changes_nothing(fault: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sfd_stream.service.keeper.random.uniform", lambda *_: 0.001)
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
    old, new = keeper_on(store), keeper_on(store)
    state = claim(old)
    claim(new)
    take(state, 10)
    with pytest.raises(FencedError, match="rows/0"):
        old.make_durable(state.freeze(), BINDING)
    with pytest.raises(FencedError):
        old.tidy()
    manifests = [decode_manifest(store.get(key)) for key in store.list(manifests_prefix("group/rows/0"))]
    assert manifests[-1] == new.manifest


def test_after_it_was_abandoned_nothing_is_sent() -> None:
    store = FaultyStore(MemoryStore("abandoned"))
    keeper = keeper_on(store)
    state = claim(keeper)
    take(state, 10)
    calls = len(store.calls)
    keeper.abandoned.set()
    with pytest.raises(AbandonedError):
        keeper.make_durable(state.freeze(), BINDING)
    with pytest.raises(AbandonedError):
        keeper.tidy()
    assert len(store.calls) == calls


def test_a_topic_made_again_between_two_checkpoints_is_refused() -> None:
    keeper = keeper_on(MemoryStore("again"))
    state = claim(keeper)
    take(state, 10)
    other = Binding("cluster", "another-id", "group", "rows", 0)
    with pytest.raises(RefusedStateError, match="deleted and made again"):
        keeper.make_durable(state.freeze(), other)


def test_every_request_is_a_named_point() -> None:
    points: list[str] = []
    keeper = keeper_on(MemoryStore("points"), points.append)
    state = claim(keeper)
    take(state, 10)
    keeper.make_durable(state.freeze(), BINDING)
    assert {"before-List", "after-List", "before-CreateIfAbsent", "after-CreateIfAbsent", "before-blobs"} <= set(points)
    assert points.index("before-Put") < points.index("after-Put") < len(points) - points[::-1].index("before-List")


def test_a_commit_without_a_checkpoint_is_refused_before_anything_is_written() -> None:
    store = MemoryStore("committed")
    keeper = keeper_on(store)
    with pytest.raises(RefusedStateError, match="committed offset 7"):
        keeper.claim(BINDING, SHAPE, "earliest", lambda q: 7 if isinstance(q, AskCommitted) else answer(q))
    assert store.list("group") == []
