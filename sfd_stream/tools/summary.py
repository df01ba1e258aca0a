"""What the checkpoints hold, counted: the truth after a run, by any worker. Reads the store, no broker."""

from __future__ import annotations

import random
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from typing import Any

from sfd_stream.state.manifest import Manifest
from sfd_stream.state.partition import PartitionState, Shape, restore
from sfd_stream.state.perform import Patience, run
from sfd_stream.state.protocol import load_blobs, newest_number, read_manifest
from sfd_stream.state.steps import Refused, Steps
from sfd_stream.storage.contract import Store, key_part, partition_prefix


@dataclass(frozen=True)
class PartitionSummary:
    rows: int
    nnz: int
    bad: int
    tombstones: int
    next_offset: int
    squared_frobenius: float
    delta: float


@dataclass(frozen=True)
class Loaded:
    manifest: Manifest
    state: PartitionState


def load_newest(prefix: str, where: str, shape: Shape) -> Steps[Loaded | Refused | None]:
    """The newest state, or None if there is none. Read again if its owner went on and tidied up in between."""
    number = yield from newest_number(prefix)
    while number is not None:
        found = yield from _load(prefix, number, where, shape)
        newest = yield from newest_number(prefix)
        if not isinstance(found, Refused) or newest == number:
            return found
        number = newest
    return None


def _load(prefix: str, number: int, where: str, shape: Shape) -> Steps[Loaded | Refused]:
    manifest = yield from read_manifest(prefix, number, where=where)
    if isinstance(manifest, Refused):
        return manifest
    blobs = yield from load_blobs(manifest.state_references, number=number, where=where)
    if isinstance(blobs, Refused):
        return blobs
    sketch = blobs[0] if manifest.sketch is not None else None
    state, _ = restore(shape, manifest, sketch, blobs[1:] if manifest.sketch is not None else blobs)
    return Loaded(manifest, state)


def partitions_in(store: Store, group: str, topic: str) -> list[int]:
    prefix = f"{key_part(group)}/{key_part(topic)}/"
    parts = {key.removeprefix(prefix).partition("/")[0] for key in store.list(prefix)}
    return sorted(int(part) for part in parts if part.isdigit())


def load_all(store: Store, group: str, topic: str, shape: Callable[[int], Shape]) -> list[Loaded]:
    """The newest state of every partition that has one."""
    patience = Patience(60.0, time.monotonic, time.sleep, lambda: random.uniform(0.5, 1))
    found = []
    for partition in partitions_in(store, group, topic):
        steps = load_newest(partition_prefix(group, topic, partition), f"{topic}/{partition}", shape(partition))
        loaded = run(steps, store, patience)
        if isinstance(loaded, Refused):
            raise loaded.error()
        if loaded is not None:
            found.append(loaded)
    return found


def summarise(store: Store, group: str, topic: str, shape: Callable[[int], Shape]) -> dict[int, PartitionSummary]:
    loaded = load_all(store, group, topic, shape)
    return {part.manifest.binding.partition: _summary(part.state) for part in loaded}


def _summary(state: PartitionState) -> PartitionSummary:
    """Delta is that of the sketch one would read now, rows still in the buffer included."""
    sketch = state.sketch()
    return PartitionSummary(
        sketch.rows, sketch.nnz, state.bad, state.tombstones, state.next_offset, sketch.squared_frobenius, sketch.delta
    )


def as_report(found: dict[int, PartitionSummary], rows_per_s: float) -> dict[str, Any]:
    """The summary's one JSON object."""
    partitions = {str(p): asdict(summary) for p, summary in sorted(found.items())}
    names = [name for name in PartitionSummary.__dataclass_fields__ if name != "next_offset"]
    total: dict[str, Any] = {name: sum(part[name] for part in partitions.values()) for name in names}
    return {"partitions": partitions, "total": {**total, "rows_per_s": rows_per_s}}
