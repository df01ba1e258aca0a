"""Means over blocks of a stream's values: a baseline that stays, and the newest blocks, to be compared with it.

A value of bounded size for an endless stream. `significance` (sketch/drift.py) is the test; docs/guarantees.md
("Drift") has what it promises.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from sfd_stream.sketch.drift import Significance, significance
from sfd_stream.sketch.rows import Float

BASELINE_BLOCKS = 40
RECENT_BLOCKS = 256
"""A power of two: the longest window."""


@dataclass(frozen=True)
class BlockMeans:
    """`plus` returns a new one."""

    block_rows: int
    baseline: tuple[float, ...] = ()
    """Means of the first blocks, BASELINE_BLOCKS at most."""
    recent: tuple[float, ...] = ()
    """Means of the last blocks after the baseline, RECENT_BLOCKS at most."""
    looks: int = 0
    """The number of blocks after the baseline."""
    rows: int = 0
    """The number of values in the block that is not full yet."""
    total: float = 0.0
    """The sum of those values."""

    @property
    def blocks(self) -> int:
        """The number of full blocks."""
        return len(self.baseline) + self.looks

    @property
    def baseline_mean(self) -> float:
        return sum(self.baseline) / len(self.baseline)

    def plus(self, values: Float) -> BlockMeans:
        """With these values counted, in their order."""
        means, rows, total = [], self.rows, self.total
        while rows + len(values) >= self.block_rows:
            missing = self.block_rows - rows
            means.append((total + float(np.sum(values[:missing]))) / self.block_rows)
            rows, total, values = 0, 0.0, values[missing:]
        room = BASELINE_BLOCKS - len(self.baseline)
        later = tuple(means[room:])
        return replace(
            self,
            baseline=self.baseline + tuple(means[:room]),
            recent=(self.recent + later)[-RECENT_BLOCKS:],
            looks=self.looks + len(later),
            rows=rows + len(values),
            total=total + float(np.sum(values)),
        )

    def significance(self, alpha: float) -> Significance | None:
        """Whether the newest blocks differ from the baseline; None before the first of them."""
        if not self.recent:
            return None
        return significance(self.baseline, self.recent, alpha, looks=self.looks)
