"""The bases by which rows are scored: the newest merged snapshot, read in the background, and the one before it.

A row that the sketch has counted gets too low a score. So each row is scored by the newest basis that has not counted
it; if there is none, by the newest one, and its score has a note of that.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from sfd_stream.errors import (
    BrokerUnavailableError,
    NoSnapshotError,
    ObjectMissingError,
    RefusedStateError,
    StoreUnavailableError,
)
from sfd_stream.loop.jobs import Job, Wait
from sfd_stream.loop.runtime import Runtime
from sfd_stream.observe.logs import Log
from sfd_stream.reader.merged import MergedSketch, merge
from sfd_stream.reader.reader import SnapshotReader
from sfd_stream.score.background import Background
from sfd_stream.sketch.basis import alignment
from sfd_stream.sketch.rows import Float
from sfd_stream.sketch.scoring.block_angles import FoldedReference
from sfd_stream.sketch.scoring.score import Scorer
from sfd_stream.wire.columns import Columns, FixedColumns, HashedColumns
from sfd_stream.wire.scores import BasisNote

READ_EVERY_S = 1.0
LOG_EVERY_S = 60.0
FIRST_SNAPSHOT = "first snapshot"
"""The step of a claim that waits for a basis."""


@dataclass(frozen=True, eq=False)
class ScoringBasis:
    """A scorer, the rows it has counted, and the rotation of its coordinates to those of the basis before."""

    id: str
    scorer: Scorer
    counted_to: Mapping[int, int]
    """By partition of the input topic: rows of records before this offset are counted."""
    made_at_s: float
    """When its oldest part was made."""
    rotation: Float
    pinned: bool = False

    @property
    def line(self) -> str:
        """Equal for bases whose scores can be compared."""
        which = f"pinned {self.id}" if self.pinned else "newest"
        return f"{which}, k={self.scorer.k}, {'centred' if self.scorer.mean is not None else 'not centred'}"

    @cached_property
    def frame(self) -> Float:
        """The directions that coordinates are along."""
        return np.asarray(self.rotation @ self.scorer.components)

    @cached_property
    def folded(self) -> FoldedReference:
        """For the angles between its directions and those that rows follow."""
        return FoldedReference(self.scorer.components, self.scorer.mean)

    def has_counted(self, partition: int, offset: int) -> bool:
        return offset < self.counted_to.get(partition, 0)

    def note(self, now_s: float) -> BasisNote:
        scorer, age_s = self.scorer, max(now_s - self.made_at_s, 0.0)
        return BasisNote(self.id, scorer.rows, scorer.k, scorer.mean is not None, age_s)


def basis_of(
    merged: MergedSketch,
    topic: str,
    k: int | None,
    *,
    centred: bool,
    before: ScoringBasis | None = None,
    pinned: bool = False,
) -> ScoringBasis:
    """The basis of a merged sketch of `topic`. ValueError if the sketch has too few directions."""
    scorer = merged.scorer(k, centred)
    rotation = np.eye(scorer.k)
    if before is not None and before.scorer.k == scorer.k:
        rotation = alignment(scorer.components, before.frame)
    return ScoringBasis(
        id=id_of(merged),
        scorer=scorer,
        counted_to={part.id.partition: part.next_offset for part in merged.parts if part.id.topic == topic},
        made_at_s=min(part.made_at_s for part in merged.parts),
        rotation=rotation,
        pinned=pinned,
    )


def id_of(merged: MergedSketch) -> str:
    """An id that is the same for the same snapshots, wherever they were merged."""
    parts = sorted(f"{part.id.cluster}/{part.id.key}/{part.id.epoch}/{part.id.number}" for part in merged.parts)
    return hashlib.sha256("\n".join(parts).encode()).hexdigest()[:16]


def check_meaning(merged: MergedSketch, columns: Columns, where: str) -> None:
    """Raises RefusedStateError unless the columns of sketch and rows have the same meaning.

    `where`: the origin of the snapshots, like "of topic sketches".
    """
    mine = _described(columns)
    theirs = {"input.columns": merged.columns}
    if merged.columns != "growing":
        theirs["sketch.d"] = str(merged.d)
    if merged.columns == "hashed":
        theirs["input.hash_seed"] = str(merged.hash_seed)
        theirs["input.features"] = _features(merged.mapping)
    different = [name for name in theirs.keys() | mine.keys() if theirs.get(name) != mine.get(name)]
    if different:
        words = "; ".join(f"{name} is {theirs.get(name)} there and {mine.get(name)} here" for name in sorted(different))
        raise RefusedStateError(
            f"the snapshots {where} have other columns than the rows to score: {words}; run the scorer with"
            " the settings of the workers that publish them"
        )


def _described(columns: Columns) -> dict[str, str]:
    match columns:
        case HashedColumns():
            return {
                "input.columns": "hashed",
                "sketch.d": str(columns.d),
                "input.hash_seed": str(columns.seed),
                "input.features": _features(columns.mapping),
            }
        case FixedColumns():
            return {"input.columns": "fixed", "sketch.d": str(columns.d)}
        case _:
            return {"input.columns": "growing"}


def _features(mapping: object) -> str:
    described = getattr(mapping, "described", None)
    return "none (rows are msgpack)" if described is None else str(described())


@dataclass(eq=False)
class NewestBasis:
    """Reads the snapshot topic, on one background thread at a time."""

    reader: SnapshotReader
    topic: str
    """The topic of the rows."""
    columns: Columns
    k: int | None
    centred: bool
    computing: Callable[[], AbstractContextManager[None]]
    wall_clock: Callable[[], float]

    def __post_init__(self) -> None:
        self._last: ScoringBasis | None = None
        self._pending = True

    def read(self) -> ScoringBasis | None:
        """The basis of the newest snapshots; None if it is the same as the last one. NoSnapshotError before the first
        snapshot, or while it has too few directions.
        """
        self._pending |= self.reader.refresh()
        if not self._pending:
            return None
        with self.computing():
            snapshots = self.reader.held()
            merged = merge(snapshots, self.wall_clock(), max_bytes=self.reader.max_total_bytes)
            check_meaning(merged, self.columns, f"of topic {self.reader.topic}")
            self._pending = False
            try:
                self._last = basis_of(merged, self.topic, self.k, centred=self.centred, before=self._last)
            except ValueError as error:
                raise NoSnapshotError(f"the snapshots can't score rows yet: {error}") from None
        return self._last

    def close(self) -> None:
        self.reader.close()


class Bases:
    """The current basis, the one before it, and the reference of drift. Only the loop's thread calls it."""

    def __init__(
        self,
        read: Callable[[], ScoringBasis | None],
        runtime: Runtime,
        log: Log,
        read_reference: Callable[[], ScoringBasis | None] | None = None,
    ) -> None:
        self.newest: ScoringBasis | None = None
        self.reference: ScoringBasis | None = None
        self._before: ScoringBasis | None = None
        self._read = read
        self._read_reference = read_reference
        self._runtime = runtime
        self._log = log
        self._reading = Background[ScoringBasis | None](runtime, READ_EVERY_S)
        self._reading_reference = Background[ScoringBasis | None](runtime, READ_EVERY_S)
        self._logged_s: float | None = None

    def serve(self) -> None:
        """Called once a turn: takes what was read, starts the next reading. Raises permanent errors."""
        found = self._taken(self._reading)
        if found is not None:
            self._before, self.newest = self.newest, found
            self._log.info("basis changed", basis=found.id, rows=found.scorer.rows, k=found.scorer.k)
        if self._reading.is_due:
            self._reading.ask(self._read)
        if self._read_reference is not None and self.reference is None:
            self.reference = self._taken(self._reading_reference)
            if self.reference is None and self._reading_reference.is_due:
                self._reading_reference.ask(self._read_reference)

    @property
    def missing(self) -> str | None:
        """What is missing before rows can be scored; None if nothing is."""
        if self.newest is None:
            return "a basis to score rows by"
        return "drift.reference" if self._read_reference is not None and self.reference is None else None

    def available(self) -> Job[None]:
        while self.missing is not None:
            yield Wait(FIRST_SNAPSHOT)

    def for_rows_from(self, partition: int, offset: int) -> ScoringBasis:
        """The newest basis that has not counted the record at `offset`, or else the newest."""
        assert self.newest is not None, "nothing is read before there is a basis"
        for basis in (self.newest, self._before):
            if basis is not None and not basis.has_counted(partition, offset):
                return basis
        return self.newest

    def _taken(self, reading: Background[ScoringBasis | None]) -> ScoringBasis | None:
        answered = reading.take()
        if answered is None:
            return None
        try:
            return answered.result()
        except NoSnapshotError as error:
            self._log_waiting("no basis yet: rows are scored once there is one", str(error))
        except (BrokerUnavailableError, StoreUnavailableError, ObjectMissingError) as error:
            self._log_waiting("snapshots could not be read, will retry", str(error))
        return None

    def _log_waiting(self, event: str, reason: str) -> None:
        now_s = self._runtime.clock()
        if self._logged_s is None or now_s - self._logged_s >= LOG_EVERY_S:
            self._logged_s = now_s
            self._log.warning(event, reason=reason)
