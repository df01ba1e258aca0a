"""`sfd-stream score`: scores the rows of the input topic and writes the scores to another topic."""

# Annotations are evaluated: typer reads them.
import time
from typing import TYPE_CHECKING, Annotated, Any

import typer

from sfd_stream.cli.options import ConfigOption, JsonOption, SetOption, settings_from
from sfd_stream.errors import SettingsError

if TYPE_CHECKING:
    from collections.abc import Callable

    from sfd_stream.config.model import Settings
    from sfd_stream.score.consumer import ScoreConsumer
    from sfd_stream.score.watch import ScoreWatch


STOPPING = "stopping after the scores under way, a second signal exits at once"


def score(
    config: ConfigOption = None,
    overrides: SetOption = None,
    until_end: Annotated[
        bool,
        typer.Option(
            "--until-end",
            help="Stop when every row up to the end offsets at the start is scored; print a summary.",
        ),
    ] = False,
    as_json: JsonOption = False,
) -> None:
    """Score each row of the input topic against the live sketch, and write the scores to score.topic.

    It reads the input topic in a consumer group of its own and takes the newest snapshots of snapshot.topic as its
    basis. Before the first snapshot it waits. With score.when it writes only extreme rows, with their causes.
    It serves a page with the last extreme rows, /healthz, /readyz, /metrics and /status.json on http.port.

    Example: [bold]sfd-stream score --config settings.yaml --set score.topic=scores[/bold]

    On SIGTERM or Ctrl-C it delivers what is scored and exits with 0; a second signal ends it at once.
    """
    from sfd_stream.observe import logs
    from sfd_stream.observe.metrics import SCORE_WORKER

    if as_json and not until_end:
        raise SettingsError("--json needs --until-end: without it the scorer logs what it does")
    effective = settings_from(config, overrides)
    settings = effective.settings
    if settings.score.topic is None:
        raise SettingsError("score.topic is required: the topic to write scores to")
    about = {"worker": SCORE_WORKER, "group": settings.score_group, "topic": settings.input.topic}
    level, form, secrets = settings.log.level, settings.log.format, settings.secret_values()
    with logs.configure(level=level, form=form, secrets=secrets, json_labels=about):
        watch = serve(settings, until_end=until_end, own_port="http.port" in effective.origins)
    if until_end:
        _print_summary(watch, as_json=as_json)


def _print_summary(watch: "ScoreWatch", *, as_json: bool) -> None:
    from sfd_stream.cli.output import print_json, print_text

    reported = {kind: watch.reported[kind] for kind in sorted(watch.reported)}
    if as_json:
        print_json({"rows": watch.rows, "written": watch.written, "reported": reported})
        return
    by_kind = "".join(f", by {kind}: {rows:,}" for kind, rows in reported.items())
    print_text(f"rows scored: {watch.rows:,}, scores written: {watch.written:,}{by_kind}")


def serve(
    settings: "Settings", *, until_end: bool, own_port: bool = False, reach: "Callable[[str], None] | None" = None
) -> "ScoreWatch":
    """Runs the scorer to its end, in this process, and serves health and metrics.

    `own_port`: http.port was given. If it was not, and a worker on this machine has the default port, a free port is
    taken.
    """
    from threadpoolctl import threadpool_limits

    from sfd_stream.cli.build import listener_next_to_worker, served
    from sfd_stream.cli.commands.run import stop_on_signals
    from sfd_stream.memory import collected_seldom, share_one_arena
    from sfd_stream.observe.routes import routes_of

    share_one_arena()
    listener = listener_next_to_worker(settings.http, own_port=own_port)
    with threadpool_limits(settings.worker.blas_threads):
        consumer = consumer_of(settings, until_end=until_end, reach=reach)
        stop_on_signals(consumer.stop, consumer.log, event=STOPPING)
        routes = routes_of(consumer.watch, settings.http.stuck_after_s, "score.html")
        with served(listener, routes), collected_seldom():
            consumer.run()
    return consumer.watch


