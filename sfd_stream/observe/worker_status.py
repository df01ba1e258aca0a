"""Status and metrics of a worker, from the events that it reports.

    worker ──► Watch ──► MetricsRegistry (counts)   ──► /metrics
                 └─────► Status (once a second)     ──► /metrics, /status.json, /

The loop's thread calls all methods except `applied`, which the sketch thread calls. No method waits.
"""

from __future__ import annotations

import json
from collections import Counter, deque
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, Protocol

from sfd_stream import __version__
from sfd_stream.config.model import Settings, SketchSettings
from sfd_stream.observe import metrics as m
from sfd_stream.observe.facts import (
    Facts,
    LoopState,
    counts_of,
    failure_kind,
    in_words,
    kafka_statistics,
    moment_of,
    preview,
    written_bytes,
)
from sfd_stream.observe.progress import Progress
from sfd_stream.observe.registry import MetricsRegistry, exposition, resident_bytes
from sfd_stream.observe.spectra import SpectrumSampler
from sfd_stream.observe.status import DeadLetter, KafkaStatistics, Moment, PartitionStatus, Status, as_json, rounded
from sfd_stream.sketch.verify import ALPHA
from sfd_stream.state.manifest import Manifest

STATUS_EVERY_S = 1.0
MOMENT_EVERY_S = 15.0
MOMENTS = 240
"""One hour of moments."""

PACE_OVER_S = 10.0
NEWEST_LETTERS = 20
WORDS_CHARS = 200


class IntakeWatch(Protocol):
    """The events that a worker and a scorer report about incoming messages."""

    @property
    def excerpts(self) -> bool:
        """Whether the content of bad messages may be reported."""

    def took(self, partition: int, *, messages: int, rows: int, nnz: int, size: int, tombstones: int) -> None: ...
    def dead_letter(self, partition: int, offset: int, reason: str, words: str, value: bytes | None) -> None: ...


