"""The programs of a campaign as processes: started again when they end, and every end is recorded."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from tests.support.seaweed import DIES_WITH_US

ONE_BLAS_THREAD = dict.fromkeys(("OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "OMP_NUM_THREADS"), "1")
ENDS_WITHIN_S = 60.0
RESTART_AFTER_S = 1.0
PAGE_BYTES = os.sysconf("SC_PAGE_SIZE")


@dataclass(frozen=True)
class End:
    """A process that ended with a code that nobody asked for."""

    program: str
    code: int
    log: Path

    def __str__(self) -> str:
        return f"{self.program} ended with {self.code}: {self.log.name}: {_last_line(self.log)}"


@dataclass(frozen=True)
class Usage:
    """What a process used at a moment."""

    program: str
    pid: int
    at_s: float
    rss_bytes: int
    threads: int
    files: int


@dataclass
class Program:
    """One program; its processes follow each other. Faults hold `lock` while they disturb it.

    A process dies with the thread that started it (PR_SET_PDEATHSIG), so that thread must outlive the campaign.
    """

    name: str
    command: list[str]
    folder: Path
    environment: Mapping[str, str] = field(default_factory=dict)
    lock: threading.Lock = field(default_factory=threading.Lock)
    unexpected: list[End] = field(default_factory=list)
    starts: int = 0
    _process: subprocess.Popen[bytes] | None = None
    _log: Path | None = None

    def start(self) -> None:
        assert self._process is None
        self.starts += 1
        self._log = self.folder / f"{self.name}.{self.starts}.log"
        with self._log.open("wb") as log:
            self._process = subprocess.Popen(
                [*DIES_WITH_US, sys.executable, *self.command],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                env={**os.environ, **ONE_BLAS_THREAD, **self.environment},
                start_new_session=True,
            )

    def kill(self) -> None:
        self._end(signal.SIGKILL, -signal.SIGKILL)

    def terminate(self) -> None:
        """SIGTERM: it must end with exit code 0, and in time."""
        self._end(signal.SIGTERM, 0)

    def pause(self) -> None:
        self._signal(signal.SIGSTOP)

    def resume(self) -> None:
        self._signal(signal.SIGCONT)

    def restart_if_ended(self) -> None:
        """An end without our doing is recorded. Called between faults only (`lock` is free)."""
        if self._process is not None and self._process.poll() is not None:
            self._record()
            time.sleep(RESTART_AFTER_S)
            self.start()

    @property
    def running(self) -> bool:
        return self._process is not None and self._process.poll() is None

    def usage(self, now_s: float) -> Usage | None:
        """None where it does not run."""
        process = self._process
        if process is None:
            return None
        try:
            fields = Path(f"/proc/{process.pid}/stat").read_text().rpartition(")")[2].split()
            files = len(os.listdir(f"/proc/{process.pid}/fd"))  # noqa: PTH208 - names suffice
        except (OSError, IndexError):
            return None
        return Usage(self.name, process.pid, now_s, int(fields[21]) * PAGE_BYTES, int(fields[17]), files)

    def _signal(self, number: signal.Signals) -> None:
        if self.running:
            assert self._process is not None
            self._process.send_signal(number)

    def _end(self, number: signal.Signals, wanted: int) -> None:
        if self._process is None:
            return
        self._signal(number)
        try:
            code = self._process.wait(ENDS_WITHIN_S)
        except subprocess.TimeoutExpired:
            self._process.send_signal(signal.SIGABRT)  # faulthandler, where it is on, prints what the threads do
            code = self._process.wait()
        if code == wanted or (code == -number and self._is_silent()):
            self._process = None
        else:
            self._record()

    def _is_silent(self) -> bool:
        """It has logged nothing, so Python was still starting and no signal handler was installed."""
        return self._log is not None and self._log.stat().st_size == 0

    def _record(self) -> None:
        assert self._process is not None
        assert self._log is not None
        self.unexpected.append(End(self.name, self._process.wait(), self._log))
        self._process = None


def service(
    name: str, command: str, settings: Path, folder: Path, environment: Mapping[str, str] | None = None
) -> Program:
    """`command`: run, merge or score."""
    words = ["-X", "faulthandler", "-m", "sfd_stream.cli", "--debug", command, "--config", str(settings)]
    return Program(name, words, folder, environment or {})


def _last_line(log: Path) -> str:
    lines = [line for line in log.read_text(errors="replace").splitlines() if line.strip()]
    return lines[-1][:300] if lines else "(no output)"


class Keeper(threading.Thread):
    """Starts programs again that ended, and samples what they use."""

    def __init__(self, programs: list[Program], every_s: float = 0.5) -> None:
        super().__init__(daemon=True)
        self._programs, self._every_s = programs, every_s
        self._stopped = threading.Event()
        self._over = threading.Event()
        self.usage: list[Usage] = []

    def run(self) -> None:
        turn = 0
        while not self._stopped.wait(self._every_s):
            turn += 1
            for program in self._programs:
                if program.lock.acquire(blocking=False):
                    try:
                        program.restart_if_ended()
                    finally:
                        program.lock.release()
                if turn % 4 == 0 and (found := program.usage(time.monotonic())) is not None:
                    self.usage.append(found)
        self._over.wait()

    def stop(self) -> None:
        """Ends the work. The thread lives on, because processes that it started end with it."""
        self._stopped.set()

    def end(self) -> None:
        self._stopped.set()
        self._over.set()
        self.join()
