"""The pictures of the demo in the docs are of the demo as it is now."""

from __future__ import annotations

import re
import xml.etree.ElementTree as ET

from tests.unit.demo.capture import IMAGES
from tests.unit.demo.test_demo import CHAPTERS


def words_of(name: str) -> str:
    svg = (IMAGES / name).read_text()
    assert not re.search(r"@font-face|@import|href|url\((?!#)", svg), "it fetches nothing"
    return " ".join(element.text or "" for element in ET.fromstring(svg).iter()).replace("\xa0", " ")  # noqa: S314 - our own


def test_the_capture_tells_the_story_in_the_order_it_is_told() -> None:
    text = words_of("demo.svg")
    places = [text.find(f"  {name}") for name in CHAPTERS]
    assert places == sorted(places)
    assert places[0] > 0
    assert text.count("✓") == 9


def test_the_picture_shown_is_one_the_demo_draws() -> None:
    text = words_of("demo-picture.svg")
    rows = re.search(r"The spectrum of ([\d,]+) docstrings", text)
    assert rows is not None
    assert f"{rows[1]} docstrings of" in " ".join(words_of("demo.svg").split())
