"""Threads that do not keep the process alive, and the computations that the exit waits for."""

from __future__ import annotations

import contextlib
import queue
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import CancelledError, Executor, Future
from contextlib import contextmanager
from functools import partial
from typing import Any, TypeVar

T = TypeVar("T")


class DaemonExecutor(Executor):
    """At most `threads` tasks at a time, started in order. The standard pool would keep the process alive at exit."""

    def __init__(self, threads: int, name: str) -> None:
        self._most = threads
        self._name = name
        self._threads: list[threading.Thread] = []
        self._tasks: queue.SimpleQueue[tuple[Future[Any], Callable[[], Any]] | None] = queue.SimpleQueue()
        self._idle = threading.Semaphore(0)
        self._starting = threading.Lock()

    def submit(self, task: Callable[..., Any], /, *args: Any, **named: Any) -> Future[Any]:
        future: Future[Any] = Future()
        self._tasks.put((future, lambda: task(*args, **named)))
        with self._starting:  # two threads may submit at once
            if not self._idle.acquire(blocking=False) and len(self._threads) < self._most:
                thread = threading.Thread(target=self._work, name=f"{self._name}-{len(self._threads)}", daemon=True)
                self._threads.append(thread)
                thread.start()
        return future

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:
        """Ends the threads when all submitted tasks are done, or at once with `cancel_futures`."""
        with contextlib.suppress(queue.Empty):
            while cancel_futures:  # without waiting: a thread may take the last task at the same time
                waiting = self._tasks.get_nowait()
                if waiting is not None:
                    waiting[0].cancel()
        for _ in self._threads:
            self._tasks.put(None)
        for thread in self._threads if wait else ():
            thread.join()

    def _work(self) -> None:
        while (task := self._tasks.get()) is not None:
            future, call = task
            if future.set_running_or_notify_cancel():
                _run(future, call)
            del task, future, call  # so that an idle thread keeps no array alive
            self._idle.release()


def on_thread(name: str, call: Callable[..., T], *args: Any) -> Future[T]:
    """Calls it on a daemon thread of its own: the call may hang."""
    future: Future[T] = Future()
    threading.Thread(target=_run, args=(future, partial(call, *args)), name=name, daemon=True).start()
    return future


def _run(future: Future[T], call: Callable[[], T]) -> None:
    try:
        future.set_result(call())
    except BaseException as error:  # noqa: BLE001 - it belongs to the future
        future.set_exception(error)
    finally:
        del future, call  # the error refers to this frame: with them it would be a cycle, left to Python's collector


class Computing:
    """The background tasks that compute now. `close` waits for them; after it, none starts.

    For tasks that also make store or broker requests: those may hang, so their threads are not joined. But a thread
    inside BLAS while the process runs its exit handlers can crash it with SIGSEGV.
    """

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._running = 0
        self._closed = False

    @contextmanager
    def __call__(self) -> Iterator[None]:
        """Wraps a computation that makes no request."""
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
        """Wraps a request inside a computation. It may hang, so `close` does not wait for it."""
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

    def run(self, call: Callable[..., T], *args: Any) -> T:
        with self():
            return call(*args)
