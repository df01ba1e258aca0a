"""`sfd-stream run`: the worker."""

# Annotations are evaluated: typer reads them.
import os
import signal
import time
from typing import TYPE_CHECKING, Annotated, Any

import typer

from sfd_stream.cli.options import ConfigOption, JsonOption, SetOption, settings_from

if TYPE_CHECKING:
    from sfd_stream.config.model import Settings
    from sfd_stream.service.worker import Worker


def run(
    config: ConfigOption = None,
    overrides: SetOption = None,
    until_end: Annotated[
        bool, typer.Option("--until-end", help="Stop at the end offsets seen at the start; print a summary.")
    ] = False,
    as_json: JsonOption = False,
) -> None:
    """Join the consumer group, sketch the topic's rows, checkpoint, until told to stop.

    Example: sfd-stream run --config config/local.yaml --until-end

    SIGTERM or Ctrl-C: a last checkpoint, then exit 0; a second one ends it at once.
    """
    from sfd_stream.service.logs import configure

    settings = settings_from(config, overrides).settings
    configure(level=settings.log.level, form=settings.log.format, secrets=settings.secret_values())
    settings = within_quota(settings)
    began = time.monotonic()
    worker = work(settings, until_end=until_end)
    if until_end:
        _print_summary(settings, worker.progress.rows / max(time.monotonic() - began, 1e-9), as_json=as_json)


def within_quota(settings: "Settings") -> "Settings":
    """The settings fitted to this container; what was asked for and is more than there is, is said."""
    from sfd_stream.service import quota
    from sfd_stream.service.logs import get_logger

    own = quota.own_quota()
    settings = quota.fitted(settings, own)
    for words in quota.misfits(settings, own):
        get_logger().warning(words)
    return settings


def work(settings: "Settings", *, until_end: bool, **test_hooks: Any) -> "Worker":
    """Run one worker to its end, in this process, on its share of the machine."""
    from threadpoolctl import threadpool_limits

    from sfd_stream.cli.wiring import worker_of

    with threadpool_limits(settings.worker.blas_threads):
        worker, source = worker_of(settings, until_end=until_end, **test_hooks)
        _stop_on_signals(worker)
        worker.run(source)
    return worker


def _stop_on_signals(worker: "Worker") -> None:
    def first(number: int, _: Any) -> None:
        for other in (signal.SIGTERM, signal.SIGINT):
            signal.signal(other, lambda again, _: os._exit(128 + again))
        worker.stop()
        worker.log.info("stopping: a last checkpoint, then out", signal=signal.Signals(number).name)

    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, first)


def _print_summary(settings: "Settings", rows_per_s: float, *, as_json: bool) -> None:
    from sfd_stream.cli.output import print_json, print_table
    from sfd_stream.cli.wiring import shape_of, store_of
    from sfd_stream.service.summary import as_report, summarise

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
    print_table(["rows_per_s"], [[round(total["rows_per_s"])]])
