"""What the worker tells about itself: it says what happens as it does; metrics and status are made of that here.

    worker ──► Watch ──► Meter (counts)             ──► /metrics
                 └─────► Status (once a second)     ──► /metrics, /status.json, /

The loop's thread calls everything here but `applied`, which is the sketch thread's. Nothing waits, nothing asks.
"""

from __future__ import annotations

import json
from collections import Counter, deque
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, Protocol

from sfd_stream import __version__
from sfd_stream.observe import metrics as m
from sfd_stream.observe.facts import (
    Around,
    Facts,
    counts_of,
    failure_kind,
    in_words,
    kafka_statistics,
    moment_of,
    preview,
    written_bytes,
)
from sfd_stream.observe.progress import Progress
from sfd_stream.observe.registry import Meter
from sfd_stream.observe.spectra import Looker
from sfd_stream.observe.status import DeadLetter, KafkaStatistics, Moment, PartitionStatus, Status, rounded
from sfd_stream.sketch.verify import ALPHA
from sfd_stream.state.manifest import Manifest

STATUS_EVERY_S = 1.0
MOMENT_EVERY_S = 15.0
MOMENTS = 240
"""An hour."""

PACE_OVER_S = 10.0
NEWEST_LETTERS = 20
WORDS_CHARS = 200


@dataclass(frozen=True)
class Identity:
    worker: str
    group: str
    topic: str
    ell: int
    method: str
    memory_max_bytes: int
    shows: bool = False
    """Whether snapshots are published."""
    checkpoint_every_s: float | None = None
    excerpts: bool = False
    """Whether the status shows what bad messages hold."""

    @property
    def promised_ratio(self) -> float | None:
        """The theorem at its worst (k = 0): delta <= ||A||F^2 / (alpha ell)."""
        return rounded(min(1 / (ALPHA * self.ell), 1.0)) if self.method in ("fused", "paper") else None


class IntakeWatch(Protocol):
    """What is reported of messages as they come in, by a worker and by a scorer."""

    @property
    def excerpts(self) -> bool:
        """Whether the content of bad messages may be reported."""

    def took(self, partition: int, *, messages: int, rows: int, nnz: int, size: int, tombstones: int) -> None: ...
    def dead_letter(self, partition: int, offset: int, reason: str, words: str, value: bytes | None) -> None: ...


@dataclass
class Watch:
    identity: Identity
    meter: Meter
    looker: Looker
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
        self.status = self._status((), Around(False, False, True, None, 0))

    @property
    def idle_s(self) -> float:
        """Since the loop last turned. May be asked from any thread."""
        return max(self.clock() - self._turned_s, 0.0)

    # Called by the loop

    def alive(self) -> None:
        """The loop is not stuck: it made a turn, or waits for an unavailable broker."""
        self._turned_s = self.clock()

    def polled(self) -> None:
        now = self.clock()
        self.meter.observe(m.POLL_GAP, now - self._polled_s)
        self._polled_s = now

    @property
    def excerpts(self) -> bool:
        """Whether the first bytes of bad messages are published."""
        return self.identity.excerpts

    def took(self, partition: int, *, messages: int, rows: int, nnz: int, size: int, tombstones: int) -> None:
        """A batch, decoded and handed to the sketching thread."""
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
        """On the sketching thread. Beside a shrink the rest of a batch takes next to no time."""
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
        """`seconds` after the partition was assigned."""
        self.meter.observe(m.RESTORE_SECONDS, seconds)
        self.meter.add(m.RESTORED_ROWS, rows)

    def replayed(self, seconds: float, restored: Facts, now: Facts) -> None:
        """The end is reached that the log had when the state was restored."""
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
        """From here on nothing of it can be lost, whatever becomes of its snapshot and its offset."""
        self.progress.checkpoints += 1
        self.meter.observe(m.CHECKPOINT_SECONDS, seconds)
        self.meter.add(m.CHECKPOINTS, 1, partition)
        self.meter.add(m.CHECKPOINT_BYTES, written_bytes(manifest), partition)

    def snapshot_published(self, partition: int, seconds: float) -> None:
        self.meter.add(m.SNAPSHOTS, 1, partition)
        self.meter.observe(m.SNAPSHOT_SECONDS, seconds)

    def snapshot_failed(self, kind: Literal["refused", "unavailable"]) -> None:
        """Not acknowledged: it will be published again."""
        self.meter.add(m.SNAPSHOT_FAILURES, 1, kind)

    def statistics(self, text: str) -> None:
        """Statistics of librdkafka, as JSON."""
        found = json.loads(text)
        if found.get("type") == "consumer":  # the client beside it, for questions, tells of itself too
            self._kafka = kafka_statistics(found)

    # Once a turn

    def due(self) -> bool:
        return self.clock() - self._status_s >= STATUS_EVERY_S

    def update(self, parts: Sequence[PartitionStatus], around: Around) -> None:
        """Makes the status of now; once a second is enough."""
        now = self.clock()
        self._status_s = now
        self._pace.append((now, self.progress.rows))
        while self._pace and now - self._pace[0][0] > PACE_OVER_S:
            self._pace.popleft()
        self.status = self._status(tuple(parts), around)
        if now - self._moment_s >= MOMENT_EVERY_S:
            self._moment_s = now
            self._history.append(moment_of(self.status))

    def sketch_fields(self, partition: int, facts: Facts | None) -> dict[str, Any]:
        """The fields of a partition's status that are read off its state and its last sample."""
        looker = self.looker
        spectrum, (degrees, error_degrees) = looker.spectra.get(partition), looker.angles.get(partition, (None, None))
        sampled = {"spectrum": spectrum, "drift": looker.drifts.get(partition)}
        angles = {"drift_degrees": degrees, "drift_error_degrees": error_degrees}
        return sampled | angles | ({} if facts is None else counts_of(facts, spectrum))

    # The status

    def _status(self, parts: tuple[PartitionStatus, ...], around: Around) -> Status:
        pace = self._rows_per_s()
        return Status(
            worker=self.identity.worker,
            group=self.identity.group,
            topic=self.identity.topic,
            version=__version__,
            started_at_s=self._started_at_s,
            at_s=self.wall_clock(),
            doing=in_words(parts, around, pace, self.identity.checkpoint_every_s),
            ready=around.joined and all(part.state not in ("claiming", "waiting") for part in parts),
            rows=self.progress.rows,
            rows_per_s=pace,
            promised_ratio=self.identity.promised_ratio,
            memory_reserved_bytes=around.memory_reserved_bytes,
            memory_max_bytes=self.identity.memory_max_bytes,
            broker_away_s=rounded(around.broker_away_s or 0.0),
            outside_group_s=rounded(around.outside_group_s or 0.0),
            checkpoints=self.progress.checkpoints,
            fences=self.progress.fences,
            partitions=parts,
            merged=self.looker.merged if len(parts) > 1 else None,
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
