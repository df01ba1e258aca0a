"""Threads beside the loop, which never keep the process alive: a store that hangs must not hold up the end."""

from __future__ import annotations

import contextlib
import queue
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import CancelledError, Executor, Future
from contextlib import contextmanager
from typing import Any


class Beside(Executor):
    """At most `threads` jobs at a time, begun in order. The standard pool's threads would be waited for at exit."""

    def __init__(self, threads: int, name: str) -> None:
        self._most = threads
        self._name = name
        self._threads: list[threading.Thread] = []
        self._jobs: queue.SimpleQueue[tuple[Future[Any], Callable[[], Any]] | None] = queue.SimpleQueue()
        self._idle = threading.Semaphore(0)
        self._starting = threading.Lock()

    def submit(self, job: Callable[..., Any], /, *args: Any, **named: Any) -> Future[Any]:
        future: Future[Any] = Future()
        self._jobs.put((future, lambda: job(*args, **named)))
        with self._starting:  # two threads may submit at once
            if not self._idle.acquire(blocking=False) and len(self._threads) < self._most:
                thread = threading.Thread(target=self._work, name=f"{self._name}-{len(self._threads)}", daemon=True)
                self._threads.append(thread)
                thread.start()
        return future

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:
        """Begins nothing more once what was submitted is done, or at once with `cancel_futures`."""
        with contextlib.suppress(queue.Empty):
            while cancel_futures:  # never waiting: a thread may take the last one meanwhile
                waiting = self._jobs.get_nowait()
                if waiting is not None:
                    waiting[0].cancel()
        for _ in self._threads:
            self._jobs.put(None)
        for thread in self._threads if wait else ():
            thread.join()

    def _work(self) -> None:
        while (job := self._jobs.get()) is not None:
            future, call = job
            if future.set_running_or_notify_cancel():
                try:
                    future.set_result(call())
                except BaseException as error:  # noqa: BLE001 - it belongs to whoever awaits the future
                    future.set_exception(error)
            del job, future, call  # no array is kept alive by an idle thread
            self._idle.release()


class Computing:
    """The background threads that compute now. `close` waits for them; after it, none begins.

    For jobs that also make store or broker requests: those may hang, so the threads themselves are not joined. But a
    thread inside BLAS while the process runs its exit handlers can crash it with SIGSEGV.
    """

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._running = 0
        self._closed = False

    @contextmanager
    def __call__(self) -> Iterator[None]:
        """Around a computation that makes no request."""
        with self._changed:
            if self._closed:
                raise CancelledError("the worker has ended")
            self._running += 1
        try:
            yield
        finally:
            with self._changed:
                self._running -= 1
                self._changed.notify_all()

    @contextmanager
    def requesting(self) -> Iterator[None]:
        """Around a request inside a computation: it may hang, so `close` does not wait for it."""
        with self._changed:
            self._running -= 1
            self._changed.notify_all()
        try:
            yield
        finally:
            with self._changed:
                self._running += 1
                if self._closed:
                    raise CancelledError("the worker has ended")

    def close(self) -> None:
        with self._changed:
            self._closed = True
            self._changed.wait_for(lambda: not self._running)
