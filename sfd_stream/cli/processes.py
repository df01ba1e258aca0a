"""`run --workers N`: runs this program N times, under a supervisor."""

from __future__ import annotations

import random
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from sfd_stream.config.model import Settings
    from sfd_stream.observe.logs import Logs

_STATIC_MEMBER = "group.instance.id"
_LEAVE_S = 30.0
"""Time to leave the group and exit, in addition to the budget of the last checkpoint."""


@dataclass(frozen=True)
class Arguments:
    """The arguments of the command line that a worker gets, too."""

    config: Path | None
    overrides: tuple[str, ...]
    until_end: bool

    def command(self, settings: Settings, number: int, status_folder: Path) -> list[str]:
        """The command of worker `number`, with this interpreter. The worker writes its status to `status_folder`."""
        command = [sys.executable, "-m", "sfd_stream.cli", "run", "--worker-number", str(number)]
        command += ["--status-folder", str(status_folder)]
        command += ["--until-end"] if self.until_end else []
        command += [] if self.config is None else ["--config", str(self.config)]
        # Each worker gets its share of the container's memory from the supervisor, and at least one buffer.
        share_bytes = max(settings.worker.memory_max_bytes, settings.sketch.buffer_max_bytes)
        overrides = (*self.overrides, f"worker.memory_max_bytes={share_bytes}")
        if _STATIC_MEMBER in settings.kafka:  # the name of a static member belongs to one process
            overrides += (f"kafka.{_STATIC_MEMBER}={settings.kafka[_STATIC_MEMBER]}-{number}",)
        return command + [part for override in overrides for part in ("--set", override)]


def supervise(settings: Settings, arguments: Arguments, workers: int) -> int:
    """Runs until all workers are done, one fails permanently, or a signal arrives. Returns the exit code."""
    from sfd_stream.cli.commands.run import stop_on_signals
    from sfd_stream.observe.logs import get_logger
    from sfd_stream.processes.restarts import RESTARTS, RestartPolicy
    from sfd_stream.processes.status_files import remove
    from sfd_stream.processes.supervisor import Child, Supervisor, spawn

    restarts = RestartPolicy(
        workers, until_end=arguments.until_end, backoff=RESTARTS, jitter=lambda: random.uniform(0.5, 1)
    )
    with _served(settings, workers) as folders:

        def start(number: int) -> Child:
            remove(folders[str(number)])
            return spawn(arguments.command(settings, number, folders[str(number)]))

        supervisor = Supervisor(
            restarts,
            start,
            get_logger(),
            clock=time.monotonic,
            pause=time.sleep,
            stop_budget_s=settings.checkpoint.revoke_budget_s + _LEAVE_S,
        )
        stop_on_signals(supervisor.stop, get_logger(), supervisor.kill)
        return supervisor.run()


@contextmanager
def _served(settings: Settings, workers: int) -> Iterator[dict[str, Path]]:
    """Serves one port for all workers. Each writes its status to its own folder, which only this user can read."""
    from sfd_stream.cli.build import served
    from sfd_stream.observe.server import listening
    from sfd_stream.processes.status_files import WorkerStatuses

    listener = listening(settings.http.host, settings.http.port)
    with tempfile.TemporaryDirectory(prefix="sfd-stream-") as folder:
        folders = {str(number): Path(folder, str(number)) for number in range(1, workers + 1)}
        labels = {"group": settings.group, "topic": settings.input.topic}
        statuses = WorkerStatuses(folders, labels, settings.http.stuck_after_s, time.monotonic)
        with served(listener, statuses.routes()):
            yield folders


def end_with_supervisor(settings: Settings) -> None:
    """In a child: stops when the supervisor ends. Standard input is the pipe from the supervisor."""
    from sfd_stream.processes.supervisor import stop_with_parent

    stop_with_parent(0, settings.checkpoint.revoke_budget_s + _LEAVE_S)


def configure_logs(settings: Settings, labels: dict[str, Any], **json_labels: Any) -> Logs:
    """The log of this process, as a context manager. JSON lines also name the group and the topic."""
    from sfd_stream.observe.logs import configure

    level, form = settings.log.level, settings.log.format
    about = {"group": settings.group, "topic": settings.input.topic}
    return configure(
        level=level, form=form, secrets=settings.secret_values(), labels=labels, json_labels={**about, **json_labels}
    )


def rows_in_store(settings: Settings) -> int:
    """Rows of all partitions by their newest manifests. The worker itself reports an unreadable manifest."""
    from sfd_stream.cli.build import store_of
    from sfd_stream.cli.partition_options import PATIENCE_MAX_S
    from sfd_stream.tools.inspect import newest_manifests, rows_in

    give_up_s = min(settings.checkpoint.give_up_s, PATIENCE_MAX_S)
    newest = newest_manifests(store_of(settings), settings.group, settings.input.topic, give_up_s)
    return sum(map(rows_in, newest.values()))
