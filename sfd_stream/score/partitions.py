"""One input partition of the scorer, from assignment to release.

    CLAIMING ──► READING ──► RELEASED        (RELEASED from everywhere)

RELEASED is final: a partition that comes back is a new object, so that a late answer reaches nobody.
"""

from __future__ import annotations

from collections import deque
from concurrent.futures import Future
from dataclasses import dataclass, field
from enum import Enum
from typing import NamedTuple

from sfd_stream.observe.logs import Log
from sfd_stream.score.scoring import ScoredBatch
from sfd_stream.sketch.scoring.block_means import BlockMeans
from sfd_stream.wire.columns import Columns
from sfd_stream.wire.score_states import ScoreState


class ScorePhase(Enum):
    CLAIMING = "claiming"
    """Until it is known where to begin, and there is a basis."""
    READING = "reading"
    RELEASED = "released"


class PendingBatch(NamedTuple):
    """A batch that is being scored, or waits for its round."""

    rows: int
    scored: Future[ScoredBatch]


@dataclass(eq=False)
class ScoredPartition:
    """The loop's thread owns it; `state` is the scoring thread's once the partition is read."""

    number: int
    columns: Columns
    """As of the last row decoded: with the names of hashed columns learned so far."""
    log: Log
    phase: ScorePhase = ScorePhase.CLAIMING
    state: ScoreState | None = None
    scored: deque[PendingBatch] = field(default_factory=deque)
    """Batches that no round has taken yet, in order."""
    delivered_to: int = 0
    """Scores of all records before it are delivered."""
    shares: BlockMeans | None = None
    """As delivered: means of the share of rows outside the reference of drift."""
    has_changed: bool = False
    """Whether these means differ from their baseline; logged when it becomes true."""
    schemas_awaited: frozenset[int] = frozenset()

    @property
    def is_released(self) -> bool:
        return self.phase is ScorePhase.RELEASED

    @property
    def is_read(self) -> bool:
        return self.phase is ScorePhase.READING

    def begin(self, start: int, state: ScoreState) -> None:
        assert self.phase is ScorePhase.CLAIMING
        self.phase, self.state, self.delivered_to = ScorePhase.READING, state, start
        self.shares = state.shares

    def release(self) -> None:
        self.phase = ScorePhase.RELEASED
        self.scored.clear()
