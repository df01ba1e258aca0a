"""From settings to the parts that let people watch a worker."""

from __future__ import annotations

import socket
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from sfd_stream.config.model import HttpSettings, Settings
from sfd_stream.errors import SettingsError
from sfd_stream.observe.registry import Meter
from sfd_stream.observe.routes import routes_of
from sfd_stream.observe.server import Port, listening, listening_unix
from sfd_stream.observe.spectra import Compute, Looker
from sfd_stream.observe.worker_status import Identity, Watch
from sfd_stream.processes.spectrum import routes_within
from sfd_stream.worker.worker import Worker

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


def listener_of(settings: Settings, socket_path: Path | None) -> socket.socket:
    """The port, or a socket for the supervisor to ask, had before anything else begins."""
    http = settings.http
    return listening(http.host, http.port) if socket_path is None else listening_unix(socket_path)


@contextmanager
def watched(settings: Settings, worker: Worker, listener: socket.socket) -> Iterator[Port]:
    """Serves the status of the worker until it ends."""
    within = routes_within(worker.watch) if listener.family == socket.AF_UNIX else {}
    port = Port(listener, {**routes_of(worker.watch, settings.http.stuck_after_s), **within})
    port.start()
    try:
        yield port
    finally:
        port.close()
