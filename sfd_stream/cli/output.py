"""Prints results on standard output, as JSON or for people. Nothing else is printed there."""

from __future__ import annotations

import json
import sys
from typing import TYPE_CHECKING, Any

from sfd_stream.printable import printable, printable_lines

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from rich.table import Table

_UNBOUNDED = 1_000
_TITLE_MAX = 10
"""A longer title of a column of numbers is wrapped at its underscores."""
_WHOLE_MAX = 40
"""A shorter text is never wrapped."""


def print_json(value: Any) -> None:
    """One JSON document on standard output."""
    sys.stdout.write(_json(value, indent=2) + "\n")


def print_json_line(value: Any) -> None:
    """One of many JSON documents, a line each, flushed at once for the reader."""
    sys.stdout.write(_json(value) + "\n")
    sys.stdout.flush()


def _json(value: Any, indent: int | None = None) -> str:
    """JSON with the letters of all languages. Characters that a terminal would interpret or hide are escaped."""
    text = json.dumps(value, indent=indent, ensure_ascii=False, allow_nan=False)
    if text.isprintable():
        return text
    return "".join(letter if letter.isprintable() or letter == "\n" else _escaped(letter) for letter in text)


def _escaped(letter: str) -> str:
    units = letter.encode("utf-16-be", "surrogatepass").hex()
    return "".join(f"\\u{units[at : at + 4]}" for at in range(0, len(units), 4))


def print_text(text: str) -> None:
    """Lines of text for people on standard output."""
    sys.stdout.write(printable_lines(text if text.endswith("\n") else f"{text}\n"))


def print_table(header: Sequence[str], rows: Iterable[Sequence[Any]]) -> None:
    """Prints a table for people. Numbers are in short form and never wrapped.

    It has its full width if the output is not a terminal. On a narrow terminal each row is a block of lines.
    """
    from rich.console import Console

    body = [tuple(row) for row in rows]
    console = Console(file=sys.stdout, width=None if sys.stdout.isatty() else _UNBOUNDED)
    table = _table(header, body)
    needed = table.__rich_measure__(console, console.options.update(width=_UNBOUNDED)).minimum
    if needed <= console.width:
        console.print(table)
        return
    widest = max(map(len, header))
    for row in body:
        print_text("".join(f"{title:<{widest}}  {short(cell)}\n" for title, cell in zip(header, row, strict=True)))


def _table(header: Sequence[str], body: Sequence[tuple[Any, ...]]) -> Table:
    from rich import box
    from rich.table import Table
    from rich.text import Text

    table = Table(box=box.SIMPLE_HEAD, pad_edge=False, show_edge=False, padding=(0, 1, 0, 0))
    columns = [[row[i] for row in body] for i in range(len(header))]
    for title, cells in zip(header, columns, strict=True):
        numeric = any(map(_is_number, cells)) and all(_is_number(cell) or cell == "" for cell in cells)
        broken = title.replace("_", "\n") if numeric and len(title) > _TITLE_MAX else title
        text_max = max((len(short(cell)) for cell in cells), default=0)
        table.add_column(
            broken, justify="right" if numeric else "left", overflow="fold", no_wrap=numeric or text_max <= _WHOLE_MAX
        )
    for row in body:
        table.add_row(*(Text(short(cell)) for cell in row))
    return table


def _is_number(cell: Any) -> bool:
    return isinstance(cell, int | float) and not isinstance(cell, bool)


def short(cell: Any) -> str:
    """A cell for people: thousands separated, six digits of fractions. Text is safe to print, on one line."""
    if not _is_number(cell):
        return printable(str(cell))
    return f"{cell:,}" if isinstance(cell, int) else f"{cell:,.6g}"
