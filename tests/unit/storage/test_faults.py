"""The fault injector does what its names say: else the protocol's tests would prove nothing."""

from __future__ import annotations

import pytest

from sfd_stream.errors import ObjectExistsError, StoreUnavailableError
from sfd_stream.storage.contract import Store
from sfd_stream.storage.memory import MemoryStore
from tests.unit.storage.faults import Call, Crash, Duplicate, FailAfter, FailBefore, FaultyStore, Late, Pause


@pytest.fixture
def inner() -> Store:
    return MemoryStore("faults")


def test_without_faults_it_is_the_store_itself_and_notes_each_call(inner: Store) -> None:
    store = FaultyStore(inner)
    store.create_if_absent("a/1", b"x")
    store.put("a/2", b"y")
    assert store.get("a/1") == b"x"
    assert store.list("a", start_after="a/1") == ["a/2"]
    store.delete("a/1")
    assert [call.verb for call in store.calls] == ["create_if_absent", "put", "get", "list", "delete"]
    assert store.calls[0] == Call("create_if_absent", "a/1")


def test_fail_before_has_no_effect_and_fail_after_has(inner: Store) -> None:
    store = FaultyStore(inner, {1: FailBefore(), 2: FailAfter()})
    with pytest.raises(StoreUnavailableError):
        store.create_if_absent("a/1", b"x")
    assert inner.list("a") == []
    with pytest.raises(StoreUnavailableError):
        store.create_if_absent("a/1", b"x")
    assert inner.list("a") == ["a/1"]
    with pytest.raises(ObjectExistsError):
        store.create_if_absent("a/1", b"x")


def test_a_crash_is_no_exception_that_code_may_swallow(inner: Store) -> None:
    store = FaultyStore(inner, {1: FailAfter(Crash)})
    with pytest.raises(Crash):
        store.put("a/1", b"x")
    assert not issubclass(Crash, Exception)
    assert inner.get("a/1") == b"x"


def test_a_duplicate_revives_what_was_deleted_meanwhile(inner: Store) -> None:
    store = FaultyStore(inner, {1: Duplicate(calls=2)})
    store.create_if_absent("a/1", b"x")
    store.delete("a/1")
    assert inner.list("a") == []
    assert store.list("a") == ["a/1"]


def test_a_late_write_arrives_after_its_answer_was_given_up(inner: Store) -> None:
    store = FaultyStore(inner, {1: Late(calls=5)})
    with pytest.raises(StoreUnavailableError):
        store.create_if_absent("a/1", b"old")
    assert store.list("a") == []
    store.deliver_all()
    assert store.get("a/1") == b"old"


def test_a_late_create_that_meets_another_is_dropped_in_silence(inner: Store) -> None:
    store = FaultyStore(inner, {1: Late(calls=2)})
    with pytest.raises(StoreUnavailableError):
        store.create_if_absent("a/1", b"late")
    store.create_if_absent("a/1", b"new")
    assert store.get("a/1") == b"new"


def test_a_pause_lets_others_act_before_and_after_the_effect(inner: Store) -> None:
    seen: list[list[str]] = []
    look = Pause(before=lambda: seen.append(inner.list("a")), after=lambda: seen.append(inner.list("a")))
    FaultyStore(inner, {1: look}).put("a/1", b"x")
    assert seen == [[], ["a/1"]]
