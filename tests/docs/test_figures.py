"""The README quotes what docs/experiments.md has: both are pasted from one run of the benchmarks."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from benchmarks.sketch import PAGES
from benchmarks.tables import Table, paste, tables
from tests.docs.pages import ROOT

TEXTS = {page.name: page.read_text(encoding="utf-8") for page in PAGES}
MARKER = re.compile(r"<!-- bench:(\w+) -->\n(.*?)<!-- /bench:\1 -->", re.DOTALL)


def pasted(page: str, name: str) -> list[list[str]]:
    """The rows of a table, without its heading."""
    (text,) = [body for found, body in MARKER.findall(TEXTS[page]) if found == name]
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in text.splitlines()[2:]]


def test_the_readme_and_experiments_tell_the_same() -> None:
    readme = pasted("README.md", "readme")
    measured = {row[0]: row[1] for row in readme}
    assert len(measured) == 3
    targets = {row[0]: row for row in pasted("experiments.md", "targets")}
    quoted = [line for name, line in measured.items() if name.startswith("against Frequent Directions")]
    assert [re.match(r"\*\*[\d.]+\*\*", line)[0] for line in quoted] == [  # type: ignore[index]
        targets["default (z=100)"][3]
    ]
    checks = {row[0]: row[1] for row in pasted("experiments.md", "checks")}
    common = measured.keys() & checks.keys()
    assert len(common) == 1
    assert all(measured[name] == checks[name] for name in common)


def test_every_figure_of_the_readme_names_the_command_that_reprints_it() -> None:
    for row in pasted("README.md", "readme"):
        assert re.fullmatch(r"`python -m benchmarks\.\w+[ \w-]*`", row[2]), row


def test_the_questions_say_of_the_certificate_what_the_table_has() -> None:
    """docs/faq.md: mostly below twice the true error."""
    tightness = [float(row[2]) for row in pasted("experiments.md", "tightness")]
    assert "Mostly below twice the true error" in (ROOT / "docs" / "faq.md").read_text(encoding="utf-8")
    assert sum(factor < 2 for factor in tightness) > len(tightness) / 2


def test_a_table_is_pasted_wherever_its_markers_are_and_nowhere_else(tmp_path: Path) -> None:
    pages = [tmp_path / "a.md", tmp_path / "b.md"]
    for page in pages:
        page.write_text(f"{page.stem}\n<!-- bench:x -->\nold\n<!-- /bench:x -->\nend\n")
    pages[1].write_text("untouched\n")
    paste(pages, [Table("x", "", ["name", "n"], [["one", "1"]])])
    assert pages[0].read_text() == (
        "a\n<!-- bench:x -->\n| name | n |\n| --- | ---: |\n| one | 1 |\n<!-- /bench:x -->\nend\n"
    )
    assert pages[1].read_text() == "untouched\n"
    with pytest.raises(SystemExit, match="no page has a place for the table y"):
        paste(pages, [Table("y", "", ["name"], [["one"]])])


def test_what_was_not_measured_makes_no_table() -> None:
    assert tables({}) == []
    made = tables({"stream": {"in_memory": 2e5, "packed": {"rate": 1e5}}})
    assert [table.name for table in made] == ["stream", "readme"]
    assert made[0].rows[1] == ["packed rows", "100,000", "0.50"]
