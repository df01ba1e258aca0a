"""Drives a procedure of `state/` on a real store and a real broker; waits where the answer is not to be had.

The procedure decides what is sent again; here is decided how long to wait in between, and when to give up.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

from sfd_stream.errors import ObjectExistsError, ObjectMissingError, StoreUnavailableError
from sfd_stream.state.steps import (
    Answer,
    AskLog,
    CreateIfAbsent,
    Delete,
    Get,
    GetMany,
    List,
    Put,
    Question,
    Steps,
    StoreRequest,
)

if TYPE_CHECKING:
    from collections.abc import Callable
    from concurrent.futures import Executor

T = TypeVar("T")


class Store(Protocol):
    """The part of the stores' contract that the protocol needs."""

    def create_if_absent(self, key: str, data: bytes) -> None: ...
    def put(self, key: str, data: bytes) -> None: ...
    def get(self, key: str) -> bytes: ...
    def list(self, prefix: str, *, start_after: str | None = None) -> list[str]: ...
    def delete(self, key: str) -> None: ...


ANSWERS_AGAIN = 2
"""A store is available again after this many answers in a row. One is not enough: a full or read-only one answers the
read between two attempts to write, and would be asked again and again without a pause or an end."""


@dataclass(frozen=True)
class Patience:
    """How waiting goes: from `first_s` doubling to `longest_s`, each times `jitter()` in [0.5, 1].

    `failed` hears of every attempt that is made again; the last one is raised.
    """

    give_up_s: float
    clock: Callable[[], float]
    pause: Callable[[float], None]
    jitter: Callable[[], float]
    failed: Callable[[StoreUnavailableError], None] = lambda _: None
    first_s: float = 0.1
    longest_s: float = 5.0

    def wait(self, attempt: int) -> None:
        self.pause(min(self.longest_s, self.first_s * 2.0 ** min(attempt, 30)) * self.jitter())


def no_broker(question: Question) -> Any:
    """For procedures that ask nothing of a broker: all but `assign`."""
    raise AssertionError(f"asked {question} without a broker")


def run(
    steps: Steps[T],
    store: Store,
    patience: Patience,
    *,
    ask: Callable[[Question], Any] = no_broker,
    readers: Executor | None = None,
) -> T:
    """The outcome of `steps`. Raises StoreUnavailableError once the store was away for `give_up_s` on end.

    `readers`, if given, reads the many blobs of a state side by side. To stop in between (a deadline, a
    revoked partition), let `patience.pause` raise: what was sent may still happen, and does no harm.
    """
    away_since: float | None = None
    failures = answers = 0
    answer: Any = None
    while True:
        try:
            request = steps.send(answer)
        except StopIteration as stop:
            outcome: T = stop.value
            return outcome
        if isinstance(request, Question):
            answer = _ask(request, ask, patience)
            continue
        try:
            answer = _perform(request, store, readers)
        except StoreUnavailableError as error:
            now = patience.clock()
            away_since = now if away_since is None else away_since
            if now - away_since >= patience.give_up_s:
                raise
            patience.failed(error)
            patience.wait(failures)
            failures, answers = failures + 1, 0
            answer = Answer.UNKNOWN
        else:
            answers += 1
            if answers >= ANSWERS_AGAIN:
                away_since, failures = None, 0


def _ask(question: Question, ask: Callable[[Question], Any], patience: Patience) -> Any:
    if isinstance(question, AskLog) and question.again:
        patience.wait(3)
    return ask(question)


def _perform(request: StoreRequest, store: Store, readers: Executor | None) -> Any:
    match request:
        case List(prefix, start_after):
            return store.list(prefix, start_after=start_after)
        case Get(key):
            return _get(store, key)
        case GetMany(keys):
            mapped = map if readers is None else readers.map
            return list(mapped(lambda key: _get(store, key), keys))
        case CreateIfAbsent(key, data):
            return _create(store, key, data)
        case Put(key, data):
            store.put(key, data)
        case Delete(key):
            return _delete(store, key)
    return Answer.DONE


def _get(store: Store, key: str) -> bytes | Answer:
    try:
        return store.get(key)
    except ObjectMissingError:
        return Answer.MISSING


def _create(store: Store, key: str, data: bytes) -> Answer:
    try:
        store.create_if_absent(key, data)
    except ObjectExistsError:
        return Answer.EXISTS
    return Answer.DONE


def _delete(store: Store, key: str) -> Answer:
    try:
        store.delete(key)
    except ObjectMissingError:
        return Answer.DONE
    return Answer.DONE
