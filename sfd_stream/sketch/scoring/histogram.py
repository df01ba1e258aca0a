"""How extreme a row is among the rows scored before it: a histogram that is small, mergeable and stored as bytes.

The p-value is calibrated where rows are exchangeable. It is not certified (docs/guarantees.md, "Scores").
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from sfd_stream.sketch.rows import Float, Int

if TYPE_CHECKING:
    from sfd_stream.sketch.scoring.score import Scores

BINS_PER_OCTAVE = 32
"""A bin is 2.2 % wide."""

BIN_LEAST, BIN_MOST = -1100 * BINS_PER_OCTAVE, 1100 * BINS_PER_OCTAVE
"""Where zero and infinity are counted: beyond every finite score."""

SCORES = ("residual", "odds", "t2")
"""What is counted. The odds of the residual share s are s/(1 - s): they resolve shares near 1, where many rows are."""


class Bins(NamedTuple):
    """The bins that have any scores, in rising order, and how many each has."""

    numbers: Int
    counts: Int

    @classmethod
    def of(cls, scores: Float) -> Bins:
        return cls(*np.unique(bin_numbers(scores), return_counts=True))

    def plus(self, other: Bins) -> Bins:
        numbers, places = np.unique(np.concatenate([self.numbers, other.numbers]), return_inverse=True)
        counts = np.zeros(len(numbers), np.int64)
        np.add.at(counts, places, np.concatenate([self.counts, other.counts]))
        return Bins(numbers, counts)

    def at_least(self, scores: Float) -> Int:
        """How many were in the bin of each score or above it."""
        above = np.append(np.cumsum(self.counts[::-1])[::-1], 0)
        return np.asarray(above[np.searchsorted(self.numbers, bin_numbers(scores))])


NO_BINS = Bins(np.zeros(0, np.int64), np.zeros(0, np.int64))


def bin_numbers(scores: Float) -> Int:
    with np.errstate(divide="ignore"):
        exact = np.floor(BINS_PER_OCTAVE * np.log2(scores))
    return np.asarray(np.clip(exact, BIN_LEAST, BIN_MOST), np.int64)


@dataclass(frozen=True, eq=False)
class ScoreHistogram:
    """Counts of the scores of earlier rows in bins 2.2 % wide. A value: `plus` and `merge` return a new one.

    Count rows that were scored before the sketch counted them: rows that are in the basis look less extreme than new
    ones. Scores of one k only; `merge` adds up histograms of one basis, as of several partitions.

    >>> from sfd_stream import ScoreHistogram, SparseFrequentDirections, paper_synthetic
    >>> X = paper_synthetic(1500, 50, 5, seed=0)
    >>> scorer = SparseFrequentDirections(ell=20).fit(X[:500]).sketch().scorer()
    >>> histogram = ScoreHistogram().plus(scorer.score(X[500:1000]))
    >>> scorer.score(X[1000:], histogram).p_value.shape
    (500,)
    """

    rows: int = 0
    k: int | None = None
    bins: Mapping[str, Bins] = field(default_factory=lambda: dict.fromkeys(SCORES, NO_BINS))

    def __repr__(self) -> str:
        return f"ScoreHistogram(rows={self.rows:,}, k={self.k})"

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, ScoreHistogram):
            return NotImplemented
        mine, others = (
            (each.rows, each.k, [array.tolist() for name in SCORES for array in each.bins[name]])
            for each in (self, other)
        )
        return mine == others

    def __hash__(self) -> int:
        return hash((self.rows, self.k))

    def plus(self, scores: Scores) -> ScoreHistogram:
        """With these rows counted, too.

        >>> histogram.plus(scorer.score(X[1000:])).rows
        1000
        """
        counted = {name: Bins.of(values) for name, values in compared(scores).items()}
        return self.merge(ScoreHistogram(len(scores.residual), scores.coordinates.shape[1], counted))

    def merge(self, other: ScoreHistogram) -> ScoreHistogram:
        """The histogram of the rows of both.

        >>> histogram.merge(histogram).rows
        1000
        """
        k = self._common_k(other.k)
        return ScoreHistogram(
            self.rows + other.rows, k, {name: self.bins[name].plus(other.bins[name]) for name in SCORES}
        )

    def p_value(self, scores: Scores) -> Float:
        """The share of earlier rows at least as extreme, by the smallest of the three p-values times 3.

        The p-value of one score is (1 + number of earlier scores at least as large)/(rows + 1).

        >>> bool((histogram.p_value(scorer.score(X[1000:])) <= 1).all())
        True
        """
        self._common_k(scores.coordinates.shape[1])
        extreme = [self.bins[name].at_least(values) for name, values in compared(scores).items()]
        return np.asarray(np.minimum(3 * (1 + np.min(extreme, axis=0)) / (self.rows + 1), 1.0))

    def to_bytes(self) -> bytes:
        """As bytes to keep or send: the format is in docs/reference/formats.md. `from_bytes` reads them.

        >>> len(histogram.to_bytes()) < 10_000
        True
        """
        from sfd_stream.wire import score_histograms  # noqa: PLC0415 - the format is not mathematics

        return score_histograms.encode(self)

    @classmethod
    def from_bytes(cls, data: bytes) -> ScoreHistogram:
        """The histogram that `to_bytes` has written. FormatError if the bytes are damaged or something else.

        >>> ScoreHistogram.from_bytes(histogram.to_bytes()) == histogram
        True
        """
        from sfd_stream.wire import score_histograms  # noqa: PLC0415 - as in `to_bytes`

        return score_histograms.decode(data)

    def _common_k(self, k: int | None) -> int | None:
        if None not in (self.k, k) and self.k != k:
            raise ValueError(f"scores of k = {self.k} and k = {k} can't be compared: keep a histogram for each basis")
        return self.k if k is None else k


def compared(scores: Scores) -> dict[str, Any]:
    """The scores that are counted, by name."""
    inside = np.einsum("nk,nk->n", scores.coordinates, scores.coordinates)
    odds = np.divide(scores.residual, inside, out=np.where(scores.residual > 0, np.inf, 0.0), where=inside > 0)
    return {"residual": scores.residual, "odds": odds, "t2": scores.t2.estimate}
