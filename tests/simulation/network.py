"""Requests and answers between a process and the broker: in order on a connection, slow, delayed, lost, sent again.

A request that meets an outage is sent again when it is over, as librdkafka does. An answer that is lost makes the
client send its request again, so that it may happen twice. Time-outs belong to the callers.
"""

from __future__ import annotations

import hashlib
import random
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from tests.simulation.scheduler import Process, Scheduler

TRANSACTIONS = "transactions"
"""The connection to the transaction coordinator."""

LATE_MAX_S = 10.0

Reply = Callable[[Any], None]
"""Sends an answer back. May be called later, and only once."""


class History:
    """Who did what, when. Its digest is the same for the same seed, on any machine and under any PYTHONHASHSEED."""

    def __init__(self, scheduler: Scheduler) -> None:
        self.lines: list[tuple[float, str, str]] = []
        self._scheduler = scheduler

    def note(self, who: str, what: str) -> None:
        self.lines.append((self._scheduler.now, who, what))

    def digest(self) -> str:
        found = hashlib.sha256()
        for line in self.lines:
            found.update(repr(line).encode())
        found.update(str(self._scheduler.steps).encode())
        return found.hexdigest()[:16]


class Connection:
    """What is sent on it arrives in order, and is answered in order. `on_lost`: the client notices that it is closed
    while a request on it is not answered.
    """

    __slots__ = ("answers_at", "arrives_at", "name", "on_lost", "process")

    def __init__(self, process: Process, name: str, on_lost: Callable[[], None] = lambda: None) -> None:
        self.process = process
        self.name = name
        self.on_lost = on_lost
        self.arrives_at = self.answers_at = 0.0


@dataclass(eq=False)
class _Request:
    connection: Connection
    apply: Callable[[Reply], None]
    answered: Callable[[Any], None]
    tries: int = 0
    """Connections on which it was lost after it had arrived."""


