"""A reader that needs no broker, for commands that read snapshots."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import pytest

from sfd_stream.reader.merged import MergedSketch, merge
from sfd_stream.wire.snapshots import Snapshot
from tests.unit.reader.made import rows_of, sketch_of, snapshot

SKETCHES = [snapshot(sketch_of(rows_of(partition)), partition, partitions=2) for partition in (0, 1)]


def merged(snapshots: list[Snapshot] = SKETCHES) -> MergedSketch:
    return merge(snapshots, 1000.0)


def publish_to(command: Any, monkeypatch: pytest.MonkeyPatch, snapshots: list[Snapshot] = SKETCHES) -> None:
    """From now on the command's reader finds these snapshots."""

    @contextlib.contextmanager
    def reader_of(*_: object) -> Iterator[Any]:
        yield SimpleNamespace(merged=lambda: merged(snapshots), latest=lambda: snapshots, history=lambda: iter(()))

    monkeypatch.setattr(command.snapshots, "reader_of", reader_of)