@dataclass
class Watch:
    worker: str
    settings: Settings
    meter: MetricsRegistry
    sampler: SpectrumSampler
    clock: Callable[[], float]
    wall_clock: Callable[[], float]
    progress: Progress = field(default_factory=Progress)
    _letters: Counter[str] = field(default_factory=Counter)
    _newest: deque[DeadLetter] = field(default_factory=lambda: deque(maxlen=NEWEST_LETTERS))
    _history: deque[Moment] = field(default_factory=lambda: deque(maxlen=MOMENTS))
    _pace: deque[tuple[float, int]] = field(default_factory=deque)
    _kafka: KafkaStatistics = field(default_factory=KafkaStatistics)

    def __post_init__(self) -> None:
        now = self.clock()
        self._started_at_s = self.wall_clock()
        self._turned_s = self._polled_s = now
        self._status_s = self._moment_s = float("-inf")
        self.status = self._status((), LoopState(False, False, True, None, 0))

    @property
    def idle_s(self) -> float:
        """Time since the loop last turned. Any thread may read it."""
        return max(self.clock() - self._turned_s, 0.0)

    # Called by the loop

    def alive(self) -> None:
        """Called when the loop is not stuck: it made a turn, or waits for an unavailable broker."""
        self._turned_s = self.clock()

    def polled(self) -> None:
        now = self.clock()
        self.meter.observe(m.POLL_GAP, now - self._polled_s)
        self._polled_s = now

    @property
    def excerpts(self) -> bool:
        """Whether the first bytes of bad messages are published."""
        return self.settings.http.excerpts

    def took(self, partition: int, *, messages: int, rows: int, nnz: int, size: int, tombstones: int) -> None:
        """A batch was decoded and submitted to the sketch thread."""
        add = self.meter.add
        add(m.MESSAGES, messages, partition)
        add(m.ROWS, rows, partition)
        add(m.NONZEROS, nnz, partition)
        add(m.INPUT_BYTES, size, partition)
        add(m.TOMBSTONES, tombstones, partition)
        self.progress.records += messages
        self.progress.rows += rows

    def dead_letter(self, partition: int, offset: int, reason: str, words: str, value: bytes | None) -> None:
        self.progress.bad += 1
        self.meter.add(m.DEAD_LETTERS, 1, reason)
        self._letters[reason] += 1
        letter = DeadLetter(self.wall_clock(), partition, offset, reason, words[:WORDS_CHARS], preview(value or b""))
        self._newest.append(letter)

    def applied(self, partition: int, before: Facts, after: Facts, seconds: float) -> None:
        """A batch was applied. Called on the sketch thread. A shrink takes nearly all of the time of its batch."""
        shrinks = after.shrinks - before.shrinks
        for _ in range(shrinks):
            self.meter.observe(m.SHRINK_SECONDS, seconds / shrinks)
        self.meter.add(m.VERIFICATIONS, after.verifications - before.verifications, partition)
        self.meter.add(m.VERIFY_RETRIES, after.retries - before.retries, partition)

    # Partitions come and go

    def rebalanced(self, kind: Literal["assign", "revoke", "lost"], partitions: Collection[int]) -> None:
        if partitions:
            self.meter.add(m.REBALANCES, 1, kind)

    def restored(self, seconds: float, rows: int) -> None:
        """A partition was restored, `seconds` after it was assigned."""
        self.meter.observe(m.RESTORE_SECONDS, seconds)
        self.meter.add(m.RESTORED_ROWS, rows)

    def replayed(self, seconds: float, restored: Facts, now: Facts) -> None:
        """The state has reached the end that the log had when it was restored."""
        if now.next_offset != restored.next_offset:
            self.meter.observe(m.REPLAY_SECONDS, seconds)
            self.meter.add(m.REPLAYED_ROWS, now.rows - restored.rows)

    def fenced(self, job: str) -> None:
        self.progress.fences += 1
        self.meter.add(m.FENCES)
        self.meter.add(m.FAILURES[job], 1, "fenced")

    def job_failed(self, job: str, error: BaseException) -> None:
        self.meter.add(m.FAILURES[job], 1, failure_kind(error))

    # Checkpoints and snapshots

    def durable(self, partition: int, manifest: Manifest, seconds: float) -> None:
        """A checkpoint is durable: its rows can't be lost, even if its snapshot or its offset commit fails."""
        self.progress.checkpoints += 1
        self.meter.observe(m.CHECKPOINT_SECONDS, seconds)
        self.meter.add(m.CHECKPOINTS, 1, partition)
        self.meter.add(m.CHECKPOINT_BYTES, written_bytes(manifest), partition)

    def snapshot_published(self, partition: int, seconds: float) -> None:
        self.meter.add(m.SNAPSHOTS, 1, partition)
        self.meter.observe(m.SNAPSHOT_SECONDS, seconds)

    def snapshot_failed(self, kind: Literal["refused", "unavailable"]) -> None:
        """A snapshot was not acknowledged. It will be published again."""
        self.meter.add(m.SNAPSHOT_FAILURES, 1, kind)

    def statistics(self, text: str) -> None:
        """Statistics of librdkafka, as JSON."""
        found = json.loads(text)
        if found.get("type") == "consumer":  # the second client, for requests, sends statistics, too
            self._kafka = kafka_statistics(found)

    # Once a turn

    def due(self) -> bool:
        return self.clock() - self._status_s >= STATUS_EVERY_S

    def update(self, parts: Sequence[PartitionStatus], loop: LoopState) -> None:
        """Computes the current status. Called once a second."""
        now = self.clock()
        self._status_s = now
        self._pace.append((now, self.progress.rows))
        while self._pace and now - self._pace[0][0] > PACE_OVER_S:
            self._pace.popleft()
        self.status = self._status(tuple(parts), loop)
        if now - self._moment_s >= MOMENT_EVERY_S:
            self._moment_s = now
            self._history.append(moment_of(self.status))

    def sketch_fields(self, partition: int, facts: Facts | None) -> dict[str, Any]:
        """The fields of a partition's status that come from its state and its last sample."""
        sampled = self.sampler.fields(partition)
        return sampled | ({} if facts is None else counts_of(facts, sampled["spectrum"]))

    # The port reads

    @property
    def ready(self) -> bool:
        return self.status.ready

    @property
    def doing(self) -> str:
        return self.status.doing

    def exposition(self) -> bytes:
        return exposition(self.meter, self.status, self.idle_s)

    def status_json(self, **more: float) -> bytes:
        return as_json(self.status, self.idle_s, resident_bytes(), **more)

    # The status

    def _status(self, parts: tuple[PartitionStatus, ...], loop: LoopState) -> Status:
        pace = self._rows_per_s()
        return Status(
            worker=self.worker,
            group=self.settings.group,
            topic=self.settings.input.topic,
            version=__version__,
            started_at_s=self._started_at_s,
            at_s=self.wall_clock(),
            doing=in_words(parts, loop, pace, self.settings.checkpoint.every_s),
            ready=loop.joined and all(part.state not in ("claiming", "waiting") for part in parts),
            rows=self.progress.rows,
            rows_per_s=pace,
            promised_ratio=_promised_ratio(self.settings.sketch),
            memory_reserved_bytes=loop.memory_reserved_bytes,
            memory_max_bytes=self.settings.worker.memory_max_bytes,
            broker_away_s=rounded(loop.broker_away_s or 0.0),
            outside_group_s=rounded(loop.outside_group_s or 0.0),
            checkpoints=self.progress.checkpoints,
            fences=self.progress.fences,
            partitions=parts,
            merged=self.sampler.merged if len(parts) > 1 else None,
            dead_letters=dict(self._letters),
            newest_dead_letters=tuple(reversed(self._newest)),
            history=tuple(self._history),
            kafka=self._kafka,
        )

    def _rows_per_s(self) -> float:
        if len(self._pace) < 2:
            return 0.0
        (began, before), (now, after) = self._pace[0], self._pace[-1]
        return rounded((after - before) / max(now - began, 1e-9))


def _promised_ratio(sketch: SketchSettings) -> float | None:
    """The theorem's bound for k = 0, the worst case: delta <= ||A||F^2 / (alpha ell)."""
    return rounded(min(1 / (ALPHA * sketch.ell), 1.0)) if sketch.method in ("fused", "paper") else None
