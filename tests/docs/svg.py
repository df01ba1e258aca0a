"""As much SVG as the pages' pictures need: boxes, arrows, words, bars, lines; readable on light and dark pages."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from html import escape

INK, SOFT, PAPER = "#23303d", "#7a8794", "#fbfaf6"
BLUE, RED, GREEN, SAND = "#2f6f9f", "#b4452f", "#3d7a4b", "#d9c89a"
FONT = "font-family='Helvetica, Arial, sans-serif'"
TIP = (
    "<defs><marker id='tip' viewBox='0 0 8 8' refX='7' refY='4' markerWidth='7' markerHeight='7' orient='auto'>"
    f"<path d='M0 0 L8 4 L0 8 z' fill='{INK}'/></marker></defs>"
)
Point = tuple[float, float]


class Picture:
    """What was drawn, in order; `text()` is the file."""

    def __init__(self, width: int, height: int, title: str) -> None:
        self._size = (width, height)
        self._parts = [
            f"<title>{escape(title)}</title>",
            TIP,
            f"<rect width='{width}' height='{height}' rx='8' fill='{PAPER}'/>",
        ]

    def add(self, part: str) -> None:
        self._parts.append(part)

    def words(
        self,
        x: float,
        y: float,
        text: str,
        *,
        size: int = 13,
        color: str = INK,
        anchor: str = "middle",
        bold: bool = False,
    ) -> None:
        weight = " font-weight='bold'" if bold else ""
        self.add(
            f"<text x='{_n(x)}' y='{_n(y)}' {FONT} font-size='{size}' fill='{color}' text-anchor='{anchor}'{weight}>"
            f"{escape(text)}</text>"
        )

    def box(self, x: float, y: float, w: float, h: float, lines: Sequence[str] = (), *, color: str = BLUE) -> None:
        self.add(
            f"<rect x='{_n(x)}' y='{_n(y)}' width='{_n(w)}' height='{_n(h)}' rx='6' fill='white' stroke='{color}'"
            " stroke-width='1.5'/>"
        )
        top = y + h / 2 + 4.5 - 8.5 * (len(lines) - 1)
        for number, line in enumerate(lines):
            first = number == 0
            self.words(
                x + w / 2, top + 17 * number, line, size=13 if first else 12, color=INK if first else SOFT, bold=first
            )

    def arrow(self, *points: Point, color: str = INK, dashed: bool = False, tip: bool = True) -> None:
        dash = " stroke-dasharray='5 4'" if dashed else ""
        end = " marker-end='url(#tip)'" if tip else ""
        self.add(f"<polyline points='{_points(points)}' fill='none' stroke='{color}' stroke-width='1.5'{dash}{end}/>")

    def line(self, points: Iterable[Point], color: str, *, dashed: bool = False) -> None:
        dash = " stroke-dasharray='5 4'" if dashed else ""
        self.add(f"<polyline points='{_points(points)}' fill='none' stroke='{color}' stroke-width='2'{dash}/>")

    def bar(self, x: float, y: float, w: float, h: float, color: str) -> None:
        self.add(f"<rect x='{_n(x)}' y='{_n(y)}' width='{_n(w)}' height='{_n(h)}' fill='{color}'/>")

    def dot(self, x: float, y: float, r: float, color: str) -> None:
        self.add(f"<circle cx='{_n(x)}' cy='{_n(y)}' r='{_n(r)}' fill='{color}'/>")

    def text(self) -> str:
        width, height = self._size
        size = f"width='{width}' height='{height}' viewBox='0 0 {width} {height}'"
        return "\n".join([f"<svg xmlns='http://www.w3.org/2000/svg' {size}>", *self._parts, "</svg>", ""])


def _n(value: float) -> str:
    return f"{value:.1f}".removesuffix(".0")


def _points(points: Iterable[Point]) -> str:
    return " ".join(f"{_n(x)},{_n(y)}" for x, y in points)
