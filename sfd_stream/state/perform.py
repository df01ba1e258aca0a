"""Performs one request of a procedure on a store, or a whole procedure, for tools that may block.

The procedure decides what is sent again. The driver decides how long to wait in between, and when to stop.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Protocol, TypeVar

from sfd_stream.errors import ObjectExistsError, ObjectMissingError, StoreUnavailableError
from sfd_stream.retry import Backoff
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

T = TypeVar("T")

STORE = Backoff(first_s=0.1, longest_s=5.0)
DISBELIEVED = 3
"""A log's end that is not believed is asked for again after the delay of this attempt."""


class ProtocolStore(Protocol):
    """The part of the stores' contract that the protocol needs."""

    def create_if_absent(self, key: str, data: bytes) -> None: ...
    def put(self, key: str, data: bytes) -> None: ...
    def get(self, key: str) -> bytes: ...
    def list(self, prefix: str, *, start_after: str | None = None) -> list[str]: ...
    def delete(self, key: str) -> None: ...


ANSWERS_AGAIN = 2
"""A store is available again after this many answers in a row. One is not enough: a full or read-only store answers the
read between two attempts to write, so the attempts would continue without a pause or an end."""


def delay_s(attempt: int, jitter: float) -> float:
    """The delay after a failed attempt; attempts are counted from 0."""
    return STORE.delay_s(attempt + 1, jitter)


@dataclass
class StoreOutage:
    """How long a store has not answered a procedure, and why."""

    give_up_s: float
    since_s: float | None = None
    """None while the store answers."""
    reason: str = ""
    _failures: int = 0
    _answers: int = 0

    def answered(self) -> None:
        self._answers += 1
        if self._answers >= ANSWERS_AGAIN:
            self.since_s, self.reason, self._failures = None, "", 0

    def failed(self, error: StoreUnavailableError, now_s: float, jitter: float) -> float:
        """The delay before the next attempt. Raises the error once `give_up_s` have passed."""
        self.since_s = now_s if self.since_s is None else self.since_s
        if now_s - self.since_s >= self.give_up_s:
            raise error
        self.reason, self._answers, self._failures = str(error), 0, self._failures + 1
        return delay_s(self._failures - 1, jitter)


@dataclass(frozen=True)
class Patience:
    """How a tool waits for a store: it stops after `give_up_s` without any answer."""

    give_up_s: float
    clock: Callable[[], float]
    pause: Callable[[float], None]
    jitter: Callable[[], float]


def no_broker(question: Question) -> Any:
    """For procedures that ask the broker nothing: all except `assign`."""
    raise AssertionError(f"asked {question} without a broker")


def run(steps: Steps[T], store: ProtocolStore, patience: Patience, *, ask: Callable[[Question], Any] = no_broker) -> T:
    """The outcome of `steps`. Raises StoreUnavailableError if the store does not answer for `give_up_s`.

    To stop it, let `patience.pause` raise: a request that was sent may still take effect, and does no harm.
    """
    outage, answer = StoreOutage(patience.give_up_s), None
    while True:
        try:
            request = steps.send(answer)
        except StopIteration as stop:
            outcome: T = stop.value
            return outcome
        if isinstance(request, Question):
            if isinstance(request, AskLog) and request.again:
                patience.pause(delay_s(DISBELIEVED, patience.jitter()))
            answer = ask(request)
            continue
        try:
            answer = perform(request, store)
        except StoreUnavailableError as error:
            patience.pause(outage.failed(error, patience.clock(), patience.jitter()))
            answer = Answer.UNKNOWN
        else:
            outage.answered()


def perform(request: StoreRequest, store: ProtocolStore) -> Any:
    match request:
        case List(prefix, start_after):
            return store.list(prefix, start_after=start_after)
        case Get(key):
            return get(store, key)
        case GetMany(keys):
            return [get(store, key) for key in keys]
        case CreateIfAbsent(key, data):
            try:
                store.create_if_absent(key, data)
            except ObjectExistsError:
                return Answer.EXISTS
        case Put(key, data):
            store.put(key, data)
        case Delete(key):
            store.delete(key)
    return Answer.DONE


def get(store: ProtocolStore, key: str) -> bytes | Answer:
    try:
        return store.get(key)
    except ObjectMissingError:
        return Answer.MISSING
