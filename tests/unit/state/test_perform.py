"""A procedure run to its end: answers as the store gives them, delays that grow, an end to waiting."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import pytest

from sfd_stream.errors import ObjectExistsError, ObjectMissingError, StoreRefusedError, StoreUnavailableError
from sfd_stream.state.claim import Claimed, Wish, assign
from sfd_stream.state.manifest import manifest_key
from sfd_stream.state.perform import Patience, run
from sfd_stream.state.protocol import Created, create
from sfd_stream.state.retention import Removed, retain
from sfd_stream.state.steps import AskCommitted, AskLog, AskOutputEpoch, Fenced, LogFacts
from tests.unit.state.chains import BINDING, PREFIX, Memory, genesis, grown

if TYPE_CHECKING:
    from collections.abc import Callable


@dataclass
class FakeStore:
    """A store in memory; an error may be raised before a numbered call, or after it was done."""

    objects: dict[str, bytes] = field(default_factory=dict)
    before: dict[int, Exception] = field(default_factory=dict)
    after: dict[int, Exception] = field(default_factory=dict)
    calls: int = 0

    def _call(self, action: Callable[[], Any]) -> Any:
        self.calls += 1
        if self.calls in self.before:
            raise self.before[self.calls]
        result = action()
        if self.calls in self.after:
            raise self.after[self.calls]
        return result

    def create_if_absent(self, key: str, data: bytes) -> None:
        def action() -> None:
            if key in self.objects:
                raise ObjectExistsError(key)
            self.objects[key] = data

        self._call(action)

    def put(self, key: str, data: bytes) -> None:
        self._call(lambda: self.objects.__setitem__(key, data))

    def get(self, key: str) -> bytes:
        def action() -> bytes:
            if key not in self.objects:
                raise ObjectMissingError(key)
            return self.objects[key]

        return self._call(action)  # type: ignore[no-any-return]

    def list(self, prefix: str, *, start_after: str | None = None) -> list[str]:
        keys = (key for key in self.objects if key.startswith(prefix))
        return self._call(lambda: sorted(k for k in keys if start_after is None or k > start_after))  # type: ignore[no-any-return]

    def delete(self, key: str) -> None:
        self._call(lambda: self.objects.pop(key, None))


@dataclass
class Clock:
    now_s: float = 0.0
    pauses: list[float] = field(default_factory=list)

    def patience(self) -> Patience:
        return Patience(give_up_s=10.0, clock=lambda: self.now_s, pause=self.pause, jitter=lambda: 1.0)

    def pause(self, seconds: float) -> None:
        self.pauses.append(seconds)
        self.now_s += seconds


AWAY = StoreUnavailableError("no answer")


def test_an_undisturbed_create() -> None:
    store, clock = FakeStore(), Clock()
    assert run(create(PREFIX, genesis()), store, clock.patience()) == Created(genesis())
    assert list(store.objects) == [manifest_key(PREFIX, 1)]
    assert clock.pauses == []


@pytest.mark.parametrize("at", [1, 2])
@pytest.mark.parametrize("when", ["before", "after"])
def test_trouble_at_any_call_changes_nothing(at: int, when: str) -> None:
    store, clock = FakeStore(), Clock()
    getattr(store, when)[at] = AWAY
    assert run(create(PREFIX, genesis()), store, clock.patience()) == Created(genesis())
    assert list(store.objects) == [manifest_key(PREFIX, 1)]


def test_waits_double_up_to_a_limit_and_end() -> None:
    store, clock = FakeStore(before=dict.fromkeys(range(1, 99), AWAY)), Clock()
    with pytest.raises(StoreUnavailableError):
        run(create(PREFIX, genesis()), store, clock.patience())
    assert clock.pauses[:4] == [0.1, 0.2, 0.4, 0.8]
    assert max(clock.pauses) <= 5.0
    assert 10.0 <= clock.now_s < 16.0


def test_patience_begins_again_when_the_store_answers_twice() -> None:
    store, clock = FakeStore(), Clock()
    store.before = {call: AWAY for call in range(1, 13) if call % 7 not in (6, 0)}
    assert run(create(PREFIX, genesis()), store, clock.patience()) == Created(genesis())
    assert clock.pauses == [0.1, 0.2, 0.4, 0.8, 1.6] * 2


def test_a_full_store_that_still_answers_reads_is_not_asked_without_end() -> None:
    """Between two attempts to create a manifest its slot is read, which succeeds."""
    store, clock = FakeStore(before=dict.fromkeys(range(1, 999, 2), AWAY)), Clock()
    with pytest.raises(StoreUnavailableError):
        run(create(PREFIX, genesis()), store, clock.patience())
    assert clock.pauses[:4] == [0.1, 0.2, 0.4, 0.8]
    assert 10.0 <= clock.now_s < 16.0


def test_what_will_not_pass_by_waiting_is_not_waited_for() -> None:
    store, clock = FakeStore(before={1: StoreRefusedError("no rights")}), Clock()
    with pytest.raises(StoreRefusedError):
        run(create(PREFIX, genesis()), store, clock.patience())
    assert clock.pauses == []


def test_a_pause_that_raises_ends_the_procedure() -> None:
    def stop(_: float) -> None:
        raise TimeoutError

    patience = Patience(give_up_s=10.0, clock=lambda: 0.0, pause=stop, jitter=lambda: 1.0)
    with pytest.raises(TimeoutError):
        run(create(PREFIX, genesis()), FakeStore(before={1: AWAY}), patience)


def test_assign_asks_the_broker_and_waits_before_it_asks_again() -> None:
    memory = Memory()
    newest = grown(memory, states=3)[-1]
    store, clock, asked = FakeStore(memory.objects), Clock(), []

    def ask(question: Any) -> Any:
        asked.append(question)
        return None if question == AskOutputEpoch(needed=False) else LogFacts(0, 0 if len(asked) < 2 else 9)

    wish = Wish(
        PREFIX,
        BINDING,
        newest.parameters,
        "earliest",
        lambda _, sketch, buffer: (sketch, buffer),
        iter(["n"]),
        0.0,
    )
    outcome = run(assign(wish), store, clock.patience(), ask=ask)
    assert isinstance(outcome, Claimed)
    assert outcome.state == (b"sketch2", ())
    assert asked == [AskLog(), AskLog(again=True), AskOutputEpoch(needed=False)]
    assert clock.pauses == [0.8]


def test_a_first_owner_is_answered_too() -> None:
    answers = {AskCommitted(): None, AskLog(): LogFacts(4, 9), AskOutputEpoch(): 2}
    wish = Wish(PREFIX, BINDING, {}, "latest", lambda *_: "empty", iter(["n"]), 0.0)
    outcome = run(assign(wish), FakeStore(), Clock().patience(), ask=answers.__getitem__)
    assert isinstance(outcome, Claimed)
    assert (outcome.manifest.epoch, outcome.manifest.next_offset) == (3, 9)


def test_retention_and_a_lost_race_on_a_store() -> None:
    memory = Memory()
    chain = grown(memory, states=3)
    store = FakeStore(memory.objects)
    assert run(create(PREFIX, genesis()), store, Clock().patience()) == Fenced(1)
    outcome = run(retain(PREFIX, keep=1, own=chain[-1], where="rows/0"), store, Clock().patience())
    assert isinstance(outcome, Removed)
    assert outcome.manifests == 2
