"""The probe finds out stores that break a promise, each in the one way it breaks it."""

from __future__ import annotations

import threading

import pytest

from sfd_stream.errors import ObjectExistsError, ObjectMissingError, StoreRefusedError, StoreUnavailableError
from sfd_stream.storage.contract import Store
from sfd_stream.storage.memory import MemoryStore
from sfd_stream.storage.probe import probe_store
from tests.unit.storage.faults import FailAfter, FaultyStore


class OverwritesOnCreate(MemoryStore):
    """As a server that does not know If-None-Match."""

    def create_if_absent(self, key: str, data: bytes) -> None:
        self.put(key, data)


class ChecksThenWrites(MemoryStore):
    """As a server that checks the condition first and writes later: right for one, wrong for two at once."""

    def __init__(self, name: str, racers: int) -> None:
        super().__init__(name)
        self._all_checked = threading.Barrier(racers)

    def create_if_absent(self, key: str, data: bytes) -> None:
        try:
            self.get(key)
        except ObjectMissingError:
            self._all_checked.wait(10)
            self.put(key, data)
        else:
            raise ObjectExistsError(key)


class ListsLate(MemoryStore):
    def list(self, prefix: str, *, start_after: str | None = None) -> list[str]:
        return super().list(prefix, start_after=start_after)[1:]


class IgnoresStartAfter(MemoryStore):
    def list(self, prefix: str, *, start_after: str | None = None) -> list[str]:
        return super().list(prefix, start_after=start_after and "")


class DeletesLate(MemoryStore):
    def delete(self, key: str) -> None:
        pass


class ReadsOther(MemoryStore):
    def get(self, key: str) -> bytes:
        return super().get(key)[:-1]


@pytest.mark.parametrize(
    ("store", "what"),
    [
        (OverwritesOnCreate("x"), "let 4 of 4 racing writers create"),
        (ChecksThenWrites("x", 4), "let 4 of 4 racing writers create"),
        (ListsLate("x"), "does not list what was written"),
        (IgnoresStartAfter("x"), "lists keys before start_after"),
        (DeletesLate("x"), "still reads what was deleted"),
        (ReadsOther("x"), "does not read back|let 0 of 4"),
    ],
    ids=lambda value: type(value).__name__,
)
def test_a_broken_promise_is_found_and_named(store: Store, what: str) -> None:
    with pytest.raises(StoreRefusedError, match=what):
        probe_store(store, "nonce", writers=4)


def test_a_lost_answer_does_not_make_a_good_store_look_bad() -> None:
    store = FaultyStore(MemoryStore("x"), {1: FailAfter()})
    probe_store(store, "nonce", writers=4)
    assert store.list("") == []


def test_a_store_that_is_away_is_not_called_bad() -> None:
    away = FaultyStore(MemoryStore("x"), dict.fromkeys(range(1, 100), FailAfter()))
    with pytest.raises(StoreUnavailableError):
        probe_store(away, "nonce", writers=4)
