"""From settings to the parts that they describe. Nothing here decides; it only puts together."""

from __future__ import annotations

import socket
import time
import uuid
from collections.abc import Callable, Iterator
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
from sfd_stream.kafka.topics import ensure_topic
from sfd_stream.kafka.transactional_producer import TransactionalSink
from sfd_stream.observe.logs import Log, get_logger
from sfd_stream.observe.registry import Meter
from sfd_stream.observe.routes import routes_of
from sfd_stream.observe.server import Port, listening
from sfd_stream.observe.spectra import Compute, Looker
from sfd_stream.observe.worker_status import Identity, Watch
from sfd_stream.processes.status_files import written
from sfd_stream.reader.newest import Epochs
from sfd_stream.sketch.builder import Parameters
from sfd_stream.sketch.verify import topic_share
from sfd_stream.state.partition import ENTRY_BYTES, Shape
from sfd_stream.storage.contract import Store
from sfd_stream.storage.open import open_store
from sfd_stream.tools.topics import SNAPSHOT_PARTITIONS, compacted_topic_config
from sfd_stream.wire.columns import Columns, FixedColumns, GrowingColumns, HashedColumns
from sfd_stream.worker.delivery import Delivery
from sfd_stream.worker.intake import Intake
from sfd_stream.worker.partitions import Partitions
from sfd_stream.worker.questions import OutputEpochs, Questions
from sfd_stream.worker.runtime import Plan, Runtime
from sfd_stream.worker.snapshots import SnapshotEncoder
from sfd_stream.worker.transactional import Transactional
from sfd_stream.worker.worker import Worker

MESSAGE_MAX_DEFAULT, MESSAGE_OVERHEAD_BYTES = 1_000_000, 65_536
"""What brokers and clients take without being asked; room for key, headers and frame."""

GROWING_START = 1024
"""Columns that a growing matrix begins with where sketch.d does not say."""

READ_S = 30.0
"""The output topic can't be read if nothing of it comes for this long."""

DELIVER_S = 20.0
"""Maximum time for one transaction. After it the outcome is unknown and is asked for."""


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
    questions, partitions = Questions(plan, runtime, source, output), Partitions(plan)
    worker = Worker(
        plan,
        runtime,
        source,
        sink,
        letters_for(settings, sink),
        Intake(settings.input, gauge_of(settings), runtime.wall_clock, watch, decoder_of(settings, log)),
        questions,
        partitions,
        _delivery_of(settings, runtime, source, questions, partitions, sink, watch),
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
    partitions: Partitions,
    sink: Sink | None,
    watch: Watch,
) -> Delivery:
    parts: dict[str, Any] = {"runtime": runtime, "source": source, "partitions": partitions}
    parts |= {"log": get_logger(), "watch": watch}
    if settings.snapshot.topic is None:
        return Delivery(**parts)
    encoder = SnapshotEncoder(settings.snapshot, settings.snapshot.topic, settings.checkpoint.url)
    if settings.snapshot.delivery == "idempotent":
        assert sink is not None
        return Delivery(**parts, sink=sink, encoder=encoder)
    transactions = transactions_of(settings, settings.group, runtime)
    return Transactional(**parts, questions=questions, transactions=transactions, encoder=encoder)


def transactions_of(settings: Settings, group: str, runtime: Runtime, *, batched: bool = False) -> TransactionalSink:
    """A transactional id is new for each process: the group decides who may deliver, not the id."""
    return TransactionalSink(
        _producer_settings(settings),
        f"{group}-{uuid.uuid4().hex}",
        give_up_s=DELIVER_S,
        batched=batched,
        reach=runtime.reach or (lambda _: None),
        hooks=hooks_of(settings),
    )


def _producer_settings(settings: Settings) -> dict[str, Any]:
    """So that a producer takes the largest snapshot that goes into a message."""
    largest = settings.snapshot.inline_max_bytes + MESSAGE_OVERHEAD_BYTES
    properties = dict(settings.kafka)
    if settings.snapshot.topic is not None and largest > MESSAGE_MAX_DEFAULT:
        properties.setdefault("message.max.bytes", largest)
    return properties


