"""`sfd-stream merge`: which topics it merges, and which it refuses before it asks a broker."""

from __future__ import annotations

import pytest

from sfd_stream.cli.commands.merge import merge
from sfd_stream.errors import SettingsError


def merged(*settings: str, once: bool = True, as_json: bool = False) -> None:
    overrides = ["kafka.group.id=world", *(f"merge.{setting}" for setting in settings)]
    merge(None, overrides, "127.0.0.1:1", once, as_json)


@pytest.mark.parametrize(
    ("settings", "error"),
    [
        (("topic=world",), "merge.topics is required"),
        (("topics=eu,us",), "merge.topic is required"),
        (("topics=eu,us", "topic=us"), "us is one of them"),
    ],
)
def test_topics_that_cannot_be_merged_are_refused(settings: tuple[str, ...], error: str) -> None:
    with pytest.raises(SettingsError, match=error):
        merged(*settings)


def test_json_is_printed_of_one_merge_only() -> None:
    with pytest.raises(SettingsError, match="--json needs --once"):
        merged("topics=eu,us", "topic=world", once=False, as_json=True)
