"""Runs N workers of one group as child processes: starts them, restarts those that die, stops all together.

A child's standard input is a pipe that nobody writes to. It closes when the supervisor ends for any reason, and the
child then stops gracefully (`stop_with_parent`). Each child has its own session, so that a Ctrl-C on the terminal
reaches it once, through the supervisor.
"""

from __future__ import annotations

import os
import signal
import subprocess
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import KW_ONLY, dataclass

from structlog.typing import FilteringBoundLogger

from sfd_stream.processes.restarts import RestartPolicy

POLL_EVERY_S = 0.1


Child = subprocess.Popen[bytes]


@dataclass(eq=False)
class Supervisor:
    """`run` returns when all workers are done, one has failed permanently, or `stop` was called."""

    restarts: RestartPolicy
    spawn: Callable[[int], Child]
    log: FilteringBoundLogger
    _: KW_ONLY
    clock: Callable[[], float]
    pause: Callable[[float], None]
    stop_budget_s: float

    def __post_init__(self) -> None:
        self._children: dict[int, Child] = {}
        self._stop_requested = False
        self._kill_at_s: float | None = None

    def run(self) -> int:
        """Runs the workers and returns the exit code of the program."""
        try:
            while not self.restarts.over:
                self._start_due()
                self._reap()
                self._stop_all()
                self.pause(POLL_EVERY_S)
        finally:
            self.kill()
        return self.restarts.exit_code

    def stop(self) -> None:
        """Stops all workers gracefully. May be called from a signal handler."""
        self._stop_requested = True

    def kill(self) -> None:
        """Kills all workers at once; nothing is lost. May be called from a signal handler."""
        for child in list(self._children.values()):
            child.kill()

    def _start_due(self) -> None:
        for number in self.restarts.due(self.clock()):
            child = self.spawn(number)
            self._children[number] = child
            self.restarts.started(number, self.clock())
            self.log.info("worker started", worker=number, pid=child.pid)

    def _reap(self) -> None:
        for number, child in list(self._children.items()):
            code = child.poll()
            if code is None:
                continue
            del self._children[number]
            stopping = self.restarts.stopping
            wait_s = self.restarts.ended(number, code, self.clock())
            if wait_s is not None:
                self.log.warning("worker died, restarting it", worker=number, code=code, in_s=round(wait_s, 2))
            elif code and not stopping:
                self.log.error("worker failed permanently, stopping all workers", worker=number, code=code)
            else:
                self.log.info("worker ended", worker=number, code=code)

    def _stop_all(self) -> None:
        """Sends SIGTERM once. Workers that still run when the budget is spent are killed."""
        if self._stop_requested and not self.restarts.stopping:
            self.restarts.stop()
        if not self.restarts.stopping:
            return
        now_s = self.clock()
        if self._kill_at_s is None:
            self._kill_at_s = now_s + self.stop_budget_s
            for child in self._children.values():
                child.terminate()
        elif now_s >= self._kill_at_s and self._children:
            self.log.error("workers did not stop in time, killed", workers=sorted(self._children))
            self.kill()


def spawn(command: Sequence[str]) -> Child:
    """Starts a child that ends with us. Its output goes to standard error: standard output is for the summary."""
    return subprocess.Popen(command, stdin=subprocess.PIPE, stdout=2, start_new_session=True)


def stop_with_parent(pipe: int, budget_s: float) -> None:
    """In a child: stops gracefully when the supervisor's pipe closes, and exits at the latest after `budget_s`."""

    def watch() -> None:
        while os.read(pipe, 1):
            pass
        os.kill(os.getpid(), signal.SIGTERM)
        time.sleep(budget_s)
        os.kill(os.getpid(), signal.SIGKILL)

    threading.Thread(target=watch, name="parent", daemon=True).start()