class Network:
    def __init__(self, scheduler: Scheduler, seed: int, *, slow: float = 0.01, lost: float = 0.3) -> None:
        self.slow = slow
        """The share of requests and answers that take long."""
        self.slow_max_s = 1.0
        self.lost = lost
        """The share of answers lost in an outage; the others are delayed."""
        self.late = 0.3
        """The share of requests to the transaction coordinator that arrive once more, later, after their connection was
        lost (KIP-890). A broker that is only frozen keeps its connections.
        """
        self._scheduler = scheduler
        self._rng = random.Random(f"network {seed}")
        self._down_until = 0.0
        self._frozen_until = 0.0
        self._cut_until: dict[Process, float] = {}
        self._deaf_until: dict[Process, float] = {}
        self._silent_until: dict[str, float] = {}
        """By name of a process ("" for all): until when it gets, or got, no answers."""
        self._listeners: list[tuple[Process, Callable[[], None]]] = []
        self._open: dict[Process, dict[_Request, None]] = {}
        """By process: requests that arrived and are not answered yet, in order."""

    # Faults

    def take_down(self, seconds: float) -> None:
        """The broker refuses connections."""
        self._down_until = max(self._down_until, self._scheduler.now + seconds)
        self._note_silence("", seconds)
        for process in list(self._open):
            self._disconnect(process)
        self._tell([process for process, _ in self._listeners])

    def freeze(self, seconds: float) -> None:
        """The broker is stopped: connections stay, nothing is answered."""
        self._frozen_until = max(self._frozen_until, self._scheduler.now + seconds)
        self._note_silence("", seconds)

    def cut(self, process: Process, seconds: float) -> None:
        self._cut_until[process] = max(self._cut_until.get(process, 0.0), self._scheduler.now + seconds)
        self._note_silence(process.name, seconds)
        self._disconnect(process)
        self._tell([process])

    def deafen(self, process: Process, seconds: float) -> None:
        """What the process sends arrives, the answers do not."""
        self._deaf_until[process] = max(self._deaf_until.get(process, 0.0), self._scheduler.now + seconds)
        self._note_silence(process.name, seconds)

    def _note_silence(self, who: str, seconds: float) -> None:
        self._silent_until[who] = max(self._silent_until.get(who, 0.0), self._scheduler.now + seconds)

    def was_silent(self, who: str, seconds: float) -> bool:
        """Whether a process got no answers at some time within these last seconds."""
        until = max(self._silent_until.get(who, 0.0), self._silent_until.get("", 0.0))
        return until + seconds > self._scheduler.now

    def on_unreachable(self, process: Process, call: Callable[[], None]) -> None:
        """Called when a client of this process finds no broker."""
        self._listeners.append((process, call))

    def is_reachable(self, process: Process) -> bool:
        return self._blocked_until(process) <= self._scheduler.now

    def heal(self) -> None:
        self._silent_until = {who: min(until, self._scheduler.now) for who, until in self._silent_until.items()}
        self._down_until = self._frozen_until = 0.0
        self._cut_until.clear()
        self._deaf_until.clear()
        self.slow = 0.0

    def _tell(self, processes: list[Process]) -> None:
        for process, call in self._listeners:
            if process in processes:
                self._scheduler.call_later(self._rng.uniform(0.01, 3.0), self._if_unreachable(process, call), process)

    def _if_unreachable(self, process: Process, call: Callable[[], None]) -> Callable[[], None]:
        return lambda: None if self.is_reachable(process) else call()

    def _blocked_until(self, process: Process) -> float:
        return max(self._down_until, self._frozen_until, self._cut_until.get(process, 0.0))

    def _is_lossy(self, process: Process) -> bool:
        gone_until = max(self._cut_until.get(process, 0.0), self._deaf_until.get(process, 0.0))
        return max(self._down_until, gone_until) > self._scheduler.now

    # Requests

    def latency_s(self) -> float:
        if self._rng.random() < self.slow:
            return self._rng.uniform(0.01, self.slow_max_s)
        return self._rng.uniform(0.0002, 0.004)

    def open_requests(self, process: Process) -> int:
        return len(self._open.get(process, ()))

    def send(self, connection: Connection, apply: Callable[[Reply], None], answered: Callable[[Any], None]) -> None:
        """`apply(reply)` runs at the broker, `answered(answer)` at the client."""
        self._send(_Request(connection, apply, answered))

    def _send(self, request: _Request) -> None:
        connection = request.connection
        connection.arrives_at = max(self._scheduler.now + self.latency_s(), connection.arrives_at)
        self._scheduler.call_later(connection.arrives_at - self._scheduler.now, lambda: self._arrive(request))

    def _send_again(self, request: _Request, delay_s: float) -> None:
        process = request.connection.process
        if process.alive:  # what a dead process had sent is lost
            self._scheduler.call_later(delay_s, lambda: self._send(request), process)

    def _lose(self, connection: Connection) -> None:
        self._scheduler.call_later(0.0, connection.on_lost, connection.process)

    def _disconnect(self, process: Process) -> None:
        """The broker forgets whom to answer. The client sends again what was not answered."""
        blocked_s = self._blocked_until(process) - self._scheduler.now
        for request in self._open.pop(process, {}):
            request.tries += 1
            self._lose(request.connection)
            self._send_again(request, blocked_s)

    def _arrive(self, request: _Request) -> None:
        process = request.connection.process
        blocked_s = self._blocked_until(process) - self._scheduler.now
        if blocked_s > 0:
            if self._is_lossy(process):
                self._lose(request.connection)
                if request.connection.name == TRANSACTIONS and self._rng.random() < self.late:
                    delay_s = blocked_s + self._rng.uniform(0.0, LATE_MAX_S)
                    self._scheduler.call_later(delay_s, lambda: request.apply(lambda _: None))
            self._send_again(request, blocked_s)
            return
        tries = request.tries
        self._open.setdefault(process, {})[request] = None
        request.apply(lambda answer: self._reply(request, tries, answer))

    def _reply(self, request: _Request, tries: int, answer: Any) -> None:
        connection = request.connection
        process = connection.process
        if request.tries != tries:
            return  # its connection is gone
        self._open.get(process, {}).pop(request, None)
        connection.answers_at = max(self._scheduler.now + self.latency_s(), connection.answers_at)

        def arrive() -> None:
            until = max(self._blocked_until(process), self._deaf_until.get(process, 0.0))
            blocked_s = until - self._scheduler.now
            if blocked_s <= 0:
                request.answered(answer)
            elif self._is_lossy(process) and self._rng.random() < self.lost:
                self._lose(connection)
                self._send_again(request, blocked_s)
            else:
                self._scheduler.call_later(blocked_s + self.latency_s(), arrive, process)

        self._scheduler.call_later(connection.answers_at - self._scheduler.now, arrive, process)
