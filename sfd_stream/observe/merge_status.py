"""Status and metrics of `sfd-stream merge`. The merger reports events here, and the port reads the values.

The merger's thread writes and the port's thread reads. Values that belong together are replaced as one frozen value.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

from prometheus_client.metrics_core import Metric as Family

from sfd_stream import __version__
from sfd_stream.observe import metrics as m
from sfd_stream.observe.registry import MetricsRegistry, family_of, labelled, of_process
from sfd_stream.reader.merged import MergedSketch


@dataclass(frozen=True)
class PublishedMerge:
    """The newest published merge. `made_at_s` is the wall-clock time of its oldest part."""

    parts: int
    missing: int
    rows: int
    delta_ratio: float
    failure_probability: float
    payload_bytes: int
    made_at_s: float

    @classmethod
    def of(cls, merged: MergedSketch, payload_bytes: int) -> PublishedMerge:
        whole = merged.squared_frobenius
        return cls(
            parts=len(merged.parts),
            missing=len(merged.missing),
            rows=merged.rows,
            delta_ratio=merged.delta / whole if whole else 0.0,
            failure_probability=merged.failure_probability,
            payload_bytes=payload_bytes,
            made_at_s=min(part.made_at_s for part in merged.parts),
        )


class MergeWatch:
    """The merger calls `alive` repeatedly, and the other methods at each event."""

    version = __version__

    def __init__(self, group: str, topic: str, clock: Callable[[], float], wall_clock: Callable[[], float]) -> None:
        self.meter = MetricsRegistry("merge")
        self.ready = False
        self.newest: PublishedMerge | None = None
        self.started_at_s = wall_clock()
        self._labels = {"worker": m.MERGE_WORKER, "group": group, "topic": topic}
        self._clock = clock
        self._wall_clock = wall_clock
        self._alive_s = clock()
        self._acknowledged_s: float | None = None

    # Called by the merger

    def alive(self) -> None:
        self._alive_s = self._clock()

    def started(self) -> None:
        """All parts were read. From now on the merger merges changes."""
        self.ready = True

    def merged(self, seconds: float) -> None:
        self.meter.observe(m.MERGE_SECONDS, seconds)

    def failed(self, kind: str) -> None:
        """`kind` is one of metrics.MERGE_FAILURE_KINDS."""
        self.meter.add(m.MERGE_FAILURES, 1, kind)

    def acknowledged(self) -> None:
        """The broker acknowledged a merge, new or republished."""
        self._acknowledged_s = self._clock()

    def published(self, merged: MergedSketch, payload_bytes: int) -> None:
        self.meter.add(m.MERGES)
        self.newest = PublishedMerge.of(merged, payload_bytes)

    # The port reads

    @property
    def idle_s(self) -> float:
        return max(self._clock() - self._alive_s, 0.0)

    @property
    def doing(self) -> str:
        if not self.ready:
            return "reading the existing snapshots"
        if self.newest is None:
            return "waiting for a first snapshot"
        return f"merging {self.newest.parts} of {self.newest.parts + self.newest.missing} partitions"

    def exposition(self) -> bytes:
        return labelled(self.meter, self._gauges, self._labels)

    def _gauges(self) -> Iterator[Family]:
        yield from of_process(self, self.idle_s)
        at, newest = self._acknowledged_s, self.newest
        yield family_of(m.MERGE_AGE, [((), None if at is None else self._clock() - at)])
        if newest is None:
            return
        parts = {"held": newest.parts, "missing": newest.missing}
        yield family_of(m.MERGE_PARTS, [((state,), parts[state]) for state in m.PART_STATES])
        yield family_of(m.MERGE_PART_AGE, [((), max(self._wall_clock() - newest.made_at_s, 0.0))])
        yield family_of(m.MERGE_ROWS, [((), newest.rows)])
        yield family_of(m.MERGE_DELTA_RATIO, [((), newest.delta_ratio)])
        yield family_of(m.MERGE_FAILURE_PROBABILITY, [((), newest.failure_probability)])
        yield family_of(m.MERGE_BYTES, [((), newest.payload_bytes)])
