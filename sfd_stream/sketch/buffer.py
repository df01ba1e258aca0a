"""Rows waiting to be shrunk. Memory is bounded by the capacity; order is preserved; blocks are shared, not copied."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from sfd_stream.sketch.rows import RowBlock


@dataclass(frozen=True, slots=True)
class Capacity:
    """The buffer is full when any of these is reached. That depends on the rows alone, not on batches or time."""

    entries: int | None = None
    """non-zeros + rows"""
    nnz: int | None = None
    rows: int | None = None

    def rows_until_full(self, block: RowBlock, pending_rows: int, pending_nnz: int) -> int | None:
        """How many rows of the block fill a buffer with these contents; None if the whole block does not."""
        number = np.arange(1, block.rows + 1)
        nnz = block.indptr[1:] + pending_nnz
        marks = [
            np.searchsorted(measure, limit, side="left") + 1
            for measure, limit in (
                (nnz + number + pending_rows, self.entries),
                (nnz, self.nnz),
                (number + pending_rows, self.rows),
            )
            if limit is not None
        ]
        first = int(min(marks, default=block.rows + 1))
        return first if first <= block.rows else None


class RowBuffer:
    """The rows since the last shrink, in the blocks in which they arrived. `seal` joins blocks."""

    def __init__(self, blocks: Sequence[RowBlock] = ()) -> None:
        self.blocks: list[RowBlock] = list(blocks)
        self.rows = sum(block.rows for block in self.blocks)
        self.nnz = sum(block.nnz for block in self.blocks)
        self._sealed = len(self.blocks)
        self._squares = 0.0
        self._uncounted = list(self.blocks)

    @property
    def squares(self) -> float:
        """The sum of all squares, up to rounding. It is computed on request: most rows are shrunk before one."""
        self._squares += sum(block.squares for block in self._uncounted)
        self._uncounted.clear()
        return self._squares

    def append(self, block: RowBlock) -> None:
        if block.rows:
            self.blocks.append(block)
            self._uncounted.append(block)
            self.rows += block.rows
            self.nnz += block.nnz

    def seal(self) -> tuple[RowBlock, ...]:
        """All blocks. Joins those since the last seal into one, so that many small blocks do not accumulate."""
        tail = self.blocks[self._sealed :]
        if len(tail) > 1:
            self.blocks[self._sealed :] = [joined(tail, max(block.d for block in tail))]
        self._sealed = len(self.blocks)
        return tuple(self.blocks)

    def joined(self, d: int) -> RowBlock:
        """All rows as one block, in order of arrival. Its bits do not depend on how the rows were split into blocks."""
        return joined(self.blocks, d)


def joined(blocks: Sequence[RowBlock], d: int) -> RowBlock:
    if not blocks:
        return RowBlock(np.zeros(1, np.int64), np.zeros(0, np.int32), np.zeros(0), d)
    if len(blocks) == 1:
        return blocks[0] if blocks[0].d == d else replace(blocks[0], d=d)
    starts = np.cumsum([0, *(block.nnz for block in blocks)])
    pointers = [block.indptr[1:] + start for block, start in zip(blocks, starts, strict=False)]
    return RowBlock(
        np.concatenate([np.zeros(1, np.int64), *pointers]),
        np.concatenate([block.indices for block in blocks]),
        np.concatenate([block.values for block in blocks]),
        d,
    )
