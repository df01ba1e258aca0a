"""What a program has to do, and its outside world: clocks, threads, randomness, store. All of it comes in here.

No other file of the worker and the scorer creates threads.
"""

from __future__ import annotations

import random
import threading
import time
import uuid
from collections.abc import Callable
from concurrent.futures import Executor, Future
from dataclasses import dataclass, field
from typing import Any, TypeVar

from sfd_stream.config.model import CheckpointSettings, InputSettings, SnapshotSettings, WorkerSettings
from sfd_stream.state.partition import Shape
from sfd_stream.storage.contract import Store
from sfd_stream.threads import Computing, DaemonExecutor

T = TypeVar("T")


@dataclass(frozen=True)
class Plan:
    """What to do: sections of the settings."""

    group: str
    input: InputSettings
    checkpoint: CheckpointSettings
    snapshot: SnapshotSettings
    worker: WorkerSettings
    shape: Callable[[int], Shape]  # A partition's number -> its shape
    until_end: bool = False


@dataclass(frozen=True)
class Runtime:
    """The outside world of one worker or scorer. The loop's thread alone calls `wait`; any thread may call `wake`."""

    store: Store
    reach: Callable[[str], None] | None = None  # called at each named point, on a background thread: for tests
    clock: Callable[[], float] = time.monotonic
    wall_clock: Callable[[], float] = time.time
    random: Callable[[], float] = random.random
    nonce: Callable[[], str] = lambda: uuid.uuid4().hex
    io: Executor = field(default_factory=lambda: DaemonExecutor(8, "io"))  # requests, and computations between them
    sketch: Executor = field(default_factory=lambda: DaemonExecutor(1, "sketch"))
    transactions: Executor = field(default_factory=lambda: DaemonExecutor(1, "transactions"))
    computing: Computing = field(default_factory=Computing)
    _woken: threading.Event = field(default_factory=threading.Event)

    def wait(self, seconds: float) -> None:
        """Waits until an answer arrives for the loop, at most this long."""
        self._woken.wait(max(seconds, 0.0))
        self._woken.clear()

    def wake(self, _: object = None) -> None:
        """Ends the loop's `wait`. Can be a future's callback."""
        self._woken.set()

    def jitter(self) -> float:
        """A factor for delays, so that workers do not retry in step."""
        return 0.5 + self.random() / 2

    def compute(self, call: Callable[..., T], *args: Any) -> Future[T]:
        """Computes on an io thread. When the process ends, it waits for computations that run."""
        return self.io.submit(self.computing.run, call, *args)

    def close(self) -> None:
        """Waits for running computations only. Store and broker requests are abandoned."""
        self.sketch.shutdown(wait=True, cancel_futures=True)
        for executor in (self.io, self.transactions):
            executor.shutdown(wait=False, cancel_futures=True)
        self.computing.close()
