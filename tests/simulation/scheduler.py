"""Decides which task runs next and what time it is. Everything follows from the seed.

Tasks are greenlets: one runs at a time, and another one can run only where a task calls `wait` or `point`. If no task
is ready, time jumps to the next timer. A simulated process owns tasks and timers; it can crash, pause and wake.
"""

from __future__ import annotations

import gc
import heapq
import math
import random
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import count
from typing import Any

from greenlet import GreenletExit, getcurrent, greenlet

STEP_MIN_S, STEP_MAX_S = 20e-6, 220e-6
"""Every step of a task takes a random time between these."""

STEPS_MAX = 400_000


class SimulationOverError(BaseException):
    """Raised by every primitive once the simulation has ended, so that abandoned tasks unwind."""


class ViolationError(AssertionError):
    """A law was broken. `law` is its short name, the same for all seeds that break it."""

    def __init__(self, law: str, details: str) -> None:
        super().__init__(f"{law}: {details}")
        self.law = law
        self.details = details


class Process:
    """A simulated operating-system process: it owns tasks and timers."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.alive = True
        self.paused = False
        self.clock_jump_s = 0.0
        self.parked: list[Task] = []
        self.parked_calls: list[Callable[[], None]] = []

    def __repr__(self) -> str:
        return f"Process({self.name})"


class Task:
    __slots__ = ("done", "greenlet", "name", "process", "ticket", "waiting", "woken")

    def __init__(self, process: Process, name: str) -> None:
        self.process = process
        self.name = name
        self.ticket = 0
        self.waiting = False
        self.woken = False
        self.done = False
        self.greenlet: greenlet


class Scheduler:
    """Only `run_until` runs tasks. What timers and tests call is on the hub, and never waits."""

    def __init__(self, seed: int, *, preempt: float = 0.05, stall: float = 0.0, stall_max_s: float = 2.0) -> None:
        self.now = 1000.0
        self.steps = 0
        self.current: Task | None = None
        self.over = False
        self.failure: BaseException | None = None
        self.preempt = preempt
        self.stall = stall
        self._stall_max_s = stall_max_s
        self._order = random.Random(f"order {seed}")
        self._chance = random.Random(f"preempt {seed}").random
        self._points_left = self._draw_points(preempt + stall)
        self._ready: list[Task] = []
        self._timers: list[tuple[float, int, Callable[[], None], Process | None]] = []
        self._sequence = 0
        self._tasks: list[Task] = []
        self._hub = getcurrent()

    # Called by tasks

    def wait(self, timeout_s: float | None = None) -> bool:
        """Blocks the current task until `wake` or the time-out; says whether it was woken."""
        if self.over:
            raise SimulationOverError
        task = self.current
        assert task is not None, "only a task can wait"
        task.ticket += 1
        task.waiting, task.woken = True, False
        if timeout_s is not None:
            ticket = task.ticket
            self.call_later(max(timeout_s, 0.0), lambda: self._time_out(task, ticket))
        self._hub.switch()
        if self.over:
            raise SimulationOverError
        return task.woken

    def ticket(self) -> tuple[Task, int]:
        """Names the wait that the current task is about to begin: hand it to the task that will wake it."""
        assert self.current is not None
        return self.current, self.current.ticket + 1

    def wake(self, ticket: tuple[Task, int]) -> None:
        """Ends that wait. A wait that is over already is not affected."""
        task, number = ticket
        if task.waiting and task.ticket == number:
            task.waiting, task.woken = False, True
            self._ready.append(task)

    def point(self) -> None:
        """The current task may be preempted here, or stalled."""
        self._points_left -= 1
        if self._points_left > 0:
            return
        task = self.current
        if self.over:
            raise SimulationOverError
        chance = self.preempt + self.stall
        self._points_left = self._draw_points(chance)
        if task is None:
            return
        if self._chance() * chance < self.stall:
            self.wait(self._stall_max_s * self._chance() ** 4)
        else:
            self._ready.append(task)
            self._hub.switch()
            if self.over:
                raise SimulationOverError

    def _draw_points(self, chance: float) -> int:
        """How many points to pass until something happens at one: drawn at once, for speed."""
        if chance <= 0:
            return 1_000_000
        return 1 + int(math.log(1.0 - self._chance()) / math.log(1.0 - min(chance, 0.99)))

    def monotonic(self) -> float:
        if self.over:
            raise SimulationOverError
        self.now += 1e-6  # a loop that only looks at the clock ends too
        return self.now

    def fail(self, failure: BaseException) -> None:
        """Ends the simulation. In a task this does not return: the worker's own code must not see the failure."""
        self.failure = self.failure or failure
        if self.current is None:
            raise self.failure
        self.wait(None)

    # Called by anybody

    def spawn(self, process: Process, name: str, target: Callable[[], Any]) -> Task:
        task = Task(process, name)
        task.greenlet = greenlet(lambda: self._main(task, target), parent=self._hub)
        self._tasks.append(task)
        self._ready.append(task)
        return task

    def call_later(self, delay_s: float, call: Callable[[], None], process: Process | None = None) -> None:
        """Runs `call` on the hub. If it belongs to a process, it waits while that is paused and dies with it."""
        self._sequence += 1
        heapq.heappush(self._timers, (self.now + delay_s, self._sequence, call, process))

    def crash(self, process: Process) -> None:
        """Its tasks never run again."""
        process.alive = process.paused = False
        process.parked.clear()
        process.parked_calls.clear()

    def pause(self, process: Process) -> None:
        process.paused = process.alive

    def resume(self, process: Process) -> None:
        if not process.paused:
            return
        process.paused = False
        self._ready += process.parked
        process.parked.clear()
        calls, process.parked_calls = process.parked_calls, []
        for call in calls:
            self.call_later(0.0, call, process)

    def threads_of(self, process: Process) -> int:
        return sum(1 for task in self._tasks if task.process is process and not task.done)

    # The hub

    def run_until(self, time_s: float, condition: Callable[[], bool] = lambda: False) -> bool:
        """Runs tasks until `condition` (checked after each step) or the time; says whether it was the condition."""
        assert self.current is None
        ready, timers, order = self._ready, self._timers, self._order
        while True:
            if self.failure is not None:
                raise self.failure
            if condition():
                return True
            if timers and (not ready or timers[0][0] <= self.now):
                if timers[0][0] > time_s:
                    if not ready:
                        self.now = time_s
                        return False
                else:
                    self._fire()
                    continue
            elif not ready:
                self.now = max(self.now, time_s)
                return False
            if self.now >= time_s:
                return False
            self._step(ready, order)

    def _step(self, ready: list[Task], order: random.Random) -> None:
        at = int(order.random() * len(ready))
        task = ready[at]
        ready[at] = ready[-1]
        ready.pop()
        process = task.process
        if not process.alive:
            return
        if process.paused:
            process.parked.append(task)
            return
        self.steps += 1
        if self.steps > STEPS_MAX:
            raise ViolationError("endless", f"{STEPS_MAX} steps without an end")
        self.now += STEP_MIN_S + (STEP_MAX_S - STEP_MIN_S) * order.random()
        self.current = task
        task.greenlet.switch()
        self.current = None

    def _fire(self) -> None:
        time_s, _, call, process = heapq.heappop(self._timers)
        self.now = max(self.now, time_s)
        if process is None or (process.alive and not process.paused):
            call()
        elif process.alive:
            process.parked_calls.append(call)

    def _time_out(self, task: Task, ticket: int) -> None:
        if task.waiting and task.ticket == ticket:
            task.waiting = False
            self._ready.append(task)

    def _main(self, task: Task, target: Callable[[], Any]) -> None:
        try:
            target()
        except (SimulationOverError, GreenletExit):
            pass
        except BaseException as error:  # noqa: BLE001 - a thread that dies is a failure of its own
            if not self.over:
                self.failure = self.failure or error
        finally:
            task.done = True

    def close(self) -> None:
        """Unwinds every task that has not ended, crashed ones too: a greenlet that is only dropped runs on later."""
        self.over, self._points_left = True, 0
        for task in self._tasks:
            if not task.done:
                self.current = task
                task.greenlet.throw(GreenletExit)
        self.current = None
        self._tasks.clear()
        self._ready.clear()
        self._timers.clear()


