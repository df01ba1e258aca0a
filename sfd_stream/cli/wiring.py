"""From settings to the parts that they describe. Nothing here decides; it only puts together."""

from __future__ import annotations

import time
import uuid
from collections.abc import Callable
from dataclasses import replace
from typing import Any

from sfd_stream.cli.formats import decoder_of
from sfd_stream.cli.logins import hooks_for
from sfd_stream.cli.watching import watch_of
from sfd_stream.config.model import Settings
from sfd_stream.kafka.dead_letters import BadMessageGauge, DeadLetters
from sfd_stream.kafka.faults import Hooks
from sfd_stream.kafka.outage import Admin
from sfd_stream.kafka.properties import admin_properties, for_consumer
from sfd_stream.kafka.sink import Sink
from sfd_stream.kafka.source import Source
from sfd_stream.kafka.tail import Tail
from sfd_stream.kafka.transactions import TransactionalSink
from sfd_stream.service.beside import Beside
from sfd_stream.service.claims import OutputEpochs, epochs_on
from sfd_stream.service.courier import Courier
from sfd_stream.service.keeper import Surroundings
from sfd_stream.service.logs import get_logger
from sfd_stream.service.publishing import Publishing
from sfd_stream.service.tenure import Plan
from sfd_stream.service.topic_plan import SNAPSHOT_PARTITIONS, compacted_topic_config
from sfd_stream.service.topics import ensure_topic
from sfd_stream.service.worker import Worker
from sfd_stream.sketch.builder import Parameters
from sfd_stream.sketch.verify import topic_share
from sfd_stream.state.partition import ENTRY_BYTES, Shape
from sfd_stream.state.policy import CheckpointPolicy
from sfd_stream.storage.contract import Store
from sfd_stream.storage.opening import open_store
from sfd_stream.wire.columns import Columns, FixedColumns, GrowingColumns, HashedColumns
from sfd_stream.wire.rows import RowLimits

MESSAGE_MAX_DEFAULT, MESSAGE_OVERHEAD_BYTES = 1_000_000, 65_536
"""What brokers and clients take without being asked; room for key, headers and frame."""

GROWING_START = 1024
"""Columns that a growing matrix begins with where sketch.d does not say."""

DELIVER_S = 20.0
"""So long a transaction is tried before its outcome is left open, to be asked for."""

READERS = 8
"""Blobs of a state that are read side by side."""


def _nothing(_: str) -> None:
    """The points of the protocol are for tests."""


def hooks_of(settings: Settings) -> Hooks:
    return hooks_for(settings.kafka_oauth_callback, settings.kafka)


def admin_of(settings: Settings) -> Admin:
    return Admin(admin_properties(settings.kafka), hooks_of(settings))


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


def surroundings_of(settings: Settings, reach: Callable[[str], None] = _nothing) -> Surroundings:
    return Surroundings(
        store=store_of(settings),
        readers=Beside(READERS, "restore"),
        clock=time.monotonic,
        wall_clock=time.time,
        pause=time.sleep,
        give_up_s=settings.checkpoint.give_up_s,
        keep=settings.checkpoint.keep,
        reach=reach,
    )


def plan_of(settings: Settings, *, until_end: bool) -> Plan:
    given, checkpoint = settings.input, settings.checkpoint
    return Plan(
        group=settings.group,
        topic=given.topic,
        shape=lambda partition: shape_of(settings, partition),
        start=given.start,
        limits=RowLimits(given.max_message_bytes, given.max_message_nnz, given.max_message_rows, given.max_name_bytes),
        checkpoint=CheckpointPolicy(checkpoint.every_rows, checkpoint.every_s),
        revoke_budget_s=checkpoint.revoke_budget_s,
        give_up_s=checkpoint.give_up_s,
        batch_records=settings.worker.batch_records,
        memory_max_bytes=settings.worker.memory_max_bytes,
        until_end=until_end,
    )


def worker_of(
    settings: Settings, *, until_end: bool, worker_name: str = "1", reach: Callable[[str], None] = _nothing
) -> tuple[Worker, Source]:
    """A worker and the source that it listens to."""
    given = settings.dead_letters
    gauge = BadMessageGauge(max_share=given.max_share, window=given.window, max_consecutive=given.max_consecutive)
    publishing = publishing_of(settings)
    plain = publishing is not None and not publishing.transactional
    needed = given.topic is not None or plain
    sink = Sink(_producer_settings(settings), hooks=hooks_of(settings)) if needed else None
    plan, around = plan_of(settings, until_end=until_end), surroundings_of(settings, reach)
    watch = watch_of(settings, worker_name)
    worker = Worker(
        plan,
        around,
        sink,
        _letters_for(settings, sink),
        gauge,
        watch,
        get_logger(),
        publishing,
        _courier_for(settings, publishing, reach),
        prepare=lambda timeout_s: make_output_topic(settings, timeout_s),
        output_epochs=OutputEpochs(lambda: output_epochs(settings), time.monotonic, get_logger()),
        decoder=decoder_of(settings, get_logger()),
    )
    hooks = replace(hooks_of(settings), on_statistics=watch.statistics)
    return worker, Source(settings.kafka, settings.input.topic, worker.tenures, hooks=hooks)


def publishing_of(settings: Settings) -> Publishing | None:
    given = settings.snapshot
    if given.topic is None:
        return None
    return Publishing(
        topic=given.topic,
        store_url=settings.checkpoint.url,
        every_s=given.every_s,
        every_rows=given.every_rows,
        republish_s=given.republish_s,
        inline_max_bytes=given.inline_max_bytes,
        dtype=given.dtype,
        column_sums=given.column_sums,
        column_names=given.column_names,
        transactional=given.delivery == "transactional",
    )


def _courier_for(
    settings: Settings, publishing: Publishing | None, reach: Callable[[str], None]
) -> Callable[[Worker], Courier] | None:
    """Its transactional id is new for each worker: who may deliver is decided by the group, not by the id."""
    if publishing is None or not publishing.transactional:
        return None
    name = f"{settings.group}-{uuid.uuid4().hex}"
    sink = TransactionalSink(
        _producer_settings(settings), name, give_up_s=DELIVER_S, reach=reach, hooks=hooks_of(settings)
    )
    return lambda worker: Courier(worker, sink, publishing)


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


def _letters_for(settings: Settings, sink: Sink | None) -> Callable[[str | None], DeadLetters] | None:
    topic, source_topic = settings.dead_letters.topic, settings.input.topic
    if topic is None or sink is None:
        return None
    return lambda topic_id: DeadLetters(sink, topic, source_topic=source_topic, source_topic_id=topic_id)
