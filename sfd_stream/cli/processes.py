"""`run --workers N`: this same program N times, under a supervisor."""

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
"""Beyond a last checkpoint's budget: to leave the group and end."""


@dataclass(frozen=True)
class Arguments:
    """What a worker is told on its command line."""

    config: Path | None
    overrides: tuple[str, ...]
    until_end: bool

    def command(self, settings: Settings, number: int, status_folder: Path) -> list[str]:
        """Worker `number`, run by this interpreter; it writes its status to `status_folder`."""
        command = [sys.executable, "-m", "sfd_stream.cli", "run", "--worker-number", str(number)]
        command += ["--status-folder", str(status_folder)]
        command += ["--until-end"] if self.until_end else []
        command += [] if self.config is None else ["--config", str(self.config)]
        # Each has its share of the container's memory, as the supervisor has worked out; never less than one buffer.
        share_bytes = max(settings.worker.memory_max_bytes, settings.sketch.buffer_max_bytes)
        overrides = (*self.overrides, f"worker.memory_max_bytes={share_bytes}")
        if _STATIC_MEMBER in settings.kafka:  # a static member's name is for one process only
            overrides += (f"kafka.{_STATIC_MEMBER}={settings.kafka[_STATIC_MEMBER]}-{number}",)
        return command + [part for override in overrides for part in ("--set", override)]


def supervise(settings: Settings, arguments: Arguments, workers: int) -> int:
    """Until all are done, one can't go on, or a signal; the exit code of the whole."""
    from sfd_stream.cli.commands.run import stop_on_signals
    from sfd_stream.observe.logs import get_logger
    from sfd_stream.processes.restarts import RESTARTS, Crew
    from sfd_stream.processes.status_files import remove
    from sfd_stream.processes.supervisor import Child, Supervisor, spawn

    crew = Crew(workers, until_end=arguments.until_end, backoff=RESTARTS, jitter=lambda: random.uniform(0.5, 1))
    with _served(settings, workers) as folders:

        def start(number: int) -> Child:
            remove(folders[str(number)])
            return spawn(arguments.command(settings, number, folders[str(number)]))

        supervisor = Supervisor(
            crew,
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
    """One port for all workers. Each writes its status to a folder of its own, which only this user may enter."""
    from sfd_stream.observe.logs import get_logger
    from sfd_stream.observe.server import Port, listening
    from sfd_stream.processes.status_files import WorkerStatuses

    listener = listening(settings.http.host, settings.http.port)
    with tempfile.TemporaryDirectory(prefix="sfd-stream-") as folder:
        folders = {str(number): Path(folder, str(number)) for number in range(1, workers + 1)}
        labels = {"group": settings.group, "topic": settings.input.topic}
        port = Port(listener, WorkerStatuses(folders, labels, settings.http.stuck_after_s, time.monotonic).routes())
        port.start()
        get_logger().info("status page available", url=port.address)
        try:
            yield folders
        finally:
            port.close()


def end_with_supervisor(settings: Settings) -> None:
    """In a child: its standard input is the pipe from the supervisor."""
    from sfd_stream.processes.supervisor import stop_with_parent

    stop_with_parent(0, settings.checkpoint.revoke_budget_s + _LEAVE_S)


def configure_logs(settings: Settings, labels: dict[str, Any], **json_labels: Any) -> Logs:
    """To be entered for as long as there is something to log. JSON lines name the group and the topic too."""
    from sfd_stream.observe.logs import configure

    level, form = settings.log.level, settings.log.format
    about = {"group": settings.group, "topic": settings.input.topic}
    return configure(
        level=level, form=form, secrets=settings.secret_values(), labels=labels, json_labels={**about, **json_labels}
    )


def rows_in_store(settings: Settings) -> int:
    """Of all partitions, as their newest manifests say; an unreadable one is the worker's to complain of."""
    from sfd_stream.cli.partition_options import places_of, workbench_of
    from sfd_stream.state.manifest import Manifest
    from sfd_stream.tools.inspect import rows_in, stand

    bench = workbench_of(settings)
    newest = [bench.run(stand(place)).newest for place in places_of(settings, bench.store)]
    return sum(rows_in(found) for found in newest if isinstance(found, Manifest))
