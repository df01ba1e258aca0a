"""Every command and every piece of Python on every page runs as shown and prints what is shown, or says why not."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.docs.pages import OTHER_NAMES, PAGES, RUNNABLE, Block, blocks, name_of
from tests.docs.paste import pictures_made, same
from tests.docs.playing import play
from tests.support.slow import smoke_first

EVERY_BLOCK = [block for page in PAGES for block in blocks(page)]
PLAYED = [page for page in PAGES if any(block.runs for block in blocks(page))]


FIRST = sorted(PLAYED, key=lambda page: name_of(page) != "README.md")


@pytest.mark.parametrize("page", smoke_first([pytest.param(page, id=name_of(page)) for page in FIRST], smoke=1))
def test_every_block_runs_and_prints_what_the_page_says(page: Path, tmp_path: Path) -> None:
    for block, printed in play(page, tmp_path):
        if block.output is not None:
            assert same(block, printed), f"{block.place} is stale: python -m tests.docs.paste; it printed\n{printed}"
    for picture, shown in pictures_made(page, tmp_path):
        assert shown.exists(), f"{name_of(shown)} is missing: python -m tests.docs.paste"
        assert picture.stat().st_size > 5_000


@pytest.mark.parametrize("block", EVERY_BLOCK, ids=lambda block: block.place)
def test_no_block_escapes(block: Block) -> None:
    assert block.kind not in OTHER_NAMES, f"{block.place}: call it {OTHER_NAMES[block.kind]}"
    if block.kind in RUNNABLE:
        assert block.runs or block.reason_not_run or block.capture
    else:
        commands = re.findall(r"^\s*(?:\$ .*|sfd-stream .*|import \w+.*|make \w+.*)", block.code, re.MULTILINE)
        assert not commands, f"{block.place}: {commands}: name the block's language, so that it is run"


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_fences_come_in_pairs_and_every_output_belongs_to_a_block(page: Path) -> None:
    text = page.read_text(encoding="utf-8")
    owned = sum(block.output is not None and block.runs for block in blocks(page))
    assert len(re.findall(r"^```", text, re.MULTILINE)) == 2 * (len(blocks(page)) + owned)
    assert text.count("<!-- output") == owned


def test_what_a_page_prints_is_shown_or_nothing_to_show() -> None:
    """A Python block that prints has its output below it: a reader should not have to guess."""
    silent = [b.place for b in EVERY_BLOCK if b.runs and b.kind == "python" and "print(" in b.code and b.output is None]
    assert not silent


def test_the_page_on_deploying_begins_with_five_lines() -> None:
    page = [block.code for block in EVERY_BLOCK if name_of(block.page) == "docs/guides/deploying.md"]
    assert len(next(code for code in page if "helm install" in code).splitlines()) == 5
