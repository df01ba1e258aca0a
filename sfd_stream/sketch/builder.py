"""Algorithm 1 of the paper as a state that takes rows in, gives a `Sketch` at any time, and can be stopped and resumed.

Nothing here depends on time, on how rows were cut into blocks, or on how often a sketch was asked for.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cache
from itertools import count
from typing import Any

import numpy as np

from sfd_stream.sketch.buffer import Capacity, RowBuffer
from sfd_stream.sketch.csr import Csr
from sfd_stream.sketch.rows import Float, RowBlock
from sfd_stream.sketch.shrink import (
    Chance,
    Shrink,
    Shrunk,
    full_dense_shrink,
    fused_shrink,
    paper_shrink,
    unverified_shrink,
)
from sfd_stream.sketch.sketch import SQUARES_MAX, Sketch
from sfd_stream.sketch.verify import failure_share, query_share

SHRINKS: dict[str, Shrink] = {
    "fused": fused_shrink,
    "paper": paper_shrink,
    "sparse-shrink": unverified_shrink,
    "dense": full_dense_shrink,
}

BUFFER_FACTOR = 4.0
BUFFER_ENTRIES_MIN = 1 << 19
"""Small sketches buffer some 6 MB all the same: fewer shrinks cost less and lose less."""

BUFFER_ENTRIES_LIMIT = 1 << 30
"""Whatever is asked for: the row pointers of a buffer, with one more row, must fit into 32 bits."""

LOOK_TIGHT, LOOK_SLACK = 1.5, 0.1
"""A look's certificate is not kept: it may be looser, above all against the delta of all shrinks before it."""

SEARCH, PROBE, QUERY_SEARCH, QUERY_PROBE = range(4)
"""The streams of randomness of one shrink, each its own."""


@dataclass(frozen=True, slots=True)
class Parameters:
    """What determines a sketch, beside the rows."""

    d: int
    ell: int = 50
    method: str = "fused"
    failure_probability: float = 0.01
    seed: int | tuple[int, ...] = 0
    buffer_factor: float = BUFFER_FACTOR
    buffer_entries_max: int | None = None
    half_life_rows: float | None = None

    def capacity(self, kept: int) -> Capacity:
        """When the buffer is full; `kept` is the number of rows that the sketch has now."""
        if self.method == "dense":
            return Capacity(rows=max(2 * self.ell - kept, 1))
        if self.method == "fused":
            entries = max(int(self.buffer_factor * self.ell * self.d), BUFFER_ENTRIES_MIN)
            return Capacity(entries=min(entries, self._entries_max()))
        return Capacity(nnz=self.ell * self.d, rows=self.d, entries=self._entries_max())

    def at_stake(self) -> float:
        """The failure probability of all certificates of a stream under these parameters."""
        return self.failure_probability if self.method in ("fused", "paper") else 0.0

    def _entries_max(self) -> int:
        return min(self.buffer_entries_max or BUFFER_ENTRIES_LIMIT, BUFFER_ENTRIES_LIMIT)


@dataclass(frozen=True, slots=True)
class Totals:
    """What is known of all rows that were shrunk, with the weights that a half-life gave them."""

    rows: int
    nnz: int
    weight: float
    squared_frobenius: float
    column_sums: Float
    delta: float
    rounding: float

    @classmethod
    def none(cls, d: int) -> Totals:
        return cls(0, 0, 0.0, 0.0, np.zeros(d), 0.0, 0.0)

    def decayed(self, quarter: float) -> Totals:
        """The counters with all rows weighed down by quarter^4."""
        sums = ("weight", "squared_frobenius", "column_sums", "delta", "rounding")
        return replace(self, **{name: getattr(self, name) * quarter * quarter * quarter * quarter for name in sums})

    def plus_rows(self, block: RowBlock, quarters: Float | None) -> Totals:
        """The counters after a whole buffer. Sums run over the joined buffer, so batches leave no trace in them.

        The rows weigh quarters^4 (None: 1 each); `block` already carries the square roots of that.
        """
        values = block.values if quarters is None else _half_weighted(block, quarters)
        sums = np.zeros((block.d, 1))
        Csr.of(replace(block, values=values)).add_transpose_times(np.ones((block.rows, 1)), sums)
        return replace(
            self,
            rows=self.rows + block.rows,
            nnz=self.nnz + block.nnz,
            weight=self.weight + (block.rows if quarters is None else float(np.sum(quarters**4))),
            squared_frobenius=self.squared_frobenius + block.squares,
            column_sums=self.column_sums + sums[:, 0],
        )


