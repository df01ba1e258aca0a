"""Repairs of a partition's state in a store: each appends a manifest of a higher epoch, and nothing is rewritten."""

from __future__ import annotations

import uuid

import pytest

from sfd_stream.errors import FencedError, RefusedStateError
from sfd_stream.state.manifest import Kind
from sfd_stream.state.perform import Patience
from sfd_stream.state.repair import ResetPoint
from sfd_stream.state.steps import Fenced
from sfd_stream.storage.memory import MemoryStore
from sfd_stream.tools import repair
from sfd_stream.tools.inspect import Place, stand
from sfd_stream.tools.repair import TRIES, StoreSession
from tests.unit.state.chains import BINDING, Memory, grown

PLACE = Place("group", "rows", 0)


def bench(states: int = 3) -> StoreSession:
    """A store with a chain of this many states."""
    memory, store = Memory(), MemoryStore(uuid.uuid4().hex)
    grown(memory, states=states)
    for key, data in memory.objects.items():
        store.put(key, data)
    return StoreSession(store, Patience(5.0, lambda: 0.0, lambda _: None, lambda: 1.0), lambda: 99.0)


def test_a_rollback_is_a_new_manifest_of_an_older_state() -> None:
    one = bench()
    before = one.run(stand(PLACE))
    target = one.rollback_target(PLACE)
    made = one.roll_back(PLACE, target.number)
    assert made.number == before.numbers[-1] + 1
    assert made.next_offset == target.next_offset
    assert before.newest is not None
    assert made.epoch > target.epoch, "a running owner is fenced"
    assert one.run(stand(PLACE)).numbers == (*before.numbers, made.number), "nothing is removed"


def test_a_reset_reads_from_an_offset_with_an_empty_sketch() -> None:
    made = bench().reset(PLACE, ResetPoint(BINDING, 500, None, {"ell": 4, "d": 10}, None), keep_sketch=False)
    assert (made.kind, made.next_offset, made.sketch, made.written_at_s) == (Kind.RESET, 500, None, 99.0)


def test_pruning_keeps_the_newest() -> None:
    one = bench(states=5)
    newest = one.run(stand(PLACE)).numbers[-1]
    assert one.prune(PLACE, 1).manifests > 0
    assert one.run(stand(PLACE)).numbers[-1] == newest


def test_a_checkpoint_that_does_not_exist_is_refused() -> None:
    with pytest.raises(RefusedStateError):
        bench().roll_back(PLACE, 77)


def test_an_owner_that_is_always_first_ends_the_attempts(monkeypatch: pytest.MonkeyPatch) -> None:
    attempts = []

    def fenced(*_: object, **__: object) -> object:
        attempts.append(1)
        yield from ()
        return Fenced(8)

    monkeypatch.setattr(repair, "rollback", fenced)
    with pytest.raises(FencedError, match="stop the workers of its group and try again"):
        bench().roll_back(PLACE, 2)
    assert len(attempts) == TRIES
