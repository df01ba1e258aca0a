"""Builds the parts that the settings describe, and connects them."""

from __future__ import annotations

import socket
import time
import uuid
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

from sfd_stream.cli.decoder import decoder_of
from sfd_stream.cli.logins import hooks_for
from sfd_stream.config.model import HttpSettings, Settings
from sfd_stream.errors import SettingsError
from sfd_stream.kafka.admin import Admin
from sfd_stream.kafka.dead_letters import BadMessageGauge, DeadLetters
from sfd_stream.kafka.errors import Hooks
from sfd_stream.kafka.producer import Sink
from sfd_stream.kafka.properties import for_consumer
from sfd_stream.kafka.source import Source
from sfd_stream.kafka.topic_reader import Tail
from sfd_stream.kafka.transactional_producer import SharedTransactions, TransactionalSink
from sfd_stream.loop.intake import Intake
from sfd_stream.loop.questions import OutputEpochs, Questions
from sfd_stream.loop.runtime import Plan, Runtime
from sfd_stream.observe.logs import Log, get_logger
from sfd_stream.observe.registry import MetricsRegistry
from sfd_stream.observe.routes import routes_of
from sfd_stream.observe.server import Port, Route, listening
from sfd_stream.observe.spectra import Compute, SpectrumSampler
from sfd_stream.observe.worker_status import IntakeWatch, Watch
from sfd_stream.processes.status_files import written
from sfd_stream.reader.newest import Epochs
from sfd_stream.sketch.builder import Parameters
from sfd_stream.sketch.verify import topic_share
from sfd_stream.state.partition import ENTRY_BYTES, Shape
from sfd_stream.state.policy import SnapshotPolicy
from sfd_stream.storage.contract import Store
from sfd_stream.storage.open import open_store
from sfd_stream.tools.topics import compacted_topic, create_missing
from sfd_stream.wire.columns import Columns, FixedColumns, GrowingColumns, HashedColumns
from sfd_stream.wire.snapshots import SnapshotEncoder
from sfd_stream.worker.delivery import Delivery
from sfd_stream.worker.partitions import Partitions
from sfd_stream.worker.transactional import Transactional
from sfd_stream.worker.worker import Worker

MESSAGE_MAX_DEFAULT, MESSAGE_OVERHEAD_BYTES = 1_000_000, 65_536
"""The default maximum size of a message at brokers and clients; the room for key, headers and frame."""

GROWING_START = 1024
"""Initial number of growing columns if sketch.d is not set."""

READ_S = 30.0
"""Reading the output topic fails if no record arrives for this long."""

DELIVER_S = 20.0
"""Maximum time for one transaction. After it the outcome is unknown, and the broker is asked for it."""


def hooks_of(settings: Settings) -> Hooks:
    return hooks_for(settings.kafka_oauth_callback, settings.kafka)


def admin_of(settings: Settings) -> Admin:
    return Admin(settings.kafka, hooks_of(settings))


def columns_of(settings: Settings) -> Columns:
    given, d = settings.input, settings.sketch.d
    match given.columns:
        case "growing":
            return GrowingColumns(min(d or GROWING_START, given.d_max), given.d_max)
        case "hashed":
            assert d is not None, "checked with the settings"
            mapping = None if given.format == "msgpack" else replace(given.features, path=given.path)
            return HashedColumns(d, given.hash_seed, given.names_max, given.keep_names, mapping=mapping)
        case _:
            assert d is not None, "checked with the settings"
            return FixedColumns(d)


