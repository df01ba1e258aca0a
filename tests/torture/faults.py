"""What a campaign does to its parts. A seed makes the plan; a target is disturbed by one fault at a time."""

from __future__ import annotations

import math
import random
import signal
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field

from tests.support.proxy import ResettingProxy
from tests.torture.load import Load
from tests.torture.parts import Brokers, Clock, DiskStore, NetworkStore
from tests.torture.programs import Program

SESSION_S = 1.5
"""Session timeout of both groups: a worker or scorer that is paused for longer is removed from its group."""

CLOCK_STEP_MAX_S = 40
"""librdkafka waits by the wall clock: if that is set back within a wait, the wait lasts as much longer. So the steps
are shorter than the minute that a program has to end."""


@dataclass
class Parts:
    """Everything that can be disturbed."""

    brokers: Brokers
    store: NetworkStore | DiskStore
    workers: list[Program]
    extra: Program
    """A worker that joins and leaves."""
    scorers: list[Program]
    merge: Program
    load: Load
    clock: Clock
    """Of the last of `workers`."""
    topic: str
    rng: random.Random
    broker_lock: threading.Lock = field(default_factory=threading.Lock)
    store_lock: threading.Lock = field(default_factory=threading.Lock)
    topic_lock: threading.Lock = field(default_factory=threading.Lock)
    clock_lock: threading.Lock = field(default_factory=threading.Lock)
    link_locks: dict[str, threading.Lock] = field(default_factory=dict)

    def lock_of(self, link: str) -> threading.Lock:
        return self.link_locks.setdefault(link, threading.Lock())


@dataclass(frozen=True)
class Step:
    """One fault of a plan: when it begins, what it does to which target, and for how long."""

    at_s: float
    kind: str
    target: int
    for_s: float

    def __str__(self) -> str:
        return f"{self.at_s:8.1f} s  {self.kind}, target {self.target}, {self.for_s:.1f} s"


Act = Callable[[Parts, Step], None]


@dataclass(frozen=True)
class Fault:
    """`weight`: how often it is chosen. `for_s`: range of its duration. `times_max`: how often a plan may have it."""

    act: Act
    weight: float
    for_s: tuple[float, float]
    possible: Callable[[Parts], bool] = lambda _: True
    times_max: float = math.inf


def plan(parts: Parts, seed: int, length_s: float, every_s: float) -> list[Step]:
    """Faults at random times, `every_s` apart on average. Each possible kind comes once before any kind is repeated."""
    rng = random.Random(seed)
    kinds = [kind for kind, fault in FAULTS.items() if fault.possible(parts)]
    first, steps, at_s = rng.sample(kinds, len(kinds)), [], 0.0
    while (at_s := at_s + rng.expovariate(1 / every_s)) < length_s:
        kind = first.pop() if first else rng.choices(kinds, [FAULTS[kind].weight for kind in kinds])[0]
        steps.append(Step(at_s, kind, rng.randrange(1_000_000), rng.uniform(*FAULTS[kind].for_s)))
        if sum(step.kind == kind for step in steps) >= FAULTS[kind].times_max:
            kinds.remove(kind)
    return steps


# Programs

Choose = Callable[[Parts, Step], Program]


def _any_worker(parts: Parts, step: Step) -> Program:
    return parts.workers[step.target % len(parts.workers)]


def _later_worker(parts: Parts, step: Step) -> Program:
    """The first worker is never ended, so that its memory is seen over the whole campaign."""
    return parts.workers[1 + step.target % (len(parts.workers) - 1)]


def _merge(parts: Parts, _: Step) -> Program:
    return parts.merge


def _any_scorer(parts: Parts, step: Step) -> Program:
    return parts.scorers[step.target % len(parts.scorers)]


def _later_scorer(parts: Parts, step: Step) -> Program:
    """The first scorer is never ended, as the first worker."""
    return parts.scorers[1 + step.target % (len(parts.scorers) - 1)]


def _replaced(choose: Choose, end: Callable[[Program], None]) -> Act:
    def act(parts: Parts, step: Step) -> None:
        program = choose(parts, step)
        with program.lock:
            end(program)
            time.sleep(step.for_s)
            program.start()

    return act


def _paused(choose: Choose) -> Act:
    def act(parts: Parts, step: Step) -> None:
        program = choose(parts, step)
        with program.lock:
            program.pause()
            time.sleep(step.for_s)
            program.resume()

    return act


def rebalance(parts: Parts, step: Step) -> None:
    """A worker joins and leaves, two or three times; every other time without a goodbye."""
    with parts.extra.lock:
        for turn in range(2 + step.target % 2):
            parts.extra.start()
            time.sleep(step.for_s)
            (parts.extra.kill if turn % 2 else parts.extra.terminate)()


# Brokers and store


def kill_broker(parts: Parts, step: Step) -> None:
    node = parts.brokers.nodes[step.target % len(parts.brokers.nodes)]
    with parts.broker_lock:
        node.kill()
        time.sleep(step.for_s)
        node.restart()


def pause_broker(parts: Parts, step: Step) -> None:
    node = parts.brokers.nodes[step.target % len(parts.brokers.nodes)]
    with parts.broker_lock:
        node.pause()
        time.sleep(step.for_s)
        node.resume()


