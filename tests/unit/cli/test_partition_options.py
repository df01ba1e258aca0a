"""Which partition a command is about, and ages for people."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from sfd_stream.cli.partition_options import place_of, short_age
from sfd_stream.errors import SettingsError

SETTINGS: Any = SimpleNamespace(group="g", input=SimpleNamespace(topic="rows"))


@pytest.mark.parametrize(("text", "topic"), [("3", "rows"), ("clicks/3", "clicks")])
def test_a_partition_is_named_alone_or_with_its_topic(text: str, topic: str) -> None:
    place = place_of(SETTINGS, text)
    assert (place.group, place.topic, place.partition) == ("g", topic, 3)


@pytest.mark.parametrize("text", ["", "x", "rows/", "/3", "a/b/3", "rows/-1", "rows/\u0663"])
def test_what_is_no_partition_is_refused_with_an_example(text: str) -> None:
    with pytest.raises(SettingsError, match="as in rows/0, or just 0"):
        place_of(SETTINGS, text)


@pytest.mark.parametrize(("seconds", "text"), [(42, "42 s"), (180, "3 min"), (18_000, "5 h"), (691_200, "8 d")])
def test_an_age_is_in_the_largest_unit_that_fits(seconds: float, text: str) -> None:
    assert short_age(seconds) == text
