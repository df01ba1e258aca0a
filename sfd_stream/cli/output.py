"""What commands print: results on standard output, as JSON or for people; nothing else goes there."""

from __future__ import annotations

import json
import sys
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

_UNBOUNDED = 1_000


def print_json(value: Any) -> None:
    """One JSON document on standard output."""
    sys.stdout.write(json.dumps(value, indent=2, ensure_ascii=False, allow_nan=False) + "\n")


def print_text(text: str) -> None:
    """Text for people on standard output, as it stands."""
    sys.stdout.write(text if text.endswith("\n") else f"{text}\n")


def print_table(header: Sequence[str], rows: Iterable[Sequence[Any]]) -> None:
    """A table for people; numbers to the right, and full width when the output is not a terminal."""
    from rich import box
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    body = [tuple(row) for row in rows]
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    for i, title in enumerate(header):
        numeric = bool(body) and all(isinstance(row[i], int | float) for row in body)
        table.add_column(title, justify="right" if numeric else "left", overflow="fold")
    for row in body:
        table.add_row(*(Text(f"{cell:,}" if isinstance(cell, int | float) else str(cell)) for cell in row))
    Console(file=sys.stdout, width=None if sys.stdout.isatty() else _UNBOUNDED).print(table)
