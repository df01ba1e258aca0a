"""What `sfd-stream merge` tells about itself: it says what happens, the port reads it off. Nothing waits, nothing asks.

The merger's thread writes, the port's thread reads: what belongs together is replaced as one frozen value.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

from prometheus_client.metrics_core import Metric as Family

from sfd_stream import __version__
from sfd_stream.observe import metrics as m
from sfd_stream.observe.registry import Meter, family_of, labelled, of_process
from sfd_stream.reader.merged import MergedSketch


@dataclass(frozen=True)
class Shown:
    """The newest merge that is in the topic. `made_at_s` is the oldest part's, by the wall clock."""

    parts: int
    missing: int
    rows: int
    delta_ratio: float
    failure_probability: float
    payload_bytes: int
    made_at_s: float

    @classmethod
    def of(cls, merged: MergedSketch, payload_bytes: int) -> Shown:
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
    """`alive` again and again while the merger lives; the rest as it happens."""

    version = __version__

    def __init__(self, group: str, topic: str, clock: Callable[[], float], wall_clock: Callable[[], float]) -> None:
        self.meter = Meter("merge")
        self.ready = False
        self.shown: Shown | None = None
        self.started_at_s = wall_clock()
        self._who = {"worker": m.MERGE_WORKER, "group": group, "topic": topic}
        self._clock = clock
        self._wall_clock = wall_clock
        self._alive_s = clock()
        self._acknowledged_s: float | None = None

    # Called by the merger

    def alive(self) -> None:
        self._alive_s = self._clock()

    def started(self) -> None:
        """All parts were read; from here on it merges what changes."""
        self.ready = True

    def merged(self, seconds: float) -> None:
        self.meter.observe(m.MERGE_SECONDS, seconds)

    def failed(self, kind: str) -> None:
        """`kind` is one of metrics.MERGE_FAILURE_KINDS."""
        self.meter.add(m.MERGE_FAILURES, 1, kind)

    def acknowledged(self) -> None:
        """A merge is in the topic, for the first time or again."""
        self._acknowledged_s = self._clock()

    def published(self, merged: MergedSketch, payload_bytes: int) -> None:
        self.meter.add(m.MERGES)
        self.shown = Shown.of(merged, payload_bytes)

    # The port reads

    @property
    def idle_s(self) -> float:
        return max(self._clock() - self._alive_s, 0.0)

    @property
    def doing(self) -> str:
        if not self.ready:
            return "reading the snapshots that are there"
        if self.shown is None:
            return "waiting for a first snapshot"
        return f"merging {self.shown.parts} of {self.shown.parts + self.shown.missing} partitions"

    def exposition(self) -> bytes:
        return labelled(self.meter, self._gauges, self._who)

    def _gauges(self) -> Iterator[Family]:
        yield from of_process(self, self.idle_s)
        at, shown = self._acknowledged_s, self.shown
        yield family_of(m.MERGE_AGE, [((), None if at is None else self._clock() - at)])
        if shown is None:
            return
        parts = {"held": shown.parts, "missing": shown.missing}
        yield family_of(m.MERGE_PARTS, [((state,), parts[state]) for state in m.PART_STATES])
        yield family_of(m.MERGE_PART_AGE, [((), max(self._wall_clock() - shown.made_at_s, 0.0))])
        yield family_of(m.MERGE_ROWS, [((), shown.rows)])
        yield family_of(m.MERGE_DELTA_RATIO, [((), shown.delta_ratio)])
        yield family_of(m.MERGE_FAILURE_PROBABILITY, [((), shown.failure_probability)])
        yield family_of(m.MERGE_BYTES, [((), shown.payload_bytes)])
