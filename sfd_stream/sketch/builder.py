"""Algorithm 1 of the paper as a state: it absorbs rows, returns a `Sketch` at any time, and can be saved and resumed.

The result does not depend on time, on how rows were split into blocks, or on how often a sketch was requested.
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
from sfd_stream.sketch.sketch import SQUARES_MAX, Sketch, widened
from sfd_stream.sketch.verify import failure_share, query_share

SHRINKS: dict[str, Shrink] = {
    "fused": fused_shrink,
    "paper": paper_shrink,
    "sparse-shrink": unverified_shrink,
    "dense": full_dense_shrink,
}

BUFFER_FACTOR = 4.0
BUFFER_ENTRIES_MIN = 1 << 19
"""Small sketches, too, buffer up to about 6 MB: fewer shrinks take less time and lose less."""

BUFFER_ENTRIES_LIMIT = 1 << 30
"""Upper limit of any capacity: the row pointers of a buffer, with one more row, must fit into 32 bits."""

QUERY_TIGHT, QUERY_SLACK = 1.5, 0.1
"""The certificate of a requested sketch may be looser, because it is not part of the state: by this factor of its own
bound, and by this share of the delta of all shrinks before it."""

_NUMBERS = ("rows", "nnz", "weight", "squared_frobenius", "delta", "rounding")
_SUMS = ("column_sums", "column_squares")
_COUNTS = ("shrinks", "verifications", "retries")
"""The names of what a saved state has: of `Totals`, numbers and sums by column, and of the builder itself."""

SEARCH, PROBE, QUERY_SEARCH, QUERY_PROBE = range(4)
"""The independent random streams of one shrink."""


@dataclass(frozen=True, slots=True)
class Parameters:
    """The parameters of a sketch. Together with the rows they determine it."""

    d: int
    ell: int = 50
    method: str = "fused"
    failure_probability: float = 0.01
    seed: int | tuple[int, ...] = 0
    buffer_factor: float = BUFFER_FACTOR
    buffer_entries_max: int | None = None
    half_life_rows: float | None = None
    column_squares: bool = False
    """Whether to sum up the squares of each column, too."""

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


@dataclass(frozen=True, slots=True, kw_only=True)
class Totals:
    """Counters of all rows shrunk so far, with the weights of a half-life. Pickles depend on the order of fields."""

    rows: int = 0
    nnz: int = 0
    weight: float = 0.0
    squared_frobenius: float = 0.0
    column_sums: Float
    delta: float = 0.0
    rounding: float = 0.0
    column_squares: Float | None = None
    """None if they were not asked for before the first of these rows was shrunk."""

    def with_squares(self, wanted: bool) -> Totals:
        """With the sums of squares if they are wanted. Those of rows that were shrunk without them are unknown."""
        if not wanted:
            return self if self.column_squares is None else replace(self, column_squares=None)
        if self.column_squares is None and self.rows == 0:
            return replace(self, column_squares=np.zeros_like(self.column_sums))
        return self

    def decayed(self, quarter: float) -> Totals:
        """The counters with all rows weighed down by quarter^4."""
        sums = ["weight", "squared_frobenius", "column_sums", "delta", "rounding"]
        sums += ["column_squares"] * (self.column_squares is not None)
        return replace(self, **{name: getattr(self, name) * quarter * quarter * quarter * quarter for name in sums})

    def plus_rows(self, block: RowBlock, quarters: Float | None) -> Totals:
        """The counters after a whole buffer. Sums run over the joined buffer, so they do not depend on batches.

        The rows weigh quarters^4 (None: 1 each); `block` already carries the square roots of that.
        """
        values = block.values if quarters is None else _half_weighted(block, quarters)
        squares = None if self.column_squares is None else self.column_squares + _by_column(block, block.values**2)
        return replace(
            self,
            rows=self.rows + block.rows,
            nnz=self.nnz + block.nnz,
            weight=self.weight + (block.rows if quarters is None else float(np.sum(quarters**4))),
            squared_frobenius=self.squared_frobenius + float(block.group_squares.sum()),
            column_sums=self.column_sums + _by_column(block, values),
            column_squares=squares,
        )


def _by_column(block: RowBlock, values: Float) -> Float:
    """Sums over the rows of the block with these values."""
    sums = np.zeros((block.d, 1))
    Csr.of(replace(block, values=values)).add_transpose_times(np.ones((block.rows, 1)), sums)
    return sums[:, 0]


def _half_weighted(block: RowBlock, quarters: Float) -> Float:
    """The values, each multiplied by the square of its row's number."""
    of_entries = np.repeat(quarters, np.diff(block.indptr))
    return block.values * of_entries * of_entries


