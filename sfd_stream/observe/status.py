"""The status of a worker as one frozen value. The loop creates it, any thread may read it.

The HTTP port returns it as JSON, and gauges are read from it at each scrape.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

SCHEMA = 1


@dataclass(frozen=True)
class ColumnWeight:
    column: int
    name: str | None
    weight: float


@dataclass(frozen=True)
class SpectrumStatus:
    """A sample of a sketch: sigma_i^2 <= sigma_i(A)^2 <= sigma_i^2 + delta, for each singular value."""

    rows: int
    d: int
    ell: int
    singular_values: tuple[float, ...]
    """The largest singular values; `kept` is the number of all."""
    kept: int
    delta: float
    squared_frobenius: float
    directions: tuple[tuple[ColumnWeight, ...], ...]
    """The strongest columns of the first directions."""
    at_s: float

    @property
    def delta_ratio(self) -> float:
        return self.delta / self.squared_frobenius if self.squared_frobenius > 0 else 0.0


@dataclass(frozen=True)
class PartitionStatus:
    partition: int
    state: str
    applied: int | None = None
    committed: int | None = None
    end: int | None = None
    lag: int | None = None
    stuck_s: float = 0.0
    silent_s: float = 0.0
    rows: int = 0
    nnz: int = 0
    bad: int = 0
    tombstones: int = 0
    shrinks: int = 0
    delta_ratio: float | None = None
    failure_probability: float | None = None
    drift: float | None = None
    """Mean squared sine of the angles: 0 the same, 1 orthogonal."""
    drift_degrees: float | None = None
    """The largest angle between the first directions of two samples. The rows' own differs by at most the error."""
    drift_error_degrees: float | None = None
    buffer_fill: float = 0.0
    number: int | None = None
    epoch: int | None = None
    checkpoint_age_s: float = 0.0
    snapshot_age_s: float | None = None
    snapshot_bytes: int | None = None
    spectrum: SpectrumStatus | None = None
    job: str | None = None
    """The running job: claim, checkpoint, publication or retention."""
    waits_for: str | None = None
    """The step that the job waits for; `waits_s` says for how long."""
    waits_s: float = 0.0


@dataclass(frozen=True)
class DeadLetter:
    at_s: float
    partition: int
    offset: int
    reason: str
    words: str
    preview: str
    """The first bytes of the message, made printable; empty unless http.excerpts is set."""


@dataclass(frozen=True)
class Moment:
    """One point of the last hour."""

    at_s: float
    rows: int
    lag: int
    delta_ratio: float | None
    checkpoint_age_s: float
    drift: float | None
    drift_degrees: float | None = None
    """The largest drift of a partition, with its error."""
    drift_error_degrees: float | None = None


@dataclass(frozen=True)
class KafkaStatistics:
    """A part of librdkafka's statistics; brokers by id."""

    rtt_s: Mapping[str, float] = field(default_factory=dict)
    transmit_errors: Mapping[str, int] = field(default_factory=dict)
    fetch_queue: int = 0


@dataclass(frozen=True)
class Status:
    worker: str
    group: str
    topic: str
    version: str
    started_at_s: float
    at_s: float
    doing: str
    """The current activity as a sentence."""
    ready: bool
    """Whether all assigned partitions are restored. A worker without partitions is ready, too."""
    rows: int
    """Rows that this worker has read since it started."""
    rows_per_s: float
    promised_ratio: float | None
    memory_reserved_bytes: int
    memory_max_bytes: int
    broker_away_s: float = 0.0
    outside_group_s: float = 0.0
    checkpoints: int = 0
    fences: int = 0
    partitions: tuple[PartitionStatus, ...] = ()
    merged: SpectrumStatus | None = None
    dead_letters: Mapping[str, int] = field(default_factory=dict)
    newest_dead_letters: tuple[DeadLetter, ...] = ()
    history: tuple[Moment, ...] = ()
    kafka: KafkaStatistics = field(default_factory=KafkaStatistics)


def as_json(status: Status, idle_s: float, memory_bytes: int, **more: float) -> bytes:
    """`/status.json` of one process: the last status of its worker, and the time since its loop turned."""
    worker = {**vars(status), "loop_idle_s": round(idle_s, 3), "resident_memory_bytes": memory_bytes}
    return json.dumps({"schema": SCHEMA, "workers": [worker], **more}, default=_plain, separators=(",", ":")).encode()


def rounded(value: float) -> float:
    """Rounds to six digits, which are enough for a chart. 0 if not finite, because JSON has no such value."""
    return float(f"{value:.6g}") if math.isfinite(value) else 0.0


def age_s(now_s: float, *since: float | None) -> float:
    """The age of the oldest of these times; 0 if there is none."""
    known = [each for each in since if each is not None]
    return round(now_s - min(known), 3) if known else 0.0


def _plain(value: Any) -> Any:
    return dict(value) if isinstance(value, Mapping) else vars(value)
