"""What commands print: JSON for programs, tables with short numbers for people."""

from __future__ import annotations

import io
import json
from typing import Any

import pytest

from sfd_stream.cli.output import print_json_line, print_table, short


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


@pytest.mark.parametrize(
    ("cell", "printed"),
    [(1_234_567, "1,234,567"), (1234.56789, "1,234.57"), (True, "True"), ("a\tb", r"a\tb"), ("1000", "1000")],
)
def test_numbers_are_short_and_text_is_printable(cell: Any, printed: str) -> None:
    assert short(cell) == printed


def test_a_table_in_a_file_has_one_line_for_each_row_however_wide(capsys: pytest.CaptureFixture[str]) -> None:
    print_table(("partition", "reason"), [(0, "word " * 60), (1, "")])
    assert len(capsys.readouterr().out.splitlines()) == 4, "a header, a rule, two rows"


def test_on_a_narrow_terminal_each_row_is_a_block_of_lines(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.stdout", stream := Terminal())
    monkeypatch.setenv("COLUMNS", "12")
    print_table(("partition", "rows"), [(0, 1000), (1, 2000)])
    assert [line.split() for line in stream.getvalue().splitlines()] == [
        ["partition", "0"],
        ["rows", "1,000"],
        ["partition", "1"],
        ["rows", "2,000"],
    ]


def test_each_of_many_documents_is_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    for rows in (1, 2):
        print_json_line({"rows": rows, "names": ["über", "\x1b[31m"]})
    assert [json.loads(line)["rows"] for line in capsys.readouterr().out.splitlines()] == [1, 2]
