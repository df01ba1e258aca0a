"""Tables for people: numbers whole at any width, short; full width when piped."""

from __future__ import annotations

import sys

import pytest

from sfd_stream.cli.output import print_table

HEADER = ("partition", "rows", "nnz", "bad", "tombstones", "next_offset", "squared_frobenius", "delta")
ROWS = [
    ("0", 123_456, 12_345_678, 0, 0, 123_456, 1234567.891011, 0.123456789),
    ("total", 123_456, 12_345_678, 0, 0, "", 1234567.891011, 12345.6789),
]


@pytest.mark.parametrize("width", [20, 40, 60, 72, 80, 100, 200])
def test_numbers_are_never_broken(
    width: int, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True, raising=False)
    monkeypatch.setenv("COLUMNS", str(width))
    monkeypatch.setenv("TERM", "dumb")
    print_table(HEADER, ROWS)
    words = capsys.readouterr().out.split()
    for number in ("123,456", "12,345,678", "1.23457e+06", "0.123457", "12,345.7"):
        assert number in words


def test_the_summary_fits_eighty_columns_as_a_table(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True, raising=False)
    monkeypatch.setenv("COLUMNS", "80")
    monkeypatch.setenv("TERM", "dumb")
    print_table(HEADER, ROWS)
    lines = capsys.readouterr().out.splitlines()
    assert max(map(len, lines)) <= 80
    assert sum("123,456" in line for line in lines) == 2


def test_a_piped_table_has_a_line_for_each_row(capsys: pytest.CaptureFixture[str]) -> None:
    print_table(("name", "text"), [("a" * 30, "b" * 300)])
    assert "b" * 300 in capsys.readouterr().out