def add_partition(parts: Parts, step: Step) -> None:
    with parts.broker_lock, parts.topic_lock:  # no other fault stops the broker meanwhile
        total = parts.load.partitions + 1
        parts.brokers.add_partitions(parts.topic, total)
        parts.load.partitions = total


def _on_network(parts: Parts) -> bool:
    return isinstance(parts.store, NetworkStore)


def kill_store(parts: Parts, step: Step) -> None:
    assert isinstance(parts.store, NetworkStore)
    with parts.store_lock:
        parts.store.kill()
        time.sleep(step.for_s)
        parts.store.restart()


def pause_store(parts: Parts, step: Step) -> None:
    assert isinstance(parts.store, NetworkStore)
    with parts.store_lock:
        parts.store.signal(signal.SIGSTOP)
        time.sleep(step.for_s)
        parts.store.signal(signal.SIGCONT)


def fill_disk(parts: Parts, step: Step) -> None:
    assert isinstance(parts.store, DiskStore)
    with parts.store_lock:
        parts.store.fill()
        time.sleep(step.for_s)
        parts.store.free()


def step_clock(parts: Parts, step: Step) -> None:
    with parts.clock_lock:
        parts.clock.set((step.target % (2 * CLOCK_STEP_MAX_S)) - CLOCK_STEP_MAX_S)
        time.sleep(step.for_s)
        parts.clock.set(0)


# Connections


def _broker_links(parts: Parts, step: Step) -> tuple[str, list[ResettingProxy]]:
    names = sorted(parts.brokers.links)
    name = names[step.target % len(names)]
    return f"broker {name}", parts.brokers.links[name]


def _store_links(parts: Parts, step: Step) -> tuple[str, list[ResettingProxy]]:
    names = sorted(parts.store.links)
    name = names[step.target % len(names)]
    return f"store {name}", [parts.store.links[name]]


def _disturbed(
    choose: Callable[[Parts, Step], tuple[str, list[ResettingProxy]]], disturb: Callable[[ResettingProxy], None]
) -> Act:
    def act(parts: Parts, step: Step) -> None:
        name, links = choose(parts, step)
        with parts.lock_of(name):
            for link in links:
                disturb(link)
            time.sleep(step.for_s)
            for link in links:
                link.restore()

    return act


def _slow(link: ResettingProxy) -> None:
    link.slow(20_000)


_PASSING = {
    "reset": (ResettingProxy.break_connections, (0.2, 6.0)),
    "cut": (ResettingProxy.cut_connections, (0.0, 0.1)),
    "silent": (ResettingProxy.hold, (0.5, 8.0)),
    "slow": (_slow, (1.0, 8.0)),
    "answers lost": (ResettingProxy.lose_answers, (0.2, 3.0)),
}

FAULTS: dict[str, Fault] = {
    "worker: SIGKILL": Fault(_replaced(_later_worker, Program.kill), 3, (0.0, 2.0)),
    "worker: SIGTERM": Fault(_replaced(_later_worker, Program.terminate), 2, (0.0, 2.0)),
    "worker: SIGSTOP beyond its session": Fault(_paused(_any_worker), 3, (1.5 * SESSION_S, 8.0)),
    "scorer: SIGKILL": Fault(_replaced(_later_scorer, Program.kill), 2, (0.0, 2.0)),
    "scorer: SIGTERM": Fault(_replaced(_later_scorer, Program.terminate), 1, (0.0, 2.0)),
    "scorer: SIGSTOP beyond its session": Fault(_paused(_any_scorer), 2, (1.5 * SESSION_S, 8.0)),
    "merge: SIGKILL": Fault(_replaced(_merge, Program.kill), 1, (0.0, 2.0)),
    "merge: SIGTERM": Fault(_replaced(_merge, Program.terminate), 1, (0.0, 2.0)),
    "merge: SIGSTOP": Fault(_paused(_merge), 1, (0.5, 5.0)),
    "rebalances in series": Fault(rebalance, 1, (3.0, 8.0)),
    "broker: SIGKILL": Fault(kill_broker, 1.5, (0.0, 4.0)),
    "broker: SIGSTOP": Fault(pause_broker, 4, (0.5, 10.0)),
    "partition added": Fault(add_partition, 0.5, (0.0, 0.0), times_max=8),
    "clock step": Fault(step_clock, 1, (1.0, 8.0), lambda parts: bool(parts.clock.environment)),
    "store: SIGKILL": Fault(kill_store, 1, (0.0, 4.0), lambda parts: _on_network(parts) and parts.store.survives_kill),
    "store: SIGSTOP": Fault(pause_store, 2, (0.5, 10.0), _on_network),
    "disk full": Fault(
        fill_disk, 2, (0.5, 8.0), lambda parts: isinstance(parts.store, DiskStore) and parts.store.can_be_full
    ),
    **{
        f"connection to a broker: {name}": Fault(_disturbed(_broker_links, disturb), 1, for_s)
        for name, (disturb, for_s) in _PASSING.items()
    },
    **{
        f"connection to the store: {name}": Fault(_disturbed(_store_links, disturb), 0.6, for_s, _on_network)
        for name, (disturb, for_s) in _PASSING.items()
    },
}
