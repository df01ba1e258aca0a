"""Where other threads leave work for the one that owns the consumer and the producer. It serves it in its own time."""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable
from concurrent.futures import Future
from concurrent.futures import TimeoutError as NotYetError
from typing import Any, TypeVar

T = TypeVar("T")


class DeskClosedError(Exception):
    """The owner is gone; whoever waits may go home."""


class Desk:
    """`ask` from anywhere waits for the answer; `serve` is the owner's, and never waits."""

    def __init__(self) -> None:
        self._asked: queue.SimpleQueue[tuple[Callable[[], Any], Future[Any]]] = queue.SimpleQueue()
        self._closed = threading.Event()

    def ask(self, question: Callable[[], T], abandoned: threading.Event) -> T:
        """What `question` returns or raises when the owner calls it. Raises DeskClosedError if nobody will."""
        answer: Future[T] = Future()
        self._asked.put((question, answer))
        while True:
            try:
                return answer.result(timeout=0.2)
            except NotYetError:
                if answer.done():
                    raise  # the question's own
                if self._closed.is_set() or abandoned.is_set():
                    raise DeskClosedError from None

    def serve(self) -> None:
        """Answers what has been asked so far."""
        for _ in range(self._asked.qsize()):
            question, answer = self._asked.get()
            try:
                answer.set_result(question())
            except BaseException as error:  # noqa: BLE001 - it belongs to whoever asked
                answer.set_exception(error)

    def close(self) -> None:
        self._closed.set()
