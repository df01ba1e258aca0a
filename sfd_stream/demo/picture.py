"""The demo's picture: the spectrum with its certified band, the words of the directions, and the scores of new rows.

It is one SVG file, written without a library: matplotlib is an extra, and the demo works without extras.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from html import escape

import numpy as np

from sfd_stream.demo.anomalies import ScoredRows
from sfd_stream.sketch.rows import Float

_WIDTH, _HEIGHT = 1000, 800
_LEFT, _RIGHT, _TOP, _BOTTOM = 64, 596, 96, 404
_WORDS_X, _WORDS_Y, _WORDS_STEP = 640, 128, 46
_SCORES_TOP, _SCORES_BOTTOM = 524, 744
_LINE_MAX = 40
"""Maximum number of characters of a line of words, to the right of the plot."""

_STYLE = """
    :root { --paper: #ffffff; --ink: #1f2933; --quiet: #6b7785; --grid: #e4e8ed; --line: #2563eb; --true: #d9480f; }
    @media (prefers-color-scheme: dark) {
      :root { --paper: #12181f; --ink: #e6ebf0; --quiet: #93a1b0; --grid: #26303b; --line: #6ea8fe; --true: #ff9f5a; }
    }
    text { font-family: ui-sans-serif, system-ui, "Segoe UI", Helvetica, Arial, sans-serif; fill: var(--ink); }
    .title { font-size: 20px; font-weight: 600; } .quiet { font-size: 13px; fill: var(--quiet); }
    .words { font-size: 15px; } .number { font-size: 15px; font-weight: 600; fill: var(--line); }
    .paper { fill: var(--paper); } .grid { stroke: var(--grid); } .band { fill: var(--line); fill-opacity: .22; }
    .line { fill: none; stroke: var(--line); stroke-width: 2; } .true { fill: var(--true); }
"""


@dataclass(frozen=True)
class Picture:
    """`singular_values` are those of the sketch, `true` those of the rows, both in descending order."""

    title: str
    subtitle: str
    singular_values: Float
    true: Float
    delta: float
    directions: Sequence[Sequence[str]]
    scored: ScoredRows

    def svg(self) -> str:
        parts = [*self._head(), *self._spectrum(), *self._legend(), *self._words()]
        parts += [*scores_panel(self.scored), "</svg>"]
        return "\n".join(parts) + "\n"

    def _head(self) -> list[str]:
        size = f'width="{_WIDTH}" height="{_HEIGHT}" viewBox="0 0 {_WIDTH} {_HEIGHT}"'
        return [
            f'<svg xmlns="http://www.w3.org/2000/svg" {size} role="img">',
            f"  <title>{escape(self.title)}</title>",
            f"  <style>{_STYLE}  </style>",
            f'  <rect class="paper" width="{_WIDTH}" height="{_HEIGHT}" rx="12"/>',
            _text(_LEFT - 32, 40, "title", self.title),
            _text(_LEFT - 32, 64, "quiet", self.subtitle),
        ]

    def _spectrum(self) -> list[str]:
        """The values of the sketch with their certified band, and the true values."""
        upper = np.sqrt(self.singular_values**2 + self.delta)
        largest, count = float(max(upper.max(), self.true.max())), len(self.singular_values)
        top = _round_step(largest) * math.ceil(largest / _round_step(largest))
        across, up = _Axis(1, max(count, 2), _LEFT, _RIGHT), _Axis(0, top, _BOTTOM, _TOP)
        ranks = [(f"{rank}", across.place(rank)) for rank in (1, *range(10, count + 1, 10))]
        step = _round_step(top)
        levels = [(f"{i * step:g}", up.place(i * step)) for i in range(round(top / step) + 1)]

        def places(values: Float) -> list[tuple[str, str]]:
            return [(f"{across.place(i):.1f}", f"{up.place(value):.1f}") for i, value in enumerate(values.tolist(), 1)]

        low, high = ([",".join(place) for place in places(values)] for values in (self.singular_values, upper))
        return [
            *_axes(ranks, levels, _BOTTOM, "singular values, the largest first"),
            f'  <polygon class="band" points="{" ".join([*low, *reversed(high)])}"/>',
            f'  <polyline class="line" points="{" ".join(low)}"/>',
            *(f'  <circle class="true" cx="{x}" cy="{y}" r="3.2"/>' for x, y in places(self.true)),
        ]

    def _legend(self) -> list[str]:
        x, y = _RIGHT - 256, _TOP + 16
        return [
            f'  <line class="line" x1="{x}" x2="{x + 26}" y1="{y}" y2="{y}"/>',
            _text(x + 36, y + 4, "quiet", "of the sketch"),
            f'  <rect class="band" x="{x}" y="{y + 16}" width="26" height="14"/>',
            _text(x + 36, y + 28, "quiet", "certified: the truth lies in this band"),
            f'  <circle class="true" cx="{x + 13}" cy="{y + 48}" r="3.2"/>',
            _text(x + 36, y + 52, "quiet", "of all the rows, to compare"),
        ]

    def _words(self) -> list[str]:
        lines = [_text(_WORDS_X, _TOP, "quiet", "the words of the strongest directions")]
        for number, words in enumerate(self.directions, start=1):
            y = _WORDS_Y + (number - 1) * _WORDS_STEP
            lines.append(_text(_WORDS_X, y, "number", str(number)))
            for i, line in enumerate(_two_lines(words)):
                lines.append(_text(_WORDS_X + 24, y + 19 * i, "words", line))
        return lines


def scores_panel(scored: ScoredRows) -> list[str]:
    """Each new row by its two scores, on logarithmic axes. The planted rows are numbered."""
    residuals, t2s = np.log10(scored.over_mean), np.log10(scored.t2)
    across = _Axis(math.floor(residuals.min()), math.ceil(residuals.max()), _LEFT, _RIGHT)
    up = _Axis(math.floor(t2s.min()), math.ceil(t2s.max()), _SCORES_BOTTOM, _SCORES_TOP)
    parts = [
        _text(_LEFT - 32, _SCORES_TOP - 32, "title", "Scores of rows that the sketch has not counted"),
        *_axes(across.powers(), up.powers(), _SCORES_BOTTOM, "residual outside the directions, over the mean"),
        _text(_LEFT + 8, _SCORES_TOP - 8, "quiet", "T²: how extreme inside the directions"),
        _text(_WORDS_X, _SCORES_TOP, "quiet", f"planted among {scored.ordinary} ordinary docstrings"),
    ]
    for at, (right, t2) in enumerate(zip(residuals.tolist(), t2s.tolist(), strict=True)):
        x, y, number = across.place(right), up.place(t2), at - scored.ordinary + 1
        parts.append(f'  <circle class="{"true" if number > 0 else "band"}" cx="{x:.1f}" cy="{y:.1f}" r="4"/>')
        if number > 0:
            parts.append(_text(x + 8, y + 5, "number", str(number)))
    for number, row in enumerate(scored.rows, start=1):
        y = _SCORES_TOP - 36 + 64 * number
        parts.append(_text(_WORDS_X, y, "number", str(number)))
        parts.append(_text(_WORDS_X + 24, y, "words", row.name))
        parts.append(_text(_WORDS_X + 24, y + 18, "quiet", row.reason))
        parts.append(_text(_WORDS_X + 24, y + 35, "quiet", row.why))
    return parts


@dataclass(frozen=True)
class _Axis:
    """An axis from one value to another, drawn between two positions."""

    lowest: float
    highest: float
    start: float
    stop: float

    def place(self, value: float) -> float:
        return self.start + (value - self.lowest) / (self.highest - self.lowest) * (self.stop - self.start)

    def powers(self) -> list[tuple[str, float]]:
        """The names and places of the powers of ten on an axis of logarithms."""
        return [(f"{10.0**power:g}", self.place(power)) for power in range(int(self.lowest), int(self.highest) + 1)]


def _axes(across: list[tuple[str, float]], up: list[tuple[str, float]], bottom: float, label: str) -> list[str]:
    """The grid with the names and places of its values, and a label below."""
    lines = []
    for name, y in up:
        lines.append(f'  <line class="grid" x1="{_LEFT}" x2="{_RIGHT}" y1="{y:.1f}" y2="{y:.1f}"/>')
        lines.append(_text(_LEFT - 10, y + 4, "quiet", name, anchor="end"))
    lines += [_text(x, bottom + 20, "quiet", name, anchor="middle") for name, x in across]
    return [*lines, _text((_LEFT + _RIGHT) / 2, bottom + 40, "quiet", label, anchor="middle")]


def _round_step(top: float) -> float:
    """1, 2 or 5 times a power of ten, so that four to eight steps reach the top."""
    rough = top / 6
    power = 10.0 ** math.floor(math.log10(rough))
    return next(factor * power for factor in (1, 2, 5, 10) if factor * power >= rough)


def _two_lines(words: Sequence[str]) -> list[str]:
    """As many words as fit on two lines."""
    lines = [""]
    for word in words:
        longer = f"{lines[-1]} {word}".strip()
        if len(longer) <= _LINE_MAX:
            lines[-1] = longer
        elif len(lines) == 1:
            lines.append(word)
        else:
            break
    return lines


def _text(x: float, y: float, style: str, text: str, anchor: str = "start") -> str:
    return f'  <text class="{style}" x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}">{escape(text)}</text>'
