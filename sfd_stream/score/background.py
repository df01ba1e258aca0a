"""A question that the loop repeats in the background."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Future
from typing import Any, Generic, TypeVar

from sfd_stream.loop.runtime import Runtime

T = TypeVar("T")


class Background(Generic[T]):
    """One question at a time, asked at most every `every_s`. Only the loop's thread calls it."""

    def __init__(self, runtime: Runtime, every_s: float) -> None:
        self._runtime = runtime
        self._every_s = every_s
        self._next_s = 0.0
        self._asking: Future[T] | None = None

    @property
    def is_due(self) -> bool:
        return self._asking is None and self._runtime.clock() >= self._next_s

    def ask(self, question: Callable[..., T], *args: Any) -> None:
        self._next_s = self._runtime.clock() + self._every_s
        self._asking = self._runtime.io.submit(question, *args)

    def take(self) -> Future[T] | None:
        """The question that was answered, once; None while there is no answer."""
        if self._asking is None or not self._asking.done():
            return None
        found, self._asking = self._asking, None
        return found
