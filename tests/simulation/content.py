"""The records of the input topic, and what is exactly true of every prefix of it."""

from __future__ import annotations

import random
from dataclasses import dataclass
from typing import Any

import numpy as np

from tests.simulation.broker import LogRecord

COLUMNS = 6
BAD = b"\xc1 this is not rows"


@dataclass(frozen=True)
class Counts:
    rows: int = 0
    nnz: int = 0
    bad: int = 0
    tombstones: int = 0

    def plus(self, other: Counts) -> Counts:
        return Counts(
            self.rows + other.rows, self.nnz + other.nnz, self.bad + other.bad, self.tombstones + other.tombstones
        )

    def minus(self, other: Counts) -> Counts:
        return Counts(
            self.rows - other.rows, self.nnz - other.nnz, self.bad - other.bad, self.tombstones - other.tombstones
        )


class Content:
    """Makes records, and remembers what each offset of each partition holds."""

    def __init__(self, seed: int, partitions: int, encode_row: Any, encode_rows: Any, row_block: Any) -> None:
        self.below: list[list[Counts]] = [[Counts()] for _ in range(partitions)]
        """By partition: what the log holds below each offset."""
        self.bad: list[set[int]] = [set() for _ in range(partitions)]
        self._truncated: dict[int, tuple[list[Counts], set[int]]] = {}
        """By partition: `below` and `bad` as they were before its log lost records."""
        self._rng = random.Random(f"content {seed}")
        self._encode_row = encode_row
        self._encode_rows = encode_rows
        self._row_block = row_block

    def add_partition(self) -> None:
        self.below.append([Counts()])
        self.bad.append(set())

    def made(self, kind: str) -> tuple[bytes | None, Counts]:
        if kind == "b":
            return BAD, Counts(bad=1)
        if kind == "t":
            return None, Counts(tombstones=1)
        if kind in "ca":
            return b"", Counts()
        rows = [self._row() for _ in range(1 if kind == "r" else self._rng.randint(2, 4))]
        counts = Counts(rows=len(rows), nnz=sum(len(indices) for indices, _ in rows))
        if kind == "r":
            return self._encode_row(*rows[0]), counts
        pointers = np.cumsum([0] + [len(indices) for indices, _ in rows]).astype(np.int64)
        indices = np.array([i for found, _ in rows for i in found], dtype=np.int32)
        values = np.array([v for _, found in rows for v in found], dtype=np.float64)
        block = self._row_block(pointers, indices, values, COLUMNS)
        (message,) = self._encode_rows(block, rows_per_message=len(rows))
        return message, counts

    def add(self, partition: int, record: LogRecord, counts: Counts) -> None:
        below = self.below[partition]
        assert record.offset == len(below) - 1
        below.append(below[-1].plus(counts))
        if counts.bad:
            self.bad[partition].add(record.offset)

    def truncate(self, partition: int, end: int) -> None:
        self._truncated[partition] = list(self.below[partition]), self.bad[partition]
        del self.below[partition][end + 1 :]
        self.bad[partition] = {offset for offset in self.bad[partition] if offset < end}

    def untruncate(self, partition: int) -> None:
        """As it was before its log lost records."""
        self.below[partition], self.bad[partition] = self._truncated[partition]

    def _row(self) -> tuple[list[int], list[float]]:
        indices = sorted(self._rng.sample(range(COLUMNS), self._rng.randint(1, 4)))
        return indices, [float(self._rng.randint(1, 9)) for _ in indices]