@cache
def keep_freed_memory() -> None:
    """Makes glibc keep freed memory. A shrink frees some megabytes that the next one needs again. By default glibc
    returns them to the kernel, and getting every page again takes up to a fifth of the time.

    glibc keeps twice the size of the largest block freed so far, and at most 64 MB (mallopt(3), M_MMAP_THRESHOLD). The
    block freed here is never written to, so it costs nothing. With another allocator this has no effect.
    """
    np.empty(31 << 20, np.uint8)


class SketchBuilder:
    """SparseFrequentDirections: rows go into a buffer; a full buffer is shrunk into the sketch."""

    def __init__(self, parameters: Parameters) -> None:
        keep_freed_memory()
        self.parameters = parameters
        self.buffer = RowBuffer()
        self.B: Float = np.zeros((0, parameters.d))
        self.totals = Totals(column_sums=np.zeros(parameters.d)).with_squares(parameters.column_squares)
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
        """The failure probability of all certificates so far and of all future ones with these parameters."""
        return min(self.spent + self.parameters.at_stake(), 1.0)

    def absorb(self, block: RowBlock, *, lent: bool = False) -> int:
        """Adds rows and returns how many shrinks they caused. Rows too large for float64 are refused as a whole.

        With `lent`, rows that stay in the buffer are copied, because the caller will reuse the arrays.
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
        """Raises OverflowError before anything changes: a buffer that can't be shrunk would make the state useless."""
        if not self.totals.squared_frobenius + self.buffer.squares + block.squares <= SQUARES_MAX:
            raise OverflowError(f"the squared Frobenius norm of all rows would exceed {SQUARES_MAX:.2g}")

    def _shrink(self) -> None:
        shrunk, self.totals = self._shrunk_buffer(self._chance())
        self.B = shrunk.B
        self.shrinks += 1
        self.verifications += shrunk.attempts
        self.retries += max(shrunk.attempts - 1, 0)
        self.buffer = RowBuffer()

    def _shrunk_buffer(self, chance: Chance) -> tuple[Shrunk, Totals]:
        """The state after shrinking the buffer into the sketch now."""
        block, B, totals = self._weighted()
        shrunk = SHRINKS[self.parameters.method](B, block, self.parameters.ell, chance)
        return shrunk, replace(totals, delta=totals.delta + shrunk.bound, rounding=totals.rounding + shrunk.rounding)

    def _weighted(self) -> tuple[RowBlock, Float, Totals]:
        """Buffer, sketch and counters as of the newest row: a row that is h rows old weighs 2^(-h/half-life)."""
        block = self.buffer.joined(self.d)
        half_life = self.parameters.half_life_rows
        if half_life is None:
            return block, self.B, self.totals.plus_rows(block, None)
        # Fourth roots of the weights: a weight may underflow where its product with a large value does not.
        quarters = np.exp2(-np.arange(block.rows - 1, -1, -1.0) / (4 * half_life))
        weighted = replace(block, values=_half_weighted(block, quarters))
        quarter = float(np.exp2(-block.rows / (4 * half_life)))
        B = self.B * quarter * quarter
        # Rows that underflowed to zero have no direction.
        return weighted, B[B.any(axis=1)], self.totals.decayed(quarter).plus_rows(weighted, quarters)

    def sketch(self) -> Sketch:
        """The sketch of all rows so far, including those in the buffer. The state does not change."""
        if not self.buffer.rows:
            return self._as_sketch(self.B, self.totals)
        shrunk, totals = self._shrunk_buffer(self._query_chance())
        return self._as_sketch(shrunk.B, totals)

    def _as_sketch(self, B: Float, totals: Totals) -> Sketch:
        return Sketch(
            matrix=B,
            ell=self.parameters.ell,
            failure_probability=self.failure_probability,
            shrinks=self.shrinks,
            **{name: getattr(totals, name) for name in (*_NUMBERS, *_SUMS)},
        )

    def _chance(self) -> Chance:
        failure = self.parameters.failure_probability
        shares = (failure_share(i, failure) for i in count(self.verifications + 1))
        return Chance(self._rng(SEARCH), self._rng(PROBE), shares)

    def _query_chance(self) -> Chance:
        failure, rows = self.parameters.failure_probability, self.rows
        shares = (query_share(rows, attempt, failure) for attempt in count(1))
        search, probe = self._rng(QUERY_SEARCH, rows), self._rng(QUERY_PROBE, rows)
        return Chance(search, probe, shares, tight=QUERY_TIGHT, slack=QUERY_SLACK * self.totals.delta)

    def _rng(self, *stream: int) -> np.random.Generator:
        seed = self.parameters.seed
        return np.random.default_rng([*(seed if isinstance(seed, tuple) else (seed,)), self.shrinks, *stream])

    def grow(self, d: int) -> None:
        """Adds columns, which are zero in all rows so far. The bound does not change."""
        assert d >= self.d, "columns are never taken away"
        if d == self.d:
            return
        self.parameters = replace(self.parameters, d=d)
        self.B = widened(self.B, d)
        self.totals = replace(self.totals, **{name: widened(getattr(self.totals, name), d) for name in _SUMS})

    def change(self, parameters: Parameters) -> None:
        """Changes the parameters for future rows and sketches.

        The failure probability of the certificates so far is added to that of the new parameters.
        """
        self.totals = self.totals.with_squares(parameters.column_squares)
        self.parameters = replace(self.parameters, column_squares=parameters.column_squares)
        if parameters == self.parameters:
            return
        if self.rows:
            self.spent += self.parameters.at_stake()
        self.resize(parameters.ell)
        self.grow(parameters.d)
        self.parameters = parameters

    def resize(self, ell: int) -> None:
        """Changes ell. A smaller one adds the square of the largest dropped singular value to delta."""
        if ell == self.parameters.ell:
            return
        shrunk = self._as_sketch(self.B, self.totals).resized(ell)
        self.B = shrunk.matrix
        self.totals = replace(self.totals, delta=shrunk.delta, rounding=shrunk.rounding)
        self.parameters = replace(self.parameters, ell=ell)

    def state(self) -> tuple[dict[str, Any], dict[str, np.ndarray[Any, Any]], tuple[RowBlock, ...]]:
        """Everything needed to resume bit for bit: numbers, arrays, and the rows in the buffer."""
        numbers = {name: getattr(self.totals, name) for name in _NUMBERS}
        numbers |= {name: getattr(self, name) for name in _COUNTS}
        if self.spent:
            numbers["spent"] = self.spent
        sums = {name: getattr(self.totals, name) for name in _SUMS}
        arrays = {"B": self.B} | {name: array for name, array in sums.items() if array is not None}
        return numbers, arrays, self.buffer.seal()

    @classmethod
    def resume(
        cls,
        parameters: Parameters,
        numbers: Mapping[str, Any],
        arrays: Mapping[str, np.ndarray[Any, Any]],
        pending: tuple[RowBlock, ...],
    ) -> SketchBuilder:
        """A builder that continues from `state`, bit for bit on the same machine and number of BLAS threads."""
        builder = cls(parameters)
        sums: dict[str, Any] = {name: np.array(arrays[name], np.float64, order="C") for name in _SUMS if name in arrays}
        totals = Totals(**{name: numbers[name] for name in _NUMBERS}, **sums)
        builder.totals = totals.with_squares(parameters.column_squares)
        builder.B = np.array(arrays["B"], np.float64, order="C")
        builder.shrinks, builder.verifications, builder.retries = (numbers[name] for name in _COUNTS)
        builder.spent = numbers.get("spent", 0.0)
        builder.buffer = RowBuffer(pending)
        return builder
