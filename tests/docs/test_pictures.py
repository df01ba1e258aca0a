"""Pictures in docs/pictures are what their command draws now; numbers may differ in their last digits by machine."""

from __future__ import annotations

import re
from xml.etree import ElementTree as ET

import pytest

from tests.docs.draw import FOLDER, PICTURES
from tests.docs.pages import PAGES, links


def without_coordinates(text: str) -> str:
    return re.sub(r"(?<==')[\d ,.-]+(?=')", "0", text)


@pytest.mark.parametrize("name", PICTURES)
def test_a_picture_is_what_its_command_draws(name: str) -> None:
    drawn = PICTURES[name]().text()
    kept = (FOLDER / f"{name}.svg").read_text(encoding="utf-8")
    assert without_coordinates(kept) == without_coordinates(drawn), "stale: make docs"
    assert ET.fromstring(kept).tag.endswith("svg")  # noqa: S314 - our own file


def test_every_picture_is_shown_somewhere_and_every_one_shown_has_words_for_it() -> None:
    shown = {link.rpartition("/")[2] for page in PAGES for link in links(page)}
    kept = {path.name for folder in (FOLDER, FOLDER.parent / "images") for path in folder.iterdir()}
    assert kept - shown == set()
    texts = [page.read_text(encoding="utf-8") for page in PAGES]
    assert not [found for text in texts for found in re.findall(r"!\[\s*\]\([^)]*\)", text)]
