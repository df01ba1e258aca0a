"""`sfd-stream merge`: merges many sketches into one and publishes it."""

# Annotations are evaluated: typer reads them.
import signal
import time
from typing import TYPE_CHECKING, Annotated

import typer

from sfd_stream.cli.options import ConfigOption, JsonOption, SetOption
from sfd_stream.cli.snapshot_options import BrokerOption, client_hooks, reader_of, some_settings
from sfd_stream.errors import SettingsError

if TYPE_CHECKING:
    from sfd_stream.config import Some
    from sfd_stream.config.model import MergeSettings
    from sfd_stream.merge import Merger
    from sfd_stream.observe.merge_status import MergeWatch

GIVE_UP_S = 600.0
"""How long a broker may be unavailable while the service starts: the default of checkpoint.give_up_s."""


def merge(
    config: ConfigOption = None,
    overrides: SetOption = None,
    broker: BrokerOption = None,
    once: Annotated[
        bool, typer.Option("--once", help="Merge the present snapshots, publish the result, and exit.")
    ] = False,
    as_json: JsonOption = False,
) -> None:
    """Merge the sketches of one or more snapshot topics continuously and publish the result to merge.topic.

    The result is a snapshot again, so that merges can be merged (region, then world). Run one replica.
    It serves /healthz, /readyz and /metrics on http.port, as a worker does.

    Example: [bold]sfd-stream merge --config settings.yaml --set merge.topics=eu,us --set merge.topic=world[/bold]
    """
    from sfd_stream.config.secrets import secret_values
    from sfd_stream.observe import logs
    from sfd_stream.observe.metrics import MERGE_WORKER

    if as_json and not once:
        raise SettingsError("--json needs --once: without it the merge logs what it publishes")
    some = some_settings(config, overrides, broker, ("merge", "http", "log"))
    log, secrets = some.sections["log"], secret_values("kafka", dict(some.kafka))
    about = {"worker": MERGE_WORKER, "group": some.kafka.get("group.id"), "topic": some.sections["merge"].topic}
    with logs.configure(level=log.level, form=log.format, secrets=secrets, json_labels=about):
        if once:
            merger, watch = merger_of(some, give_up_s=0.0)
            merger.start()
            merger.publish_once()
            if as_json:
                _print_published(merger, watch)
        else:
            _serve(some)


def _print_published(merger: "Merger", watch: "MergeWatch") -> None:
    from dataclasses import asdict

    from sfd_stream.cli.output import print_json

    assert merger.last is not None
    assert watch.newest is not None
    last = merger.last
    print_json({"topic": merger.plan.topic, "epoch": last.epoch, "number": last.number, **asdict(watch.newest)})


def _serve(some: "Some") -> None:
    """Runs the merger until it is stopped, and serves health and metrics."""
    from sfd_stream.cli.build import listener_next_to_worker, served
    from sfd_stream.observe.routes import service_routes

    listener = listener_next_to_worker(some.sections["http"], own_port="http.port" in some.given)
    merger, watch = merger_of(some)
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: merger.stop())
    routes = service_routes(watch, some.sections["http"].stuck_after_s)
    with served(listener, routes, "metrics available", "metrics"):
        merger.run()


def merger_of(some: "Some", give_up_s: float = GIVE_UP_S) -> tuple["Merger", "MergeWatch"]:
    from sfd_stream.kafka.admin import Admin
    from sfd_stream.kafka.producer import Sink
    from sfd_stream.merge import MergePlan, Merger
    from sfd_stream.observe.logs import get_logger
    from sfd_stream.observe.merge_status import MergeWatch
    from sfd_stream.threads import Computing, DaemonExecutor
    from sfd_stream.tools.topics import create_missing, merge_topic

    settings: MergeSettings = some.sections["merge"]
    topics, topic = _topics(some, settings)
    group = some.kafka.get("group.id")
    if not group:
        raise SettingsError("kafka.group.id is required: it is part of the merged snapshot's key")
    hooks = client_hooks(some)
    sink = Sink(some.kafka, hooks=hooks)
    admin = Admin(some.kafka, hooks)
    computing = Computing()
    watch = MergeWatch(str(group), topic, time.monotonic, time.time)
    merger = Merger(
        MergePlan(str(group), topic, settings.every_s, settings.republish_s, settings.ell, give_up_s),
        [reader_of(some, name, settings.group, requesting=computing.requesting) for name in topics],
        reader_of(some, topic, str(group)),
        sink,
        DaemonExecutor(1, "merge"),
        watch,
        clock=time.monotonic,
        wall_clock=time.time,
        log=get_logger(),
        prepare=lambda: create_missing(admin, [merge_topic(topic, some.kafka)]),
        computing=computing,
    )
    return merger, watch


def _topics(some: "Some", settings: "MergeSettings") -> tuple[tuple[str, ...], str]:
    given = some.given.get("snapshot.topic")
    topics = settings.topics or ((str(given),) if given else ())
    if not topics:
        raise SettingsError("merge.topics is required: the snapshot topics to merge, separated by commas")
    if settings.topic is None:
        raise SettingsError("merge.topic is required: the topic to publish the merged sketch to")
    if settings.topic in topics:
        raise SettingsError(
            f"merge.topic must be another topic than those it merges, and {settings.topic} is one of them"
        )
    return topics, settings.topic
