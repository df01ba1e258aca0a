"""What a worker is asked to do, and the outside world: clocks, threads, randomness, store. All of it comes in here.

This is the only file of the worker that knows threads.
"""

from __future__ import annotations

import contextlib
import queue
import random
import threading
import time
import uuid
from collections.abc import Callable, Iterator
from concurrent.futures import CancelledError, Executor, Future
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, Protocol, Self, TypeVar

from sfd_stream.config.model import CheckpointSettings, InputSettings, SnapshotSettings, WorkerSettings
from sfd_stream.state.partition import Shape
from sfd_stream.storage.contract import Store

T = TypeVar("T")

IO_THREADS = 8


class Log(Protocol):
    """The part of a structlog logger that is used."""

    def bind(self, **context: Any) -> Self: ...
    def info(self, event: str, **context: Any) -> Any: ...
    def warning(self, event: str, **context: Any) -> Any: ...
    def debug(self, event: str, **context: Any) -> Any: ...


@dataclass(frozen=True)
class Plan:
    """What to do: the settings' own sections."""

    group: str
    input: InputSettings
    checkpoint: CheckpointSettings
    snapshot: SnapshotSettings
    worker: WorkerSettings
    shape: Callable[[int], Shape]
    """A partition's number -> its shape."""
    until_end: bool = False


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
        """Starts nothing more once what was submitted is done, or at once with `cancel_futures`."""
        with contextlib.suppress(queue.Empty):
            while cancel_futures:  # without waiting: a thread may take the last task meanwhile
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
                try:
                    future.set_result(call())
                except BaseException as error:  # noqa: BLE001 - it belongs to the future
                    future.set_exception(error)
            del task, future, call  # an idle thread keeps no array alive
            self._idle.release()


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


@dataclass(frozen=True)
class Runtime:
    """The outside world of one worker. The loop's thread alone calls `wait`; any thread may call `wake`."""

    store: Store
    reach: Callable[[str], None] | None = None
    """Called at each named point of the protocol, on a background thread: tests stop or kill the process there."""
    clock: Callable[[], float] = time.monotonic
    wall_clock: Callable[[], float] = time.time
    random: Callable[[], float] = random.random
    nonce: Callable[[], str] = lambda: uuid.uuid4().hex
    io: Executor = field(default_factory=lambda: DaemonExecutor(IO_THREADS, "io"))
    """Store and broker requests, and what is computed between them."""
    sketch: Executor = field(default_factory=lambda: DaemonExecutor(1, "sketch"))
    transactions: Executor = field(default_factory=lambda: DaemonExecutor(1, "transactions"))
    computing: Computing = field(default_factory=Computing)
    _woken: threading.Event = field(default_factory=threading.Event)

    def wait(self, seconds: float) -> None:
        """Until an answer arrives for the loop, at most this long."""
        self._woken.wait(max(seconds, 0.0))
        self._woken.clear()

    def wake(self, _: object = None) -> None:
        """An answer is here. Fits as a future's callback."""
        self._woken.set()

    def compute(self, call: Callable[[], T]) -> Future[T]:
        """On a background thread: a computation that the process waits for when it ends."""

        def computed() -> T:
            with self.computing():
                return call()

        return self.io.submit(computed)

    def close(self) -> None:
        """Waits for running computations only: store and broker requests are abandoned."""
        self.sketch.shutdown(wait=True, cancel_futures=True)
        for executor in (self.io, self.transactions):
            executor.shutdown(wait=False, cancel_futures=True)
        self.computing.close()
