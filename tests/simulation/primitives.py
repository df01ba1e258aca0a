"""threading, queue, concurrent.futures, time, uuid and random, as the package sees them, on the scheduler.

A name that is missing here raises when the package uses it: a real lock inside a simulation would block everything.
"""

from __future__ import annotations

import concurrent.futures as real_futures
import queue as real_queue
import random as real_random
import time as real_time
import uuid as real_uuid
from collections import deque
from collections.abc import Callable, Iterable
from types import ModuleType
from typing import Any

from tests.simulation.scheduler import Task, active, is_active

EPOCH_S = 1_800_000_000.0
"""The wall clock shows this time when a simulation starts."""


class _Waiters:
    """Waits that end when something changes."""

    __slots__ = ("_tickets",)

    def __init__(self) -> None:
        self._tickets: list[tuple[Task, int]] = []

    def wait(self, timeout_s: float | None) -> bool:
        scheduler = active()
        ticket = scheduler.ticket()
        self._tickets.append(ticket)
        woken = scheduler.wait(timeout_s)
        if not woken and ticket in self._tickets:
            self._tickets.remove(ticket)
        return woken

    def wake_all(self) -> None:
        tickets, self._tickets = self._tickets, []
        for ticket in tickets:
            active().wake(ticket)


def wait_for(condition: Callable[[], Any], waiters: _Waiters, timeout_s: float | None) -> bool:
    """Waits until the condition holds or the time is over; says whether it holds."""
    scheduler = active()
    deadline = None if timeout_s is None else scheduler.now + timeout_s
    while not condition():
        left_s = None if deadline is None else deadline - scheduler.now
        if left_s is not None and left_s <= 0:
            return bool(condition())
        waiters.wait(left_s)
    return True


class Event:
    def __init__(self) -> None:
        self._set = False
        self._waiters = _Waiters()

    def is_set(self) -> bool:
        active().point()
        return self._set

    def set(self) -> None:
        self._set = True
        self._waiters.wake_all()
        active().point()

    def clear(self) -> None:
        self._set = False

    def wait(self, timeout: float | None = None) -> bool:
        active().point()
        return wait_for(lambda: self._set, self._waiters, timeout)


class Semaphore:
    def __init__(self, value: int = 1) -> None:
        self._value = value
        self._waiters = _Waiters()

    def acquire(self, blocking: bool = True, timeout: float | None = None) -> bool:
        if not is_active():
            return True  # while modules are imported, nobody else runs
        active().point()
        if not wait_for(lambda: self._value > 0, self._waiters, timeout if blocking else 0.0):
            return False
        self._value -= 1
        return True

    def release(self, n: int = 1) -> None:
        if not is_active():
            return
        self._value += n
        self._waiters.wake_all()
        active().point()

    def __enter__(self) -> bool:
        return self.acquire()

    def __exit__(self, *_: object) -> None:
        self.release()


class Lock(Semaphore):
    def __init__(self) -> None:
        super().__init__(1)

    def acquire(self, blocking: bool = True, timeout: float = -1) -> bool:
        return super().acquire(blocking, None if timeout < 0 else timeout)

    def locked(self) -> bool:
        return self._value == 0


class Condition:
    def __init__(self, lock: Lock | None = None) -> None:
        self._lock = lock or Lock()
        self._waiters = _Waiters()
        self.acquire, self.release = self._lock.acquire, self._lock.release

    def __enter__(self) -> bool:
        return self._lock.acquire()

    def __exit__(self, *_: object) -> None:
        self._lock.release()

    def wait(self, timeout: float | None = None) -> bool:
        self._lock._value += 1
        self._lock._waiters.wake_all()
        woken = self._waiters.wait(timeout)
        self._lock.acquire()
        return woken

    def wait_for(self, predicate: Callable[[], Any], timeout: float | None = None) -> Any:
        deadline = None if timeout is None else active().now + timeout
        while not (found := predicate()):
            left_s = None if deadline is None else deadline - active().now
            if left_s is not None and left_s <= 0:
                break
            self.wait(left_s)
        return found

    def notify_all(self) -> None:
        self._waiters.wake_all()

    notify = notify_all


class _Unlocked(Condition):
    """For futures: between two points nothing else runs, so that no lock is needed."""

    def __enter__(self) -> bool:
        return True

    def __exit__(self, *_: object) -> None:
        pass

    def wait(self, timeout: float | None = None) -> bool:
        return self._waiters.wait(timeout)


class Future(real_futures.Future):  # type: ignore[type-arg]
    """The standard one, on another condition."""

    def __init__(self) -> None:
        self._condition = _Unlocked()  # type: ignore[assignment]
        self._state = "PENDING"
        self._result = None
        self._exception = None
        self._waiters = []
        self._done_callbacks = []

    def result(self, timeout: float | None = None) -> Any:
        active().point()
        return super().result(timeout)

    def done(self) -> bool:
        active().point()
        return super().done()


