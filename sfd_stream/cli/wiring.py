"""From settings to the parts that they describe. Nothing here decides; it only puts together."""

from __future__ import annotations

import socket
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from sfd_stream.config.model import Settings
from sfd_stream.kafka.dead_letters import BadMessageGauge, DeadLetters
from sfd_stream.kafka.faults import Hooks
from sfd_stream.kafka.sink import Sink
from sfd_stream.kafka.source import Source
from sfd_stream.service.beside import Beside
from sfd_stream.service.keeper import Surroundings
from sfd_stream.service.logs import get_logger
from sfd_stream.service.looks import Looker
from sfd_stream.service.meter import Meter
from sfd_stream.service.showing import Showing
from sfd_stream.service.tenure import Plan
from sfd_stream.service.views import routes_of
from sfd_stream.service.watch import Identity, Watch
from sfd_stream.service.web import Port, listening, listening_unix
from sfd_stream.service.worker import Worker
from sfd_stream.sketch.builder import Parameters
from sfd_stream.state.partition import ENTRY_BYTES, Shape
from sfd_stream.state.policy import CheckpointPolicy
from sfd_stream.storage.contract import Store
from sfd_stream.storage.opening import open_store
from sfd_stream.wire.columns import Columns, FixedColumns, GrowingColumns, HashedColumns
from sfd_stream.wire.rows import RowLimits

GROWING_START = 1024
"""Columns that a growing matrix begins with where sketch.d does not say."""

READERS = 8
"""Blobs of a state that are read side by side."""


def _nothing(_: str) -> None:
    """The points of the protocol are for tests."""


def columns_of(settings: Settings) -> Columns:
    given, d = settings.input, settings.sketch.d
    match given.columns:
        case "growing":
            return GrowingColumns(min(d or GROWING_START, given.d_max), given.d_max)
        case "hashed":
            assert d is not None, "checked with the settings"
            return HashedColumns(d, given.hash_seed, given.names_max, given.keep_names)
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
            failure_probability=sketch.failure_probability,
            seed=(sketch.seed, partition),
            buffer_factor=sketch.buffer_factor,
            buffer_entries_max=max(sketch.buffer_max_bytes // ENTRY_BYTES, 1),
            half_life_rows=sketch.half_life_rows,
        ),
    )


def store_of(settings: Settings) -> Store:
    return open_store(settings.checkpoint.url, {k: str(v) for k, v in settings.checkpoint.options.items()})


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
    sink = Sink(settings.kafka) if given.topic is not None else None
    plan, around = plan_of(settings, until_end=until_end), surroundings_of(settings, reach)
    watch = watch_of(settings, worker_name)
    worker = Worker(plan, around, sink, _letters_for(settings, sink), gauge, watch, get_logger())
    hooks = Hooks(on_statistics=watch.statistics)
    return worker, Source(settings.kafka, settings.input.topic, worker.tenures, hooks=hooks)


def watch_of(settings: Settings, worker_name: str) -> Watch:
    sketch = settings.sketch
    identity = Identity(
        worker=worker_name,
        group=settings.group,
        topic=settings.input.topic,
        ell=sketch.ell,
        method=sketch.method,
        memory_max_bytes=settings.worker.memory_max_bytes,
    )
    drift_every_s = settings.snapshot.every_s or settings.snapshot.republish_s
    looker = Looker(Beside(1, "look"), time.monotonic, time.time, drift_every_s=drift_every_s)
    return Watch(identity, Meter(), looker, time.monotonic, time.time)


def listener_of(settings: Settings, socket_path: Path | None) -> socket.socket:
    """The port, or a socket for the supervisor to ask, had before anything else begins."""
    http = settings.http
    return listening(http.host, http.port) if socket_path is None else listening_unix(socket_path)


@contextmanager
def watched(settings: Settings, worker: Worker, listener: socket.socket) -> Iterator[Port]:
    """The worker shown to whoever asks, until it ends."""
    port = Port(listener, routes_of(worker.watch, settings.http.stuck_after_s))
    showing, others = Showing(Beside(1, "ends"), time.monotonic), worker.on_turn

    def on_turn() -> None:
        others()
        showing(worker)

    worker.on_turn = on_turn
    port.start()
    try:
        yield port
    finally:
        port.close()


def _letters_for(settings: Settings, sink: Sink | None) -> Callable[[str | None], DeadLetters] | None:
    topic, source_topic = settings.dead_letters.topic, settings.input.topic
    if topic is None or sink is None:
        return None
    return lambda topic_id: DeadLetters(sink, topic, source_topic=source_topic, source_topic_id=topic_id)
