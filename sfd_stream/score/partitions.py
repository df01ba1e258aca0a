"""One input partition of the scorer, from assignment to release.

    CLAIMING ──► READING ──► RELEASED        (RELEASED from everywhere)

RELEASED is final: a partition that is assigned again is a new object, so a late answer cannot change it.
"""

from __future__ import annotations

from collections import deque
from concurrent.futures import Future
from dataclasses import dataclass, field
from enum import Enum
from typing import NamedTuple

from sfd_stream.observe.logs import Log
from sfd_stream.score.scoring import ScoredBatch
from sfd_stream.wire.columns import Columns
from sfd_stream.wire.score_states import ScoreState


class ScorePhase(Enum):
    CLAIMING = "claiming"
    """The start is not known yet, or there is no basis yet."""
    READING = "reading"
    RELEASED = "released"


class PendingBatch(NamedTuple):
    """A batch that is being scored, or waits for its round."""

    rows: int
    scored: Future[ScoredBatch]


@dataclass(eq=False)
class ScoredPartition:
    """The loop's thread owns it. Once the partition is read, `state` belongs to the scoring thread."""

    number: int
    columns: Columns
    """The columns after the last row decoded, with the names of hashed columns learned so far."""
    log: Log
    phase: ScorePhase = ScorePhase.CLAIMING
    state: ScoreState | None = None
    scored: deque[PendingBatch] = field(default_factory=deque)
    """Batches that are in no round yet, in order."""
    delivered_to: int = 0
    """The scores of all records before this offset are delivered."""
    delivered: ScoreState | None = None
    """The state as delivered."""
    has_changed: bool = False
    """Whether its rows have changed since the reference of drift was pinned; logged when it becomes true."""
    has_turned: bool = False
    """Whether their directions have turned since then."""
    schemas_awaited: frozenset[int] = frozenset()

    @property
    def is_released(self) -> bool:
        return self.phase is ScorePhase.RELEASED

    @property
    def is_read(self) -> bool:
        return self.phase is ScorePhase.READING

    @property
    def has_scores(self) -> bool:
        """Whether the first batch that waits for a round is scored."""
        return bool(self.scored) and self.scored[0].scored.done()

    def begin(self, start: int, state: ScoreState) -> None:
        assert self.phase is ScorePhase.CLAIMING
        self.phase, self.state, self.delivered_to = ScorePhase.READING, state, start
        self.delivered = state

    def release(self) -> None:
        self.phase = ScorePhase.RELEASED
        self.scored.clear()
