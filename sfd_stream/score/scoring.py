"""Converts a batch of rows into the messages of their scores. Pure: the scoring thread calls it in record order."""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from sfd_stream.config.model import ScoreSettings
from sfd_stream.config.types import Thresholds
from sfd_stream.kafka.records import PartitionBatch
from sfd_stream.kafka.transactional_producer import Outgoing
from sfd_stream.score.bases import ScoringBasis
from sfd_stream.sketch.intervals import Intervals
from sfd_stream.sketch.rows import Int
from sfd_stream.sketch.scoring.score import Scores
from sfd_stream.wire.columns import HashedColumns
from sfd_stream.wire.rows.decode import DecodedBatch
from sfd_stream.wire.score_states import ScoreState
from sfd_stream.wire.scores import Origin, PlainScores, encode, score_map

Mask = npt.NDArray[np.bool_]

KINDS = {"p_max": "p_value", "residual_over_mean_min": "residual_over_mean", "t2_min": "t2"}
"""For each threshold, the score to which it applies."""

EXTREME_KEPT = 20
"""Number of extreme rows on the page."""


@dataclass(frozen=True, eq=False)
class ScoredBatch:
    """What to write about a batch, and the state after it."""

    next_offset: int
    messages: list[Outgoing]
    state: ScoreState
    rows: int
    reported: Counter[str]
    """Number of rows by the score for which they are reported."""
    over_mean: npt.NDArray[np.float64]
    """Each row's residual over the mean."""
    extreme: Sequence[Mapping[str, Any]] = ()
    """The last rows that are reported: their scores, in the form in which they are written."""


@dataclass(frozen=True)
class BatchScorer:
    """`topic`: the input topic; scores go to `settings.topic`."""

    topic: str
    settings: ScoreSettings
    block_rows: int
    """Number of rows of a block that is compared with the reference of drift."""

    def score(
        self,
        batch: PartitionBatch,
        decoded: DecodedBatch,
        basis: ScoringBasis,
        state: ScoreState,
        now_s: float,
        reference: ScoringBasis | None = None,
    ) -> ScoredBatch:
        state = state.of_basis(basis.line)
        histogram = state.histogram
        scores = basis.scorer.score(decoded.block, histogram)
        places, offsets, numbers = rows_of(batch, decoded)
        counted = offsets < basis.counted_to.get(batch.partition, 0)
        passed = offsets < state.next_offset
        after = state.plus(only(scores, ~counted & ~passed), max(batch.next_offset, state.next_offset))
        if reference is not None:
            later = ~passed & (offsets >= reference.counted_to.get(batch.partition, 0))
            first = len(later) - int(np.count_nonzero(later))  # offsets rise: the last rows are the later ones
            rest = decoded.block.take(first, len(later))
            compared = only(scores, later) if basis.line == reference.line else reference.scorer.score(rest)
            folded = reference.folded.rows(rest, compared.coordinates, compared.residual)
            after = after.compared(reference.line, self.block_rows, compared.residual_share, folded)
        kinds = kinds_of(scores, self.settings.when)
        chosen = np.any(list(kinds.values()), axis=0) if kinds else np.ones(len(offsets), bool)
        names = decoded.columns.names if isinstance(decoded.columns, HashedColumns) else {}
        note, rows = basis.note(now_s).as_map(), np.flatnonzero(chosen)
        plain = PlainScores.of(scores, scores.coordinates @ basis.rotation.T, rows)
        messages, extreme = [], deque[Mapping[str, Any]](maxlen=EXTREME_KEPT)
        for number, at in enumerate(rows.tolist()):
            score = score_map(
                Origin(self.topic, batch.partition, int(offsets[at]), int(numbers[at])),
                plain,
                number,
                note,
                counted=bool(counted[at]),
                earlier_rows=histogram.rows,
                reported=[kind for kind, rows in kinds.items() if rows[at]],
                causes=basis.scorer.explain(decoded.block.take(at, at + 1), self.settings.causes, names=names)
                if kinds
                else None,
            )
            if kinds:
                extreme.append(score)
            messages.append(self._message(batch, int(places[at]), encode(score, self.settings.format)))
        return ScoredBatch(
            next_offset=batch.next_offset,
            messages=messages,
            state=after,
            rows=decoded.block.rows,
            reported=Counter({kind: int(np.count_nonzero(rows)) for kind, rows in kinds.items()}),
            over_mean=scores.residual_over_mean.estimate,
            extreme=tuple(extreme),
        )

    def _message(self, batch: PartitionBatch, place: int, value: bytes) -> Outgoing:
        """The message, with the key and the timestamp of the row's record."""
        assert self.settings.topic is not None, "checked by the command"
        record = batch.messages[place]
        kind, time_ms = record.timestamp()
        return Outgoing(self.settings.topic, record.key(), value, timestamp_ms=None if kind == 0 else time_ms)


def rows_of(batch: PartitionBatch, decoded: DecodedBatch) -> tuple[Int, Int, Int]:
    """For each row: the place of its record in the batch, the record's offset, the row's number in the record."""
    places = np.flatnonzero([value is not None for value in batch.values])
    rows = decoded.rows_of_message
    firsts = np.repeat(np.cumsum(rows) - rows, rows)
    places = np.repeat(places, rows)
    return places, np.asarray(batch.offsets, np.int64)[places], np.arange(len(places)) - firsts


def kinds_of(scores: Scores, when: Thresholds) -> dict[str, Mask]:
    """For each score, the rows that reach its threshold. For an interval, the lower end must reach it."""
    found: dict[str, Mask] = {}
    for threshold, value in when.described().items():
        kind = KINDS[threshold]
        if kind == "p_value":
            assert scores.p_value is not None
            found[kind] = scores.p_value <= value
        else:
            interval: Intervals = getattr(scores, kind)
            found[kind] = interval.lower >= value
    return found


def only(scores: Scores, rows: Mask) -> Scores:
    """The scores of some rows."""
    return Scores(
        coordinates=scores.coordinates[rows],
        residual=scores.residual[rows],
        residual_share=scores.residual_share[rows],
        residual_over_mean=Intervals(*(each[rows] for each in scores.residual_over_mean)),
        t2=Intervals(*(each[rows] for each in scores.t2)),
    )