_active: list[Scheduler] = []
_loading: list[bool] = []


def active() -> Scheduler:
    """The scheduler of the simulation that runs now."""
    return _active[-1]


def is_active() -> bool:
    return bool(_active)


def point() -> None:
    """The current task may be preempted here. Outside a simulation and while modules load, nothing happens."""
    if _active and not _loading:
        _active[-1].point()


@contextmanager
def loading() -> Iterator[None]:
    """While a module is executed for the first time: later simulations, which find it loaded, must not differ."""
    _loading.append(True)
    try:
        yield
    finally:
        _loading.pop()


COLLECT_AFTER = 20
_ended = count(1)


class running:  # noqa: N801 - reads as a word in `with`
    """Makes a scheduler the active one, and unwinds its tasks at the end.

    Cyclic garbage is collected between simulations only. Within one, the finalizers of what earlier simulations and
    tests have left would run at a moment that the seed does not decide, and could pass preemption points.
    """

    def __init__(self, scheduler: Scheduler) -> None:
        self._scheduler = scheduler
        self._collects = gc.isenabled()

    def __enter__(self) -> Scheduler:
        gc.disable()
        _active.append(self._scheduler)
        return self._scheduler

    def __exit__(self, *_: object) -> None:
        try:
            self._scheduler.close()
        finally:
            _active.pop()
            if self._collects:
                gc.enable()
            if next(_ended) % COLLECT_AFTER == 0:
                gc.collect()
