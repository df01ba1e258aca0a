"""What a scorer knows about one input partition, as bytes of the state topic. See docs/reference/formats.md."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any

from sfd_stream.errors import FormatError
from sfd_stream.sketch.scoring.histogram import ScoreHistogram
from sfd_stream.sketch.scoring.score import Scores
from sfd_stream.wire import score_histograms
from sfd_stream.wire.frames import decode_map, encode_map

KIND = "scorestate"

RECENT_ROWS = 100_000
"""p-values compare a row with the last one to two times this many rows: old rows are forgotten."""


@dataclass(frozen=True)
class ScoreState:
    """A value: `plus` returns a new one."""

    next_offset: int
    """Rows of records before it are counted."""
    basis: str
    """What the rows were compared with; scores of another basis begin a new state."""
    older: ScoreHistogram = field(default_factory=ScoreHistogram)
    newer: ScoreHistogram = field(default_factory=ScoreHistogram)

    @property
    def histogram(self) -> ScoreHistogram:
        """Of the rows that p-values compare with."""
        return self.older.merge(self.newer)

    def of_basis(self, basis: str) -> ScoreState:
        return self if basis == self.basis else ScoreState(self.next_offset, basis)

    def plus(self, scores: Scores, next_offset: int) -> ScoreState:
        """With these rows counted, and all records before `next_offset` passed."""
        older, newer = self.older, self.newer.plus(scores)
        if newer.rows >= RECENT_ROWS:
            older, newer = newer, ScoreHistogram()
        return replace(self, next_offset=next_offset, older=older, newer=newer)

    def passed(self, next_offset: int) -> ScoreState:
        """Records before `next_offset` are passed without counting their rows."""
        return replace(self, next_offset=max(next_offset, self.next_offset))


def key_of(group: str, topic: str, partition: int) -> bytes:
    return f"{group}/{topic}/{partition}".encode()


def partition_of(key: bytes | None, group: str, topic: str) -> int | None:
    """The input partition whose state has this key; None if it is not one of this group and topic."""
    before, _, number = (key or b"").decode("utf-8", "replace").rpartition("/")
    return int(number) if before == f"{group}/{topic}" and number.isascii() and number.isdigit() else None


def encode(state: ScoreState) -> bytes:
    histograms = {name: score_histograms.encode(getattr(state, name)) for name in ("older", "newer")}
    return encode_map(KIND, {"next_offset": state.next_offset, "basis": state.basis, **histograms})


def decode(data: bytes) -> ScoreState:
    """Raises FormatError, or one of its kinds, and nothing else."""
    found = decode_map(data, kind=KIND)
    next_offset, basis = found.get("next_offset"), found.get("basis")
    if type(next_offset) is not int or next_offset < 0 or not isinstance(basis, str):
        raise FormatError(f"a score state has next_offset = {next_offset!r:.60} and basis = {basis!r:.60}")
    return ScoreState(next_offset, basis, _histogram(found, "older"), _histogram(found, "newer"))


def _histogram(found: dict[str, Any], name: str) -> ScoreHistogram:
    data = found.get(name)
    if not isinstance(data, bytes):
        raise FormatError(f"a score state has no histogram {name!r}")
    return score_histograms.decode(data)