def make_output_topic(settings: Settings, timeout_s: float) -> None:
    """The topic of snapshots, if there is to be one and it is not there: compacted, with room for the largest."""
    given = settings.snapshot
    if given.topic is None:
        return
    ensure_topic(
        admin_of(settings),
        given.topic,
        None,
        sleep=time.sleep,
        new_partitions=SNAPSHOT_PARTITIONS,
        config=compacted_topic_config(given.inline_max_bytes),
        timeout_s=timeout_s,
    )


def output_epochs(settings: Settings) -> dict[int, int]:
    """By partition: the highest epoch that the output topic has. The whole topic is read for it."""
    given = settings.snapshot
    if given.topic is None:
        return {}
    tail = Tail(for_consumer(settings.kafka), given.topic, hooks=hooks_of(settings))
    try:
        return epochs_on(tail, settings.group, settings.input.topic, get_logger())
    finally:
        tail.close()


def epochs_on(tail: Tail, group: str, topic: str, log: Log) -> dict[int, int]:
    """By partition of `topic`, read from `tail` to its end. An epoch that no owner can go above is logged."""
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


def gauge_of(settings: Settings) -> BadMessageGauge:
    given = settings.dead_letters
    return BadMessageGauge(max_share=given.max_share, window=given.window, max_consecutive=given.max_consecutive)


def letters_for(settings: Settings, sink: Sink | None) -> Callable[[str | None], DeadLetters] | None:
    topic, source_topic = settings.dead_letters.topic, settings.input.topic
    if topic is None or sink is None:
        return None
    give_up_s = settings.checkpoint.give_up_s
    return lambda topic_id: DeadLetters(
        sink, topic, source_topic=source_topic, source_topic_id=topic_id, give_up_s=give_up_s
    )


DRIFT_EVERY_S = 60.0
"""Where no snapshots are published: from one look to another so much later."""


def watch_of(settings: Settings, worker_name: str, compute: Compute) -> Watch:
    sketch = settings.sketch
    identity = Identity(
        worker=worker_name,
        group=settings.group,
        topic=settings.input.topic,
        ell=sketch.ell,
        method=sketch.method,
        memory_max_bytes=settings.worker.memory_max_bytes,
        shows=settings.snapshot.topic is not None,
        checkpoint_every_s=settings.checkpoint.every_s,
        excerpts=settings.http.excerpts,
    )
    drift_every_s = DRIFT_EVERY_S if settings.snapshot.topic is None else None  # else snapshots bring it
    looker = Looker(compute, time.monotonic, time.time, drift_every_s=drift_every_s)
    return Watch(identity, Meter(), looker, time.monotonic, time.time)


def listener_beside(http: HttpSettings, *, own_port: bool) -> socket.socket:
    """For a service that may run on the machine of a worker, with the same settings: the usual port where it is free.

    `own_port`: http.port was given, and no other will do.
    """
    try:
        return listening(http.host, http.port)
    except SettingsError:
        if own_port:
            raise
        return listening(http.host, 0)


@contextmanager
def watched(settings: Settings, worker: Worker, listener: socket.socket) -> Iterator[None]:
    """Serves the status of the worker on the port until it ends."""
    port = Port(listener, routes_of(worker.watch, settings.http.stuck_after_s))
    port.start()
    worker.log.info("status page available", url=port.address)
    try:
        yield
    finally:
        port.close()


def observed(settings: Settings, status_folder: Path | None) -> Callable[[Worker], AbstractContextManager[None]]:
    """Serves the status of a worker on the port, which is opened at once, or writes it to files for a supervisor."""
    if status_folder is not None:
        return lambda worker: written(status_folder, worker.watch, time.monotonic, worker.log)
    listener = listening(settings.http.host, settings.http.port)
    return lambda worker: watched(settings, worker, listener)
