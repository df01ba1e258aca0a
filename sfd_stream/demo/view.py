"""The output of the demo: chapters with a live table on a terminal, plain lines elsewhere."""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from rich import box
from rich.console import Console, Group
from rich.live import Live
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from sfd_stream.demo.stage import PARTITIONS
from sfd_stream.printable import printable

_EVERY_S = 0.4
_BAR = 40
_INDENT = 3
_NUMBERS = r"(?<![\w.:/-])\d{1,3}(,\d{3})*(\.\d+)?%?(?=[\s,;)]|\.?$)"
_PLACES = r"https?://\S+|(?<=\s)/\S+\.svg"


@dataclass(frozen=True)
class StreamView:
    """The stream at one moment: rows sent, rows in all, and the partitions of each worker's status."""

    sent: int
    total: int
    partitions: Mapping[int, Sequence[Mapping[str, Any]]]

    @property
    def rows(self) -> int:
        return sum(int(part["rows"]) for parts in self.partitions.values() for part in parts)


class DemoOutput:
    """Prints chapters, sentences and checks. On a terminal `watching` keeps a live table below them."""

    def __init__(self, console: Console | None = None) -> None:
        self.console = console or Console(file=sys.stdout)
        self._chapter = 0

    @property
    def live(self) -> bool:
        return self.console.is_terminal

    def title(self, name: str, text: str) -> None:
        self._print(Text.assemble((name, "bold cyan"), "  ", text), 0)

    def blank(self) -> None:
        self.console.print()

    def chapter(self, name: str) -> None:
        self._chapter += 1
        self.blank()
        self._print(Text.assemble((f"{self._chapter}  ", "cyan"), (name, "bold cyan")), 0)

    def sentence(self, text: str) -> None:
        self._print(_highlighted(Text(printable(text))))

    def check(self, text: str) -> None:
        """Prints a claim that was checked and holds."""
        self._print(Text.assemble(("✓ ", "bold green"), _highlighted(Text(printable(text)))))

    def bars(self, lines: Sequence[tuple[float, str]]) -> None:
        """Prints each text after a bar, whose length is relative to the longest."""
        longest = max(value for value, _ in lines)
        for number, (value, text) in enumerate(lines, start=1):
            bar = "█" * max(round(12 * value / longest), 1)
            self._print(Text.assemble((f"{number}  ", "cyan"), (f"{bar:<12}  ", "cyan"), printable(text)))

    def _print(self, text: Text, indent: int = _INDENT) -> None:
        if self.live:
            self.console.print(Padding(text, (0, 0, 0, indent), expand=False))
        else:
            self.console.print(" " * indent + text.plain, soft_wrap=True, markup=False, highlight=False)
            self.console.file.flush()

    @contextmanager
    def watching(self, stream_view: Callable[[], StreamView]) -> Iterator[None]:
        """Shows the table of partitions, refreshes it, and removes it at the end."""
        if not self.live:
            yield
            return
        over = threading.Event()
        with Live(console=self.console, refresh_per_second=4, transient=True) as live:

            def keep_updating() -> None:
                while not over.wait(_EVERY_S):
                    live.update(view(stream_view()))

            thread = threading.Thread(target=keep_updating, name="view", daemon=True)
            thread.start()
            try:
                yield
            finally:
                over.set()
                thread.join()


def view(stream_view: StreamView) -> Any:
    """The live part of the screen, as a rich renderable."""
    held = {
        int(part["partition"]): (number, part) for number, parts in stream_view.partitions.items() for part in parts
    }
    if not held:
        return Padding(Text("the workers are starting ...", style="dim"), (1, 0, 0, _INDENT))
    return Padding(Group(_bar(stream_view), _table(held)), (1, 0, 0, _INDENT))


def _bar(stream_view: StreamView) -> Text:
    total = max(stream_view.total, stream_view.sent, 1)
    done, sent = (round(_BAR * min(value / total, 1.0)) for value in (stream_view.rows, stream_view.sent))
    ahead = max(sent - done, 0)
    bar = Text.assemble(("█" * done, "green"), ("▒" * ahead, "yellow"), ("░" * (_BAR - done - ahead), "dim"))
    return bar.append(f"  {stream_view.rows:,} rows in the sketch of {stream_view.sent:,} sent", style="default")


def _table(held: Mapping[int, tuple[int, Mapping[str, Any]]]) -> Table:
    table = Table("partition", "worker", box=box.SIMPLE_HEAD, pad_edge=False)
    for title in ("rows", "lag", "error at most", "last checkpoint"):
        table.add_column(title, justify="right")
    for partition in range(PARTITIONS):
        if partition in held:
            table.add_row(str(partition), *_cells(*held[partition]))
        else:
            table.add_row(str(partition), Text("nobody", style="bold red"))
    return table


def _cells(number: int, part: Mapping[str, Any]) -> list[str]:
    if part["state"] != "reading":
        return [f"{number}, {part['state']}"]
    ratio, lag = part["delta_ratio"], part["lag"]
    return [
        str(number),
        f"{part['rows']:,}",
        "" if lag is None else f"{lag:,}",
        "" if ratio is None else f"{ratio:.2%}",
        f"{part['checkpoint_age_s']:.0f} s ago",
    ]


def _highlighted(text: Text) -> Text:
    text.highlight_regex(_NUMBERS, "bold")
    text.highlight_regex(_PLACES, "underline cyan")
    return text
