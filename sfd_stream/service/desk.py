"""Where other threads leave work for the one that owns the consumer and the producer. It serves it in its own time."""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable
from concurrent.futures import Future
from concurrent.futures import TimeoutError as NotYetError
from dataclasses import dataclass, field
from typing import Any, TypeVar

T = TypeVar("T")
_LOOK_S = 0.2


class DeskClosedError(Exception):
    """The owner is gone, or whoever asked was told to give up; he may go home."""


@dataclass(frozen=True)
class _Asked:
    question: Callable[[], Any]
    abandoned: threading.Event
    answer: Future[Any] = field(default_factory=Future)


class Desk:
    """`ask` from anywhere waits for the answer; `serve` is the owner's, and never waits."""

    def __init__(self) -> None:
        self._asked: queue.SimpleQueue[_Asked] = queue.SimpleQueue()
        self._closed = threading.Event()

    def ask(self, question: Callable[[], T], abandoned: threading.Event) -> T:
        """What `question` returns or raises when the owner calls it. Raises DeskClosedError if nobody will."""
        asked = _Asked(question, abandoned)
        self._asked.put(asked)
        while True:
            try:
                answer: T = asked.answer.result(timeout=_LOOK_S)
            except NotYetError:
                if asked.answer.done():  # the question's own, or it came just now
                    found: T = asked.answer.result()
                    return found
                if self._closed.is_set() or abandoned.is_set():
                    raise DeskClosedError from None
            else:
                return answer

    def serve(self) -> None:
        """Answers what has been asked so far; what was abandoned meanwhile is never done."""
        for _ in range(self._asked.qsize()):
            asked = self._asked.get()
            if asked.abandoned.is_set():
                asked.answer.set_exception(DeskClosedError())
                continue
            try:
                asked.answer.set_result(asked.question())
            except BaseException as error:  # noqa: BLE001 - it belongs to whoever asked
                asked.answer.set_exception(error)

    def close(self) -> None:
        self._closed.set()