def wait_futures(futures: Iterable[Future], timeout: float | None = None, return_when: str = "ALL_COMPLETED") -> Any:
    asked = list(futures)
    deadline = None if timeout is None else active().now + timeout
    wanted = 1 if return_when == "FIRST_COMPLETED" else len(asked)
    while sum(super(Future, each).done() for each in asked) < wanted:
        if deadline is not None and active().now >= deadline:
            break
        sleep(0.005)
    done = {each for each in asked if super(Future, each).done()}
    return real_futures._base.DoneAndNotDoneFutures(done, set(asked) - done)


class SimpleQueue:
    def __init__(self, maxsize: int = 0) -> None:
        assert maxsize == 0, "bounded queues are not simulated yet"
        self._items: deque[Any] = deque()
        self._waiters = _Waiters()

    def put(self, item: Any, block: bool = True, timeout: float | None = None) -> None:
        self._items.append(item)
        self._waiters.wake_all()
        active().point()

    put_nowait = put

    def get(self, block: bool = True, timeout: float | None = None) -> Any:
        active().point()
        if not wait_for(lambda: self._items, self._waiters, timeout if block else 0.0):
            raise real_queue.Empty
        return self._items.popleft()

    def get_nowait(self) -> Any:
        return self.get(block=False)

    def qsize(self) -> int:
        return len(self._items)

    def empty(self) -> bool:
        return not self._items


class Thread:
    _count = 0

    def __init__(
        self,
        group: None = None,
        target: Callable[..., Any] = lambda: None,
        name: str | None = None,
        args: Iterable[Any] = (),
        kwargs: dict[str, Any] | None = None,
        *,
        daemon: bool | None = None,
    ) -> None:
        self.name = name or "thread"
        self.daemon = bool(daemon)
        self._target, self._args, self._kwargs = target, tuple(args), kwargs or {}
        self._ended = Event()
        self._started = False

    def start(self) -> None:
        scheduler = active()
        assert scheduler.current is not None, "only a task starts a thread"
        self._started = True
        scheduler.spawn(scheduler.current.process, self.name, self._run)
        scheduler.point()

    def run(self) -> None:
        self._target(*self._args, **self._kwargs)

    def _run(self) -> None:
        try:
            self.run()
        finally:
            self._ended._set = True
            self._ended._waiters.wake_all()

    def join(self, timeout: float | None = None) -> None:
        self._ended.wait(timeout)

    def is_alive(self) -> bool:
        return self._started and not self._ended._set


def sleep(seconds: float) -> None:
    active().wait(max(seconds, 0.0))


def monotonic() -> float:
    return active().monotonic()


def wall_time() -> float:
    scheduler = active()
    jump_s = 0.0 if scheduler.current is None else scheduler.current.process.clock_jump_s
    return EPOCH_S + scheduler.monotonic() + jump_s


class Randomness:
    """The generators behind `random` and `uuid`; seeded again for each simulation."""

    def __init__(self) -> None:
        self.random = real_random.Random(0)
        self.uuids = real_random.Random(0)

    def seed(self, seed: int) -> None:
        self.random.seed(f"random {seed}")
        self.uuids.seed(f"uuid {seed}")

    def uuid4(self) -> real_uuid.UUID:
        return real_uuid.UUID(int=self.uuids.getrandbits(128), version=4)


class Substitute(ModuleType):
    """A module with only these names. `real` gives those that need no simulation."""

    def __init__(
        self, name: str, names: dict[str, Any], real: ModuleType | None = None, pure: Iterable[str] = ()
    ) -> None:
        super().__init__(name)
        self.__dict__.update({each: getattr(real, each) for each in pure})
        self.__dict__.update(names)

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        raise AttributeError(f"{self.__name__}.{name} is not simulated: add it to tests/simulation/primitives.py")


def substitutes(randomness: Randomness) -> dict[str, ModuleType]:
    locks = {
        "Event": Event,
        "Lock": Lock,
        "RLock": Lock,
        "Semaphore": Semaphore,
        "Thread": Thread,
        "Condition": Condition,
    }
    clocks = {
        "monotonic": monotonic,
        "time": wall_time,
        "sleep": sleep,
        "perf_counter": monotonic,
        "process_time": monotonic,
    }
    futures = {"Future": Future, "wait": wait_futures}
    same = ("Executor", "TimeoutError", "CancelledError", "FIRST_COMPLETED", "ALL_COMPLETED", "ThreadPoolExecutor")
    drawn = randomness.random
    numbers = {
        each: getattr(drawn, each) for each in ("random", "uniform", "choice", "randrange", "randint", "shuffle")
    }
    return {
        "threading": Substitute("threading", locks),
        "queue": Substitute("queue", {"SimpleQueue": SimpleQueue, "Queue": SimpleQueue}, real_queue, ("Empty", "Full")),
        "concurrent.futures": Substitute("concurrent.futures", futures, real_futures, same),
        "time": Substitute("time", clocks, real_time, ("gmtime", "strftime", "localtime")),
        "uuid": Substitute("uuid", {"uuid4": randomness.uuid4}, real_uuid, ("UUID",)),
        "random": Substitute("random", {**numbers, "Random": real_random.Random}),
    }
