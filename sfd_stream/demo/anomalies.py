"""Plants odd rows among docstrings that the sketch has not counted, finds them by score, explains them by column."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from sfd_stream.demo.checks import Bag, DemoError, Truth
from sfd_stream.sketch.rows import Float
from sfd_stream.sketch.scoring.causes import Cause
from sfd_stream.sketch.scoring.histogram import ScoreHistogram
from sfd_stream.sketch.scoring.score import Scorer, Scores
from sfd_stream.sketch.sketch import Sketch

P_MAX = 0.01
"""Rows with a smaller p-value are reported."""

REPORTED_AMONG = 100
"""Number of ordinary rows scored together with the planted ones. The rows before them calibrate the p-values."""

LATIN = """
    lorem ipsum dolor amet consectetur adipiscing elit sed eiusmod tempor incididunt labore dolore magna aliqua enim
    minim veniam quis nostrud exercitation ullamco laboris nisi aliquip commodo consequat duis aute irure reprehenderit
    voluptate velit esse cillum fugiat nulla pariatur excepteur sint occaecat cupidatat proident sunt culpa qui officia
    deserunt mollit anim est laborum perspiciatis unde omnis iste natus voluptatem accusantium doloremque laudantium
""".split()  # noqa: SIM905 - a table of words reads better than 60 quoted ones


@dataclass(frozen=True)
class Planted:
    name: str
    bag: Bag
    odd: Sequence[str]
    """The words that make the row odd."""


def planted(ordinary: Bag, topic: Sequence[str]) -> list[Planted]:
    """Three rows, each odd in a different way. `topic` has the words of one direction."""
    word = min(ordinary)
    return [
        Planted(f'a docstring that repeats "{word}"', {**ordinary, word: 30}, [word]),
        Planted("a page of Latin, each word twice", dict.fromkeys(LATIN, 2), LATIN),
        Planted("the words of direction 1, four times each", dict.fromkeys(topic, 4), topic),
    ]


@dataclass(frozen=True)
class FoundRow:
    """A planted row that was reported, with its cause."""

    name: str
    p_value: float
    reason: str
    cause: Cause

    @property
    def why(self) -> str:
        expected = round(self.cause.expected, 1) + 0.0  # no -0.0
        return f"{self.cause.name}: {self.cause.actual:g}, expected {expected:.1f}"


@dataclass(frozen=True)
class ScoredRows:
    """The results for the planted rows and for the ordinary rows scored together with them."""

    rows: Sequence[FoundRow]
    usual: int
    """Number of rows that calibrate the p-values."""
    ordinary: int
    false_alarms: int
    over_mean: Float
    t2: Float
    """By row, the ordinary ones first; for the picture."""


def find(truth: Truth, sketch: Sketch, topic: Sequence[str], k: int) -> ScoredRows:
    """Scores rows that were not sent, including the planted ones. DemoError if a planted row is not found."""
    usual, new = truth.kept[:-REPORTED_AMONG], truth.kept[-REPORTED_AMONG:]
    odd = planted(new[0], topic)
    block, _ = truth.rows_of([*usual, *new, *(each.bag for each in odd)])
    scorer = sketch.scorer(k)
    before = scorer.score(block.take(0, len(usual)))
    rows = block.take(len(usual), block.rows)
    scores = scorer.score(rows, ScoreHistogram().plus(before))
    assert scores.p_value is not None
    reported = scores.p_value <= P_MAX
    found = []
    for at, each in enumerate(odd, start=len(new)):
        if not reported[at]:
            raise DemoError(f"{each.name} was not found: its p-value is {scores.p_value[at]:.3f}")
        score = _score_of(scores, at, before)
        own_names = truth.rows_of([each.bag])[1]  # a column may have another name in an ordinary row
        causes = scorer.explain(rows.take(at, at + 1), 1, names=own_names)
        cause = (causes.residual if score == "residual" else causes.t2)[0]
        if cause.column not in truth.rows_of([dict.fromkeys(each.odd, 1)])[0].indices:
            raise DemoError(f"{each.name} was explained by {cause.name}")
        found.append(FoundRow(each.name, float(scores.p_value[at]), _words(score, scores, at, scorer), cause))
    return ScoredRows(
        rows=found,
        usual=len(usual),
        ordinary=len(new),
        false_alarms=int(np.count_nonzero(reported[: len(new)])),
        over_mean=scores.residual_over_mean.estimate,
        t2=scores.t2.estimate,
    )


def _score_of(scores: Scores, at: int, before: Scores) -> str:
    """The score that is unusual: the residual, unless earlier rows had one as large."""
    return "residual" if scores.residual[at] > before.residual.max() else "t2"


def _words(score: str, scores: Scores, at: int, scorer: Scorer) -> str:
    if score == "residual":
        interval = scores.residual_over_mean
        return f"residual {interval.lower[at]:,.0f} to {interval.upper[at]:,.0f} times the mean"
    return f"T² {scores.t2.lower[at]:,.0f} to {scores.t2.upper[at]:,.0f}, on average {scorer.k}"
