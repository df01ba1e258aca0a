"""Captures are of the commands that make them, whole, and without a trace of the machine that made them."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.docs.capture import CAPTURES, HEAD, TAIL, terminal, tidy
from tests.docs.pages import PAGES, ROOT, Block, blocks, name_of

CAPTURED = [block for page in PAGES for block in blocks(page) if block.capture]
SOURCES = [path for folder in ("benchmarks", "tests") for path in (ROOT / folder).rglob("*.py")]
MAKERS = [path.read_text(encoding="utf-8") for path in SOURCES if not path.name.startswith("test_")]


def test_each_of_our_captures_stands_on_one_page() -> None:
    names = [block.capture for block in CAPTURED]
    assert len(names) == len(set(names))
    assert set(CAPTURES) <= set(names)


@pytest.mark.parametrize("block", CAPTURED, ids=lambda block: block.place)
def test_every_capture_has_a_command_that_makes_it_and_its_page_or_contributing_names_one(block: Block) -> None:
    assert any(f'"{block.capture}"' in source and "capture" in source for source in MAKERS)
    told = block.page.read_text(encoding="utf-8") + (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")
    assert re.search(r"`(python -m (benchmarks|tests)\.[\w.]+|make [\w-]+)", told)


@pytest.mark.parametrize("block", CAPTURED, ids=lambda block: block.place)
def test_a_capture_is_a_terminal_and_ends_where_its_marker_says(block: Block) -> None:
    text = block.page.read_text(encoding="utf-8")
    assert block.kind == "console"
    assert block.code.startswith("$ ")
    assert f"<!-- capture {block.capture} -->\n```console\n{block.code}```\n<!-- end -->" in text


def test_the_demo_is_on_the_first_screen_of_the_readme() -> None:
    (demo,) = [block for block in CAPTURED if block.capture == "demo"]
    assert name_of(demo.page) == "README.md"
    assert demo.line <= 52
    assert "make demo" in demo.code.splitlines()[0]
    assert 10 <= len(demo.code.splitlines()) <= 16


def test_the_first_run_is_of_both_commands_with_times_and_the_whole_demo() -> None:
    (clone,) = [block for block in CAPTURED if block.capture == "clone"]
    lines = clone.code.splitlines()
    assert [line for line in lines if line.startswith("$ time")] == ["$ time make demo", "$ time make test"]
    assert sum(line.startswith("took ") for line in lines) == 2
    chapters = re.findall(r"^(\d)  ([A-Z]\w+)$", clone.code, re.MULTILINE)
    assert [int(number) for number, _ in chapters] == list(range(1, len(chapters) + 1))
    assert chapters[-1][1] == "Picture"


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_no_page_names_a_folder_of_the_machine_that_made_it(page: Path) -> None:
    assert not re.search(r"(?<![\w.])/(work|root|home|Users)/", page.read_text(encoding="utf-8"))
    assert str(ROOT) not in page.read_text(encoding="utf-8")


def test_a_long_output_loses_its_middle_and_says_so(tmp_path: Path) -> None:
    lines = [f"\x1b[32m{number}\x1b[0m {tmp_path}/file" for number in range(100)]
    kept = tidy("\n".join(lines), tmp_path).splitlines()
    assert kept[0] == "0 file"
    assert kept[HEAD] == f"[... {100 - HEAD - TAIL} lines left out ...]"
    assert kept[-1] == "99 file"


def test_a_command_that_fails_is_not_captured(tmp_path: Path) -> None:
    with pytest.raises(SystemExit, match="exit code 3"):
        terminal("echo no; exit 3", tmp_path)
    assert terminal("time true", tmp_path).startswith("$ time true\ntook 0m")
