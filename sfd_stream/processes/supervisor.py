"""N workers of one group, each a process, under one roof: started, started again when they die, stopped together.

A child's standard input is a pipe that nobody writes to: it ends when the supervisor does, however that happens, and
the child then stops gracefully (`stop_with_parent`). Children have sessions of their own, so that a Ctrl-C on the
terminal reaches them once, through the supervisor.
"""

from __future__ import annotations

import os
import signal
import subprocess
import threading
import time
from collections.abc import Callable, Sequence
from typing import Protocol

from structlog.typing import FilteringBoundLogger

from sfd_stream.processes.restarts import Crew

LOOK_EVERY_S = 0.1


class Child(Protocol):
    """The part of a Popen that is used."""

    @property
    def pid(self) -> int: ...
    def poll(self) -> int | None: ...
    def terminate(self) -> None: ...
    def kill(self) -> None: ...


class Supervisor:
    """`run` returns when all workers are done, one has failed permanently, or `stop` was called."""

    def __init__(
        self,
        crew: Crew,
        spawn: Callable[[int], Child],
        log: FilteringBoundLogger,
        *,
        clock: Callable[[], float],
        pause: Callable[[float], None],
        stop_budget_s: float,
    ) -> None:
        self._crew = crew
        self._spawn = spawn
        self._log = log
        self._clock = clock
        self._pause = pause
        self._stop_budget_s = stop_budget_s
        self._children: dict[int, Child] = {}
        self._stop_asked = False
        self._kill_at_s: float | None = None

    def run(self) -> int:
        """The exit code of the whole."""
        try:
            while not self._crew.over:
                self._start_due()
                self._reap()
                self._stop_all()
                self._pause(LOOK_EVERY_S)
        finally:
            self.kill()
        return self._crew.exit_code

    def stop(self) -> None:
        """Gracefully. May be called from a signal handler."""
        self._stop_asked = True

    def kill(self) -> None:
        """At once; they are safe against it. May be called from a signal handler."""
        for child in list(self._children.values()):
            child.kill()

    def _start_due(self) -> None:
        for number in self._crew.due(self._clock()):
            child = self._spawn(number)
            self._children[number] = child
            self._crew.started(number, self._clock())
            self._log.info("worker started", worker=number, pid=child.pid)

    def _reap(self) -> None:
        for number, child in list(self._children.items()):
            code = child.poll()
            if code is None:
                continue
            del self._children[number]
            stopping = self._crew.stopping
            wait_s = self._crew.ended(number, code, self._clock())
            if wait_s is not None:
                self._log.warning("worker died, restarting it", worker=number, code=code, in_s=round(wait_s, 2))
            elif code and not stopping:
                self._log.error("worker failed permanently, stopping all workers", worker=number, code=code)
            else:
                self._log.info("worker ended", worker=number, code=code)

    def _stop_all(self) -> None:
        """Asks once; those still running when the time is up are killed."""
        if self._stop_asked and not self._crew.stopping:
            self._crew.stop()
        if not self._crew.stopping:
            return
        now_s = self._clock()
        if self._kill_at_s is None:
            self._kill_at_s = now_s + self._stop_budget_s
            for child in self._children.values():
                child.terminate()
        elif now_s >= self._kill_at_s and self._children:
            self._log.error("workers did not stop in time, killed", workers=sorted(self._children))
            self.kill()


def spawn(command: Sequence[str]) -> subprocess.Popen[bytes]:
    """A child that ends with us; what it prints goes to standard error, for standard output is the summary's."""
    return subprocess.Popen(command, stdin=subprocess.PIPE, stdout=2, start_new_session=True)


def stop_with_parent(pipe: int, budget_s: float) -> None:
    """In a child: once the pipe from the supervisor ends, stop gracefully, or at the latest after `budget_s`."""

    def watch() -> None:
        while os.read(pipe, 1):
            pass
        os.kill(os.getpid(), signal.SIGTERM)
        time.sleep(budget_s)
        os.kill(os.getpid(), signal.SIGKILL)

    threading.Thread(target=watch, name="parent", daemon=True).start()
