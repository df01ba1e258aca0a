"""`sfd-stream run`: runs one worker or several."""

# Annotations are evaluated: typer reads them.
import os
import signal
import threading
import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from sfd_stream.cli.options import ConfigOption, JsonOption, SetOption, settings_from

if TYPE_CHECKING:
    from collections.abc import Callable

    from sfd_stream.config.model import Settings
    from sfd_stream.worker.worker import Worker


def run(
    config: ConfigOption = None,
    overrides: SetOption = None,
    until_end: Annotated[
        bool,
        typer.Option(
            "--until-end",
            help="Stop when everything up to the end offsets at the start is durable and published; print a summary.",
        ),
    ] = False,
    workers: Annotated[
        int,
        typer.Option(
            "--workers", min=1, metavar="N", help="Number of worker processes to start in this consumer group."
        ),
    ] = 1,
    as_json: JsonOption = False,
    worker_number: Annotated[int | None, typer.Option("--worker-number", min=1, hidden=True)] = None,
    status_folder: Annotated[Path | None, typer.Option("--status-folder", hidden=True)] = None,
) -> None:
    """Run a worker: join the consumer group, sketch the topic's rows, write checkpoints, publish snapshots.

    Example: [bold]sfd-stream run --config settings.yaml --until-end[/bold]

    That is a backfill: it ends with a summary of each partition's sketch.

    Four processes; a process that dies is restarted:
    [bold]sfd-stream run --config settings.yaml --workers 4[/bold]

    On SIGTERM or Ctrl-C it writes a last checkpoint and exits with 0; a second signal ends it at once.
    A restarted worker continues from its checkpoints; every row is counted once.
    It refuses a checkpoint that does not fit the topic or the settings: exit 3, with the command to run.
    """
    from sfd_stream.cli import processes as crew

    settings = settings_from(config, overrides).settings
    if worker_number is not None:
        crew.end_with_supervisor(settings)
    if workers > 1:
        _run_many(settings, crew.Arguments(config, tuple(overrides or ()), until_end), workers, as_json=as_json)
        return
    labels = {} if worker_number is None else {"worker": worker_number}
    began = time.monotonic()
    options = {"worker_name": str(worker_number or 1), "status_folder": status_folder}
    worker = _run_one(settings, labels, until_end=until_end, bar=worker_number is None, **options)
    if until_end and worker_number is None:
        rows_per_s = worker.progress.rows / max(time.monotonic() - began, 1e-9)
        print_summary(settings, rows_per_s, as_json=as_json)


def _run_one(settings: "Settings", labels: dict[str, Any], *, until_end: bool, bar: bool, **options: Any) -> "Worker":
    from sfd_stream.cli.processes import configure_logs
    from sfd_stream.cli.progress import watching

    with watching(bar=bar and until_end) as watch, configure_logs(settings, labels, worker=int(options["worker_name"])):
        settings = within_quota(settings)
        return work(settings, until_end=until_end, watch=watch, on_end=watch.end, **options)


def _run_many(settings: "Settings", arguments: Any, workers: int, *, as_json: bool) -> None:
    from sfd_stream.cli import processes as crew

    with crew.configure_logs(settings, {}):
        settings = within_quota(settings, workers)
        began, before = time.monotonic(), crew.rows_in_store(settings) if arguments.until_end else 0
        code = crew.supervise(settings, arguments, workers)
    if code:
        raise typer.Exit(code)
    if arguments.until_end:
        rows = crew.rows_in_store(settings) - before
        print_summary(settings, max(rows, 0) / max(time.monotonic() - began, 1e-9), as_json=as_json)


def within_quota(settings: "Settings", workers: int = 1) -> "Settings":
    """The settings fitted to this container. Logs what may exceed its limits. Raises if the memory can't suffice."""
    from sfd_stream.cli.build import shape_of
    from sfd_stream.config import container_limits
    from sfd_stream.errors import SettingsError
    from sfd_stream.observe.logs import get_logger
    from sfd_stream.tools import sizing

    share = container_limits.own_quota().shared_by(workers)
    settings = container_limits.fitted(settings, share)
    shape, budget_bytes = shape_of(settings, 0), settings.worker.memory_max_bytes
    if (reason := sizing.too_wide(shape, shape.columns.d, budget_bytes)) is not None:
        raise SettingsError(f"{reason}; {sizing.LESS_MEMORY}")
    for words in container_limits.misfits(settings, share):
        get_logger().warning(words)
    if (reason := sizing.may_be_too_large(shape, budget_bytes)) is not None:
        get_logger().warning(f"{reason}; {sizing.LESS_MEMORY}")
    return settings


def work(
    settings: "Settings",
    *,
    until_end: bool,
    watch: "Callable[[Worker], None] | None" = None,
    on_end: "Callable[[Worker], None]" = lambda _: None,
    status_folder: "Path | None" = None,
    **hooks: Any,
) -> "Worker":
    """Runs one worker to its end, in this process, with its share of the machine."""
    from threadpoolctl import threadpool_limits

    from sfd_stream.cli.build import observed, worker_of
    from sfd_stream.memory import collected_seldom, share_one_arena

    share_one_arena()
    observe = observed(settings, status_folder)
    with threadpool_limits(settings.worker.blas_threads):
        worker, _ = worker_of(settings, until_end=until_end, **hooks)
        stop_on_signals(worker.stop, worker.log)
        with observe(worker), collected_seldom():
            try:
                worker.run(lambda: watch(worker) if watch is not None else None)
            finally:
                on_end(worker)
    return worker


STOPPING = "stopping after last checkpoints, a second signal exits at once"


def stop_on_signals(
    stop: "Callable[[], None]", log: Any, end: "Callable[[], None]" = lambda: None, *, event: str = STOPPING
) -> None:
    """The first SIGTERM or SIGINT stops gracefully. The second calls `end` and exits at once."""

    def log_signal(name: str) -> None:
        log.info(event, signal=name)

    def second(number: int, _: Any) -> None:
        end()
        os._exit(128 + number)

    def first(number: int, _: Any) -> None:
        for other in (signal.SIGTERM, signal.SIGINT):
            signal.signal(other, second)
        stop()
        # On a separate thread: this handler may have interrupted the log while it held its lock.
        threading.Thread(target=log_signal, args=(signal.Signals(number).name,), daemon=True).start()

    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, first)


def print_summary(settings: "Settings", rows_per_s: float, *, as_json: bool) -> None:
    from sfd_stream.cli.build import shape_of, store_of
    from sfd_stream.cli.output import print_json, print_table, print_text, short
    from sfd_stream.tools.inspect import as_report, summarise

    found = summarise(store_of(settings), settings.group, settings.input.topic, lambda p: shape_of(settings, p))
    report = as_report(found, rows_per_s)
    if as_json:
        print_json(report)
        return
    header = ["partition", "rows", "nnz", "bad", "tombstones", "next_offset", "squared_frobenius", "delta"]
    rows = [[p, *(part[name] for name in header[1:])] for p, part in report["partitions"].items()]
    total = report["total"]
    rows.append(["total", *(total.get(name, "") for name in header[1:])])
    print_table(header, rows)
    print_text(f"\nrows_per_s of this run: {short(round(total['rows_per_s']))}")
