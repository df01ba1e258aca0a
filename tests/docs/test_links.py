"""What a page points to is there: files, headings, make targets, modules, commands."""

from __future__ import annotations

import importlib.util
import re
import subprocess
from pathlib import Path

import pytest
import typer

from sfd_stream.cli.app import _app
from tests.docs.pages import PAGES, ROOT, anchors, blocks, links, name_of

TARGETS = set(re.findall(r"^([a-z][\w-]*):", (ROOT / "Makefile").read_text(), re.MULTILINE))
FOLDERS = "|".join(path.name for path in ROOT.iterdir() if path.is_dir() and not path.name.startswith("."))


def spans(page: Path) -> list[str]:
    """What stands in `backticks`, and every line of code that is a command. What a console printed is a record."""
    text = page.read_text(encoding="utf-8")
    lines = [(block.kind, line) for block in blocks(page) for line in block.code.splitlines()]
    commands = [line for kind, line in lines if kind == "sh" or (kind == "console" and line.startswith("$ "))]
    return re.findall(r"`([^`\n]+)`", re.sub(r"^```.*?^```", "", text, flags=re.DOTALL | re.MULTILINE)) + commands


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_every_link_leads_to_a_file_and_a_heading_that_are_there(page: Path) -> None:
    for link in links(page):
        if re.match(r"[a-z]+:", link):
            continue
        target, _, anchor = link.partition("#")
        file = (page.parent / target).resolve() if target else page
        assert file.exists(), f"{name_of(page)}: {link}"
        if anchor:
            assert anchor in anchors(file), f"{name_of(page)}: {link}: headings are {sorted(anchors(file))}"


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_every_path_and_module_that_a_page_names_is_there(page: Path) -> None:
    for span in spans(page):
        for path in re.findall(rf"(?<![\w/.])(?:{FOLDERS})/[\w./-]*\w/?", span):
            assert (ROOT / path).exists() or Path(path).parts[0] == "dist", f"{name_of(page)}: {path}"
        for module in re.findall(r"python -m ((?:benchmarks|tests|sfd_stream)[\w.]*)", span):
            assert importlib.util.find_spec(module), f"{name_of(page)}: {module}"


def test_every_file_of_the_package_that_a_page_or_a_docstring_names_exists() -> None:
    package = ROOT / "sfd_stream"
    folders = "|".join(path.name for path in package.iterdir() if path.is_dir() and not path.name.startswith("_"))
    sources = {name_of(page): " ".join(spans(page)) for page in PAGES}
    sources |= {str(path.relative_to(ROOT)): path.read_text(encoding="utf-8") for path in package.rglob("*.py")}
    named = {
        (path, place)
        for place, text in sources.items()
        for path in re.findall(rf"(?<![\w/.])(?:{folders})/[\w/]*\w\.py\b", text)
    }
    assert len(named) > 30
    assert [each for each in sorted(named) if not (package / each[0]).exists()] == []


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_every_make_target_and_command_that_a_page_names_is_there(page: Path) -> None:
    known = typer.main.get_command(_app()).commands  # type: ignore[attr-defined]
    for span in spans(page):
        for target in re.findall(r"(?:^|\$ )make ([a-z][\w-]*)", span):
            assert target in TARGETS or "Not yet" in page.read_text().split(f"`make {target}`")[0][-20:], target
        for command in re.findall(r"(?:^|\$ )sfd-stream ([a-z]\w*)", span):
            assert command in known, f"{name_of(page)}: sfd-stream {command}"


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_every_commit_that_a_page_names_exists(page: Path) -> None:
    if not (ROOT / ".git").exists():
        pytest.skip("the history is not part of an archive of the sources")
    for name in re.findall(r"\bcommits? ([0-9a-f]{7,})\b", page.read_text(encoding="utf-8")):
        found = subprocess.run(["git", "merge-base", "--is-ancestor", name, "HEAD"], cwd=ROOT, check=False)
        assert found.returncode == 0, f"{name_of(page)}: {name}"


def test_every_page_is_reached_from_the_map() -> None:
    seen: set[Path] = set()
    ahead = {ROOT / "docs" / "index.md"}
    while ahead:
        seen |= ahead
        targets = {(page.parent / link.partition("#")[0]).resolve() for page in ahead for link in links(page)}
        ahead = {target for target in targets if target in PAGES} - seen
    assert set(PAGES) - seen == set()
