"""The output of the demo: a live table on a terminal, plain whole lines elsewhere."""

from __future__ import annotations

import io
import threading

import pytest
from rich.console import Console

from sfd_stream.demo.view import DemoOutput, StreamView, view


def part(number: int, **change: object) -> dict[str, object]:
    return {
        "partition": number, "state": "reading", "rows": 1500, "lag": 12, "delta_ratio": 0.0125,
        "checkpoint_age_s": 0.4, **change,
    }  # fmt: skip


def screen(look: StreamView) -> str:
    console = Console(width=100, record=True, force_terminal=True, file=io.StringIO())
    console.print(view(look))
    return console.export_text()


def test_the_live_table_shows_who_has_what_and_what_nobody_has() -> None:
    look = StreamView(2000, 4000, {1: [], 2: [part(0), part(2, state="claiming"), part(3, delta_ratio=None, lag=None)]})
    lines = [line.split() for line in screen(look).splitlines() if line.strip()]
    assert ["0", "2", "1,500", "12", "1.25%", "0", "s", "ago"] in lines
    assert ["1", "nobody"] in lines
    assert ["2", "2,", "claiming"] in lines
    assert ["3", "2", "1,500", "0", "s", "ago"] in lines
    assert lines[0][1:] == ["4,500", "rows", "in", "the", "sketch", "of", "2,000", "sent"]
    assert "are starting" in screen(StreamView(0, 4000, {1: [], 2: []}))


def test_where_there_is_no_terminal_lines_are_plain_and_whole(capsys: pytest.CaptureFixture[str]) -> None:
    teller = DemoOutput()
    assert not teller.live
    teller.chapter("Rows")
    long = " ".join("x" * 200)  # a space at its end would stay or go with the version of rich
    teller.check(long)
    teller.bars([(2.0, "a [b]"), (1.0, "c")])
    assert capsys.readouterr().out == (
        f"\n1  Rows\n   ✓ {long}\n   1  {'█' * 12}  a [b]\n   2  {'█' * 6}{' ' * 6}  c\n"
    )


def test_on_a_terminal_the_table_is_drawn_below_and_gone_again_at_the_end() -> None:
    looked, out = threading.Event(), io.StringIO()

    def look() -> StreamView:
        looked.set()
        return StreamView(10, 20, {2: [part(0)]})

    teller = DemoOutput(Console(file=out, force_terminal=True, width=100))
    with teller.watching(look):
        assert looked.wait(30)
        teller.sentence("a line above")
    assert "nobody" in out.getvalue()
    assert "a line above" in out.getvalue()
    assert [thread for thread in threading.enumerate() if thread.name == "view"] == []