def consumer_of(
    settings: "Settings", *, until_end: bool = False, reach: "Callable[[str], None] | None" = None
) -> "ScoreConsumer":
    from sfd_stream.cli.build import columns_of, hooks_of, intake_of, plan_of, store_of
    from sfd_stream.cli.commands.basis import pinned_bases_of
    from sfd_stream.kafka.producer import Sink
    from sfd_stream.kafka.source import Source
    from sfd_stream.loop.questions import Questions
    from sfd_stream.loop.runtime import Runtime
    from sfd_stream.observe.logs import get_logger
    from sfd_stream.score.bases import Bases, NewestBasis
    from sfd_stream.score.consumer import ScoreConsumer
    from sfd_stream.score.pinned import PinnedBasis
    from sfd_stream.score.watch import ScoreWatch

    given, log, group = settings.score, get_logger(), settings.score_group
    properties, hooks = {**settings.kafka, "group.id": group}, hooks_of(settings)
    runtime, columns = Runtime(store_of(settings), reach), columns_of(settings)
    watch = ScoreWatch(group, settings.input.topic, time.monotonic, time.time, excerpts=settings.http.excerpts)
    source = Source(properties, settings.input.topic, hooks=hooks, has_checkpoints=False)
    plain = settings.dead_letters.topic is not None or given.delivery == "at-least-once"
    sink = Sink(settings.kafka, hooks=hooks, batched=True) if plain else None
    questions = Questions(plan_of(settings, until_end=until_end), runtime, source, None)
    basis = columns, given.k, given.centred, runtime.computing
    reading: NewestBasis | PinnedBasis
    if given.basis == "pinned":
        reading = PinnedBasis(pinned_bases_of(settings), given.pinned, *basis)
    else:
        reader = reader_of(settings, runtime.computing.requesting)
        reading = NewestBasis(reader, settings.input.topic, *basis, time.time)
    reference = None
    if settings.drift.reference is not None:
        reference = PinnedBasis(pinned_bases_of(settings), settings.drift.reference, *basis).read
    return ScoreConsumer(
        settings,
        runtime,
        source,
        sink,
        intake_of(settings, runtime, watch, sink),
        questions,
        Bases(reading.read, runtime, log, reference),
        _delivery_of(settings, runtime, source, questions, sink, watch.delivery_failed),
        lambda timeout_s: read_states(settings, timeout_s),
        columns,
        watch,
        log,
        prepare=lambda timeout_s: _make_topics(settings, questions.partitions, timeout_s),
        until_end=until_end,
    )


def _delivery_of(
    settings: "Settings", runtime: Any, source: Any, questions: Any, sink: Any, failed: "Callable[[], None]"
) -> Any:
    from sfd_stream.cli.build import transactions_of
    from sfd_stream.observe.logs import get_logger
    from sfd_stream.score.delivery import AtLeastOnce, InTransactions

    group = settings.score_group
    parts: dict[str, Any] = {
        "runtime": runtime,
        "source": source,
        "log": get_logger(),
        "group": group,
        "topic": settings.input.topic,
        "state_topic": settings.score_state_topic,
        "sink": sink,
        "failed": failed,
    }
    if settings.score.delivery == "at-least-once":
        return AtLeastOnce(**parts)
    transactions = transactions_of(settings, group, runtime, batched=True)
    return InTransactions(**parts, questions=questions, transactions=transactions)


def reader_of(settings: "Settings", requesting: Any) -> Any:
    """A reader of the workers' snapshots."""
    from sfd_stream.cli.build import hooks_of
    from sfd_stream.reader.reader import SnapshotReader

    assert settings.snapshot.topic is not None, "checked with the settings"
    properties: dict[str, Any] = {"log_level": 2, **{k: v for k, v in settings.kafka.items() if k != "group.id"}}
    return SnapshotReader(
        str(properties.pop("bootstrap.servers")),
        settings.snapshot.topic,
        group=settings.group,
        store_url=settings.checkpoint.url,
        store_options={name: str(value) for name, value in settings.checkpoint.options.items()},
        trusted_stores=settings.snapshot.trusted_stores or (),
        max_snapshot_bytes=settings.snapshot.read_max_bytes,
        hooks=hooks_of(settings),
        requesting=requesting,
        **properties,
    )


def read_states(settings: "Settings", timeout_s: float) -> dict[int, Any]:
    """By partition: the newest state on the state topic. Reads the whole topic."""
    from sfd_stream.cli.build import hooks_of
    from sfd_stream.errors import FormatError
    from sfd_stream.kafka.properties import for_consumer
    from sfd_stream.kafka.topic_reader import Tail
    from sfd_stream.observe.logs import get_logger
    from sfd_stream.wire.score_states import decode, partition_of

    tail = Tail(for_consumer(settings.kafka), settings.score_state_topic, hooks=hooks_of(settings))
    values: dict[int, bytes | None] = {}
    try:
        for records in tail.catch_up(timeout_s):
            for record in records:
                partition = partition_of(record.key, settings.score_group, settings.input.topic)
                if partition is not None:
                    values[partition] = record.value
    finally:
        tail.close()
    found: dict[int, Any] = {}
    for partition, value in values.items():
        try:
            found |= {} if value is None else {partition: decode(value)}
        except FormatError as error:
            get_logger().warning("score state can't be read", partition=partition, reason=str(error))
    return found


def _make_topics(settings: "Settings", partitions: int, timeout_s: float) -> None:
    """Creates the missing topics of snapshots, scores and states. Scores have as many partitions as the input."""
    from sfd_stream.cli.build import admin_of, make_output_topic
    from sfd_stream.tools.topics import create_missing, score_topics

    make_output_topic(settings, timeout_s)
    create_missing(admin_of(settings), score_topics(settings, partitions), timeout_s)
