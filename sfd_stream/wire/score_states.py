"""The scorer's state of one input partition, as bytes of the state topic. See docs/reference/formats.md."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field, replace
from typing import Any

import numpy as np

from sfd_stream.errors import FormatError
from sfd_stream.sketch.rows import Float
from sfd_stream.sketch.scoring.block_angles import FOLDED, LEADING, BlockAngles, FoldedRows
from sfd_stream.sketch.scoring.block_means import BASELINE_BLOCKS, RECENT_BLOCKS, BlockMeans
from sfd_stream.sketch.scoring.histogram import ScoreHistogram
from sfd_stream.sketch.scoring.score import Scores
from sfd_stream.wire import score_histograms
from sfd_stream.wire.frames import decode_map, encode_map

KIND = "scorestate"

RECENT_ROWS = 100_000
"""p-values compare a row with the last rows: between this number and twice this number. Older rows are dropped."""


@dataclass(frozen=True)
class ScoreState:
    """An immutable value: `plus` returns a new one."""

    next_offset: int
    """Rows of records before this offset are counted."""
    basis: str
    """The basis of the scores; scores of another basis begin a new state."""
    older: ScoreHistogram = field(default_factory=ScoreHistogram)
    newer: ScoreHistogram = field(default_factory=ScoreHistogram)
    reference: str = ""
    """The reference with which the rows of `shares` and `angles` were compared."""
    shares: BlockMeans | None = None
    """Means of the share of rows outside the reference of drift."""
    angles: BlockAngles | None = None
    """Angles between the reference's directions and those that rows follow. None in states of earlier versions."""

    @property
    def histogram(self) -> ScoreHistogram:
        """The rows with which p-values compare."""
        return self.older.merge(self.newer)

    def of_basis(self, basis: str) -> ScoreState:
        if basis == self.basis:
            return self
        return replace(self, basis=basis, older=ScoreHistogram(), newer=ScoreHistogram())

    def compared(self, reference: str, block_rows: int, shares: Float, rows: FoldedRows) -> ScoreState:
        """Counts these rows and their shares outside the reference. Another reference or another block length begins
        new blocks.
        """
        counted, angles = self.shares, self.angles
        if counted is None or (self.reference, counted.block_rows) != (reference, block_rows):
            counted, angles = BlockMeans(block_rows), None
        if angles is None or angles.k != rows.k:
            angles = BlockAngles.of(block_rows, rows.k)
        return replace(self, reference=reference, shares=counted.plus(shares), angles=angles.plus(rows))

    def plus(self, scores: Scores, next_offset: int) -> ScoreState:
        """Counts these rows, and passes all records before `next_offset`."""
        older, newer = self.older, self.newer.plus(scores)
        if newer.rows >= RECENT_ROWS:
            older, newer = newer, ScoreHistogram()
        return replace(self, next_offset=next_offset, older=older, newer=newer)

    def passed(self, next_offset: int) -> ScoreState:
        """Passes the records before `next_offset` without counting their rows."""
        return replace(self, next_offset=max(next_offset, self.next_offset))


def key_of(group: str, topic: str, partition: int) -> bytes:
    return f"{group}/{topic}/{partition}".encode()


def partition_of(key: bytes | None, group: str, topic: str) -> int | None:
    """The input partition whose state has this key; None if it is not one of this group and topic."""
    before, _, number = (key or b"").decode("utf-8", "replace").rpartition("/")
    return int(number) if before == f"{group}/{topic}" and number.isascii() and number.isdigit() else None


def encode(state: ScoreState) -> bytes:
    histograms = {name: score_histograms.encode(getattr(state, name)) for name in ("older", "newer")}
    drift: dict[str, Any] = {}
    if state.shares is not None:
        drift["drift"] = {"reference": state.reference, **asdict(state.shares)}
    if state.angles is not None:
        drift["angles"] = _encoded(state.angles)
    return encode_map(KIND, {"next_offset": state.next_offset, "basis": state.basis, **histograms, **drift})


def _encoded(angles: BlockAngles) -> dict[str, Any]:
    roots = angles.roots
    return {
        "block_rows": angles.block_rows,
        "baseline": roots.baseline,
        "recent": roots.recent,
        "looks": roots.looks,
        "rows": angles.rows,
        "k": angles.k,
        "products": angles.products.astype("<f8").tobytes(),
    }


def decode(data: bytes) -> ScoreState:
    """Raises FormatError, or one of its subclasses, and nothing else."""
    found = decode_map(data, kind=KIND)
    next_offset, basis = found.get("next_offset"), found.get("basis")
    if type(next_offset) is not int or next_offset < 0 or not isinstance(basis, str):
        raise FormatError(f"a score state has next_offset = {next_offset!r:.60} and basis = {basis!r:.60}")
    histograms = _histogram(found, "older"), _histogram(found, "newer")
    reference, shares = _drift(found.get("drift"))
    return ScoreState(next_offset, basis, *histograms, reference, shares, _angles(found.get("angles"), shares))


def _histogram(found: dict[str, Any], name: str) -> ScoreHistogram:
    data = found.get(name)
    if not isinstance(data, bytes):
        raise FormatError(f"a score state has no histogram {name!r}")
    return score_histograms.decode(data)


def _drift(found: Any) -> tuple[str, BlockMeans | None]:
    if found is None:
        return "", None
    try:
        reference, block_rows, looks, rows, total = (found[name] for name in _DRIFT)
        baseline, recent = (tuple(found[name]) for name in ("baseline", "recent"))
    except (TypeError, KeyError, IndexError):
        raise FormatError("a score state has drift without all of its fields") from None
    means = BlockMeans(block_rows, baseline, recent, looks, rows, total)
    if not (isinstance(reference, str) and _fit(means, block_rows, rows)):
        raise FormatError("a score state has drift whose blocks do not fit together")
    return reference, means


def _angles(found: Any, shares: BlockMeans | None) -> BlockAngles | None:
    if found is None:
        return None
    try:
        block_rows, looks, rows, k, data = (found[name] for name in _ANGLES)
        baseline, recent = (tuple(found[name]) for name in ("baseline", "recent"))
    except (TypeError, KeyError, IndexError):
        raise FormatError("a score state has angles without all of their fields") from None
    roots = BlockMeans(1, baseline, recent, looks)
    sound = (
        _fit(roots, block_rows, rows)
        and shares is not None
        and shares.block_rows == block_rows
        and type(k) is int
        and 1 <= k <= LEADING
        and isinstance(data, bytes)
        and len(data) == 8 * (FOLDED + k) * k
        and bool(np.isfinite(products := np.frombuffer(data, "<f8")).all())
    )
    if not sound:
        raise FormatError("a score state has angles whose blocks do not fit together")
    return BlockAngles(block_rows, products.astype(np.float64).reshape(FOLDED + k, k), rows, roots)


def _fit(means: BlockMeans, block_rows: Any, rows: Any) -> bool:
    """Whether the blocks fit together, with this number of rows in the last one, which is not full."""
    return (
        all(type(number) is int for number in (block_rows, means.looks, rows))
        and all(type(mean) is float for mean in (*means.baseline, *means.recent, means.total))
        and 0 <= rows < block_rows
        and len(means.baseline) <= BASELINE_BLOCKS
        and len(means.recent) == min(means.looks, RECENT_BLOCKS)
        and (means.looks == 0 or len(means.baseline) == BASELINE_BLOCKS)
    )


_DRIFT = ("reference", "block_rows", "looks", "rows", "total")
_ANGLES = ("block_rows", "looks", "rows", "k", "products")