def _half_weighted(block: RowBlock, quarters: Float) -> Float:
    """The values, each multiplied by the square of its row's number."""
    of_entries = np.repeat(quarters, np.diff(block.indptr))
    return block.values * of_entries * of_entries


@cache
def keep_freed_memory() -> None:
    """A shrink frees some megabytes that the next one needs again. glibc gives them back to the kernel in between, and
    getting every page again costs up to a fifth of the time.

    It learns from the largest block freed how much may stay (mallopt(3), M_MMAP_THRESHOLD: twice its size, and no more
    than 64 MB). This one is never touched, so it costs nothing; with another allocator nothing happens.
    """
    np.empty(31 << 20, np.uint8)


class SketchBuilder:
    """SparseFrequentDirections: rows go into a buffer; a full buffer is shrunk into the sketch."""

    def __init__(self, parameters: Parameters) -> None:
        keep_freed_memory()
        self.parameters = parameters
        self.buffer = RowBuffer()
        self.B: Float = np.zeros((0, parameters.d))
        self.totals = Totals.none(parameters.d)
        self.shrinks = 0
        self.verifications = 0
        self.retries = 0
        self.spent = 0.0
        """Failure probability of certificates under earlier settings."""

    @property
    def d(self) -> int:
        return self.parameters.d

    @property
    def rows(self) -> int:
        return self.totals.rows + self.buffer.rows

    @property
    def nnz(self) -> int:
        return self.totals.nnz + self.buffer.nnz

    @property
    def failure_probability(self) -> float:
        """Of all certificates so far and to come under these parameters."""
        return min(self.spent + self.parameters.at_stake(), 1.0)

    def absorb(self, block: RowBlock, *, lent: bool = False) -> int:
        """Take rows in; returns how many shrinks they caused. Rows too large for float64 are refused as a whole.

        Of arrays that are `lent` what stays in the buffer is copied.
        """
        assert block.d == self.d, "columns were checked where rows came in"
        self._refuse_overflow(block)
        before = self.shrinks
        while True:
            capacity = self.parameters.capacity(len(self.B))
            full = capacity.rows_until_full(block, self.buffer.rows, self.buffer.nnz)
            if full is None:
                self.buffer.append(block.copy() if lent else block)
                return self.shrinks - before
            self.buffer.append(block.take(0, full))
            self._shrink()
            block = block.take(full, block.rows)

    def _refuse_overflow(self, block: RowBlock) -> None:
        """Before anything is changed: a buffer that can't be shrunk would be of no use any more."""
        if not self.totals.squared_frobenius + self.buffer.squares + block.squares <= SQUARES_MAX:
            raise OverflowError(f"the squared Frobenius norm of all rows would exceed {SQUARES_MAX:.2g}")

    def _shrink(self) -> None:
        shrunk, self.totals = self._shrunk_buffer(self._chance())
        self.B = shrunk.B
        self.shrinks += 1
        self.verifications += shrunk.attempts
        self.retries += max(shrunk.attempts - 1, 0)
        self.buffer.clear()

    def _shrunk_buffer(self, chance: Chance) -> tuple[Shrunk, Totals]:
        """What the state becomes when the buffer is shrunk into the sketch now."""
        block, B, totals = self._weighted()
        shrunk = SHRINKS[self.parameters.method](B, block, self.parameters.ell, chance)
        return shrunk, replace(totals, delta=totals.delta + shrunk.bound, rounding=totals.rounding + shrunk.rounding)

    def _weighted(self) -> tuple[RowBlock, Float, Totals]:
        """Buffer, sketch and counters as of the newest row: a row that is h rows old weighs 2^(-h/half-life)."""
        block = self.buffer.joined(self.d)
        half_life = self.parameters.half_life_rows
        if half_life is None:
            return block, self.B, self.totals.plus_rows(block, None)
        # Fourth roots of the weights: a weight itself may underflow where a large value that it weighs does not.
        quarters = np.exp2(-np.arange(block.rows - 1, -1, -1.0) / (4 * half_life))
        weighted = replace(block, values=_half_weighted(block, quarters))
        quarter = float(np.exp2(-block.rows / (4 * half_life)))
        B = self.B * quarter * quarter
        # Rows that have underflowed to zero are no directions.
        return weighted, B[B.any(axis=1)], self.totals.decayed(quarter).plus_rows(weighted, quarters)

    def sketch(self) -> Sketch:
        """The sketch of all rows so far, pending ones included. Asking changes nothing."""
        if not self.buffer.rows:
            return self._as_sketch(self.B, self.totals)
        shrunk, totals = self._shrunk_buffer(self._query_chance())
        return self._as_sketch(shrunk.B, totals)

    def _as_sketch(self, B: Float, totals: Totals) -> Sketch:
        return Sketch(
            matrix=B,
            ell=self.parameters.ell,
            delta=totals.delta,
            rounding=totals.rounding,
            failure_probability=self.failure_probability,
            rows=totals.rows,
            nnz=totals.nnz,
            weight=totals.weight,
            squared_frobenius=totals.squared_frobenius,
            column_sums=totals.column_sums,
            shrinks=self.shrinks,
        )

    def _chance(self) -> Chance:
        failure = self.parameters.failure_probability
        shares = (failure_share(i, failure) for i in count(self.verifications + 1))
        return Chance(self._rng(SEARCH), self._rng(PROBE), shares)

    def _query_chance(self) -> Chance:
        failure, rows = self.parameters.failure_probability, self.rows
        shares = (query_share(rows, attempt, failure) for attempt in count(1))
        search, probe = self._rng(QUERY_SEARCH, rows), self._rng(QUERY_PROBE, rows)
        return Chance(search, probe, shares, tight=LOOK_TIGHT, slack=LOOK_SLACK * self.totals.delta)

    def _rng(self, *stream: int) -> np.random.Generator:
        seed = self.parameters.seed
        return np.random.default_rng([*(seed if isinstance(seed, tuple) else (seed,)), self.shrinks, *stream])

    def grow(self, d: int) -> None:
        """More columns from here on: zero in all rows so far. The bound does not change."""
        assert d >= self.d, "columns are never taken away"
        if d == self.d:
            return
        extra = d - self.d
        self.parameters = replace(self.parameters, d=d)
        self.B = np.pad(self.B, ((0, 0), (0, extra)))
        self.totals = replace(self.totals, column_sums=np.pad(self.totals.column_sums, (0, extra)))

    def change(self, parameters: Parameters) -> None:
        """Other parameters from here on, for rows and looks to come.

        What was certified under the old ones stays at stake beside what the new ones will certify.
        """
        if parameters == self.parameters:
            return
        if self.rows:
            self.spent += self.parameters.at_stake()
        self.resize(parameters.ell)
        self.grow(parameters.d)
        self.parameters = parameters

    def resize(self, ell: int) -> None:
        """Another ell from here on; a smaller one costs the square of the first singular value that goes."""
        if ell == self.parameters.ell:
            return
        shrunk = self._as_sketch(self.B, self.totals).resized(ell)
        self.B = shrunk.matrix
        self.totals = replace(self.totals, delta=shrunk.delta, rounding=shrunk.rounding)
        self.parameters = replace(self.parameters, ell=ell)

    def state(self) -> tuple[dict[str, Any], dict[str, np.ndarray[Any, Any]], tuple[RowBlock, ...]]:
        """Everything that must be kept to go on bit for bit: numbers, arrays, and the pending rows."""
        totals = self.totals
        numbers = {
            "rows": totals.rows,
            "nnz": totals.nnz,
            "weight": totals.weight,
            "squared_frobenius": totals.squared_frobenius,
            "delta": totals.delta,
            "rounding": totals.rounding,
            "shrinks": self.shrinks,
            "verifications": self.verifications,
            "retries": self.retries,
        }
        if self.spent:
            numbers["spent"] = self.spent
        return numbers, {"B": self.B, "column_sums": totals.column_sums}, self.buffer.seal()

    @classmethod
    def resume(
        cls,
        parameters: Parameters,
        numbers: Mapping[str, Any],
        arrays: Mapping[str, np.ndarray[Any, Any]],
        pending: tuple[RowBlock, ...],
    ) -> SketchBuilder:
        """A builder that goes on where `state` was taken, bit for bit on the same machine and BLAS threads."""
        builder = cls(parameters)
        names = ("rows", "nnz", "weight", "squared_frobenius", "delta", "rounding")
        column_sums = np.array(arrays["column_sums"], np.float64, order="C")
        builder.totals = Totals(**{name: numbers[name] for name in names}, column_sums=column_sums)
        builder.B = np.array(arrays["B"], np.float64, order="C")
        builder.shrinks = numbers["shrinks"]
        builder.verifications = numbers["verifications"]
        builder.retries = numbers["retries"]
        builder.spent = numbers.get("spent", 0.0)
        builder.buffer = RowBuffer(pending)
        return builder