def shape_of(settings: Settings, partition: int) -> Shape:
    sketch, columns = settings.sketch, columns_of(settings)
    return Shape(
        columns,
        Parameters(
            d=columns.d,
            ell=sketch.ell,
            method=sketch.method,
            failure_probability=topic_share(partition, sketch.failure_probability),
            seed=(sketch.seed, partition),
            buffer_factor=sketch.buffer_factor,
            buffer_entries_max=max(sketch.buffer_max_bytes // ENTRY_BYTES, 1),
            half_life_rows=sketch.half_life_rows,
            column_squares=sketch.column_squares,
        ),
        topic_failure_probability=sketch.failure_probability,
    )


def store_of(settings: Settings) -> Store:
    given = settings.checkpoint
    return open_store(given.url, {k: str(v) for k, v in given.options.items()}, file_access=given.file_access)


def plan_of(settings: Settings, *, until_end: bool) -> Plan:
    return Plan(
        group=settings.group,
        input=settings.input,
        checkpoint=settings.checkpoint,
        snapshot=settings.snapshot,
        worker=settings.worker,
        shape=lambda partition: shape_of(settings, partition),
        until_end=until_end,
    )


def worker_of(
    settings: Settings, *, until_end: bool, worker_name: str = "1", reach: Callable[[str], None] | None = None
) -> tuple[Worker, Source]:
    """A worker and its source."""
    given, log = settings.dead_letters, get_logger()
    plan, runtime = plan_of(settings, until_end=until_end), Runtime(store_of(settings), reach)
    watch = watch_of(settings, worker_name, runtime.compute)
    source = Source(
        settings.kafka, settings.input.topic, hooks=replace(hooks_of(settings), on_statistics=watch.statistics)
    )
    plain = settings.snapshot.topic is not None and settings.snapshot.delivery == "idempotent"
    sink = Sink(_producer_settings(settings), hooks=hooks_of(settings)) if given.topic is not None or plain else None
    output = OutputEpochs(lambda: output_epochs(settings), runtime, log, plan.checkpoint.give_up_s)
    questions = Questions(plan, runtime, source, output)
    worker = Worker(
        plan,
        runtime,
        source,
        sink,
        intake_of(settings, runtime, watch, sink),
        questions,
        Partitions(plan),
        _delivery_of(settings, runtime, source, questions, sink, watch),
        watch,
        log,
        prepare=lambda timeout_s: make_output_topic(settings, timeout_s),
    )
    return worker, source


def _delivery_of(
    settings: Settings,
    runtime: Runtime,
    source: Source,
    questions: Questions,
    sink: Sink | None,
    watch: Watch,
) -> Delivery:
    given = settings.snapshot
    policy = SnapshotPolicy(given.every_rows, given.every_s, given.republish_s)
    parts: dict[str, Any] = {
        "runtime": runtime,
        "source": source,
        "log": get_logger(),
        "watch": watch,
        "policy": policy,
    }
    if given.topic is None:
        return Delivery(**parts)
    encoder = SnapshotEncoder(
        given.topic,
        settings.checkpoint.url,
        given.inline_max_bytes,
        dtype=given.dtype,
        column_sums=given.column_sums,
        column_names=given.column_names,
    )
    if given.delivery == "idempotent":
        assert sink is not None
        return Delivery(**parts, sink=sink, encoder=encoder)
    one_at_a_time = transactions_of(settings, settings.group, runtime)
    transactions = SharedTransactions(one_at_a_time, runtime.transactions, runtime.wake)
    return Transactional(**parts, questions=questions, transactions=transactions, encoder=encoder)


def transactions_of(settings: Settings, group: str, runtime: Runtime, *, batched: bool = False) -> TransactionalSink:
    """The transactional id is new for each process: the group decides which worker may deliver, not the id."""
    return TransactionalSink(
        _producer_settings(settings),
        f"{group}-{uuid.uuid4().hex}",
        give_up_s=DELIVER_S,
        batched=batched,
        reach=runtime.reach or (lambda _: None),
        hooks=hooks_of(settings),
    )


def _producer_settings(settings: Settings) -> dict[str, Any]:
    """The producer's settings, with a message size that the largest inline snapshot fits."""
    largest = settings.snapshot.inline_max_bytes + MESSAGE_OVERHEAD_BYTES
    properties = dict(settings.kafka)
    if settings.snapshot.topic is not None and largest > MESSAGE_MAX_DEFAULT:
        properties.setdefault("message.max.bytes", largest)
    return properties


def make_output_topic(settings: Settings, timeout_s: float) -> None:
    """Creates the snapshot topic if it is set and does not exist: compacted, with room for the largest snapshot."""
    given = settings.snapshot
    if given.topic is not None:
        create_missing(admin_of(settings), [compacted_topic(given.topic, given.inline_max_bytes)], timeout_s)


def output_epochs(settings: Settings) -> dict[int, int]:
    """By partition: the highest epoch on the output topic. Reads the whole topic."""
    given = settings.snapshot
    if given.topic is None:
        return {}
    tail = Tail(for_consumer(settings.kafka), given.topic, hooks=hooks_of(settings))
    try:
        return epochs_on(tail, settings.group, settings.input.topic, get_logger())
    finally:
        tail.close()


def epochs_on(tail: Tail, group: str, topic: str, log: Log) -> dict[int, int]:
    """By partition of `topic`: the highest epoch that `tail` reads. Logs an epoch that no owner can exceed."""
    epochs = Epochs(group, topic)
    for records in tail.catch_up(READ_S):
        for record in records:
            epochs.note(record.key, record.value, record.headers)
    for partition, epoch in epochs.forged.items():
        log.warning(
            "forged snapshot on the output topic hides the partition from readers: publish a null value under its key",
            output_topic=tail.topic,
            key=f"{group}/{topic}/{partition}",
            epoch=epoch,
        )
    return epochs.found


def intake_of(settings: Settings, runtime: Runtime, watch: IntakeWatch, sink: Sink | None) -> Intake:
    given, letters = settings.dead_letters, None
    gauge = BadMessageGauge(max_share=given.max_share, window=given.window, max_consecutive=given.max_consecutive)
    if given.topic is not None and sink is not None:
        letters = DeadLetters(
            sink,
            given.topic,
            source_topic=settings.input.topic,
            give_up_s=settings.checkpoint.give_up_s,
            wall_clock=runtime.wall_clock,
        )
    return Intake(settings.input, gauge, watch, decoder_of(settings, get_logger()), letters)


DRIFT_EVERY_S = 60.0
"""Without snapshots, drift is measured between samples at least this far apart."""


def watch_of(settings: Settings, worker_name: str, compute: Compute) -> Watch:
    drift_every_s = DRIFT_EVERY_S if settings.snapshot.topic is None else None  # else between snapshots
    sampler = SpectrumSampler(compute, time.monotonic, time.time, drift_every_s=drift_every_s)
    return Watch(worker_name, settings, MetricsRegistry(), sampler, time.monotonic, time.time)


def listener_next_to_worker(http: HttpSettings, *, own_port: bool) -> socket.socket:
    """The socket of a service that may run next to a worker with the same settings: http.port, or a free port.

    `own_port`: http.port was given, so no other port is taken.
    """
    try:
        return listening(http.host, http.port)
    except SettingsError:
        if own_port:
            raise
        return listening(http.host, 0)


@contextmanager
def served(
    listener: socket.socket, routes: Mapping[str, Route], event: str = "status page available", path: str = ""
) -> Iterator[None]:
    """Serves the routes on the port until the block ends. Logs the address of `path`."""
    port = Port(listener, routes)
    port.start()
    try:
        get_logger().info(event, url=f"{port.address}{path}")
        yield
    finally:
        port.close()


def observed(settings: Settings, status_folder: Path | None) -> Callable[[Worker], AbstractContextManager[None]]:
    """Serves the status of a worker on the port, which is opened now, or writes it to files for a supervisor."""
    if status_folder is not None:
        return lambda worker: written(status_folder, worker.watch, time.monotonic, worker.log)
    listener = listening(settings.http.host, settings.http.port)
    return lambda worker: served(listener, routes_of(worker.watch, settings.http.stuck_after_s))
