"""A store that fails where a test says: at its i-th call, before or after the effect, or with a late echo.

    store = FaultyStore(MemoryStore("x"), {3: FailAfter()})      # the third call's answer is lost
    store = FaultyStore(inner, {5: Late(calls=2)})               # unknown now, takes effect two calls later

Calls are numbered from 1, over all verbs, and kept in `store.calls`. To fail at every point in turn: run once
without faults, then once for each i up to `len(store.calls)`.
"""

from __future__ import annotations

import contextlib
import threading
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from sfd_stream.errors import StoreError, StoreUnavailableError

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from sfd_stream.storage.contract import Store


class Crash(BaseException):
    """The process dies here. Not an Exception, so that no `except Exception` survives it."""


def _unavailable() -> BaseException:
    return StoreUnavailableError("injected: answer unknown")


@dataclass(frozen=True)
class FailBefore:
    """The call raises and has no effect."""

    error: Callable[[], BaseException] = _unavailable


@dataclass(frozen=True)
class FailAfter:
    """The call takes effect, and its answer is lost."""

    error: Callable[[], BaseException] = _unavailable


@dataclass(frozen=True)
class Pause:
    """`before` and `after` run around the effect: another owner's steps, or a wait for an event."""

    before: Callable[[], None] | None = None
    after: Callable[[], None] | None = None


@dataclass(frozen=True)
class Duplicate:
    """The call takes effect and is answered; the same request arrives once more, `calls` calls later."""

    calls: int


@dataclass(frozen=True)
class Late:
    """The answer is unknown now; the request arrives `calls` calls later."""

    calls: int
    error: Callable[[], BaseException] = _unavailable


Fault = FailBefore | FailAfter | Pause | Duplicate | Late


@dataclass(frozen=True)
class Call:
    verb: str
    key: str


@dataclass
class FaultyStore:
    """The contract of `inner`, with faults by call number. Safe to use from several threads."""

    inner: Store
    faults: Mapping[int, Fault] = field(default_factory=dict)
    calls: list[Call] = field(default_factory=list)
    _delayed: list[tuple[int, Callable[[], object]]] = field(default_factory=list)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    @property
    def url(self) -> str:
        return self.inner.url

    def create_if_absent(self, key: str, data: bytes) -> None:
        self._call(Call("create_if_absent", key), lambda: self.inner.create_if_absent(key, data))

    def put(self, key: str, data: bytes) -> None:
        self._call(Call("put", key), lambda: self.inner.put(key, data))

    def get(self, key: str) -> bytes:
        found: bytes = self._call(Call("get", key), lambda: self.inner.get(key))
        return found

    def list(self, prefix: str, *, start_after: str | None = None) -> list[str]:
        found: list[str] = self._call(Call("list", prefix), lambda: self.inner.list(prefix, start_after=start_after))
        return found

    def delete(self, key: str) -> None:
        self._call(Call("delete", key), lambda: self.inner.delete(key))

    def deliver_all(self) -> None:
        """What is still under way arrives now."""
        self._deliver(until=None)

    def _call(self, call: Call, effect: Callable[[], Any]) -> Any:
        with self._lock:
            self.calls.append(call)
            number = len(self.calls)
        self._deliver(until=number)
        fault = self.faults.get(number)
        if isinstance(fault, FailBefore):
            raise fault.error()
        if isinstance(fault, Late):
            self._delay(number + fault.calls, effect)
            raise fault.error()
        if isinstance(fault, Duplicate):
            self._delay(number + fault.calls, effect)
        return self._effect(fault, effect)

    def _effect(self, fault: Fault | None, effect: Callable[[], Any]) -> Any:
        if isinstance(fault, Pause) and fault.before is not None:
            fault.before()
        answer = effect()
        if isinstance(fault, Pause) and fault.after is not None:
            fault.after()
        if isinstance(fault, FailAfter):
            raise fault.error()
        return answer

    def _delay(self, number: int, effect: Callable[[], object]) -> None:
        with self._lock:
            self._delayed.append((number, effect))

    def _deliver(self, until: int | None) -> None:
        with self._lock:
            due = [effect for number, effect in self._delayed if until is None or number <= until]
            self._delayed = [(n, e) for n, e in self._delayed if until is not None and n > until]
        for effect in due:
            # Nobody waits for this answer.
            with contextlib.suppress(StoreError):
                effect()
