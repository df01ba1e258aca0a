"""`sfd-stream basis`: what was pinned is listed, newest first, and shown by its id."""

from __future__ import annotations

import json
import uuid

import pytest

from sfd_stream.cli import main
from sfd_stream.cli.commands.basis import pinned_bases_of
from sfd_stream.config import load
from tests.unit.cli.commands.published import merged

GIVEN = ["kafka.bootstrap.servers=b:1", "kafka.group.id=g", "input.topic=rows", "sketch.d=12", "sketch.ell=6"]


@pytest.fixture
def given() -> list[str]:
    """Settings with a store of their own."""
    return [*GIVEN, f"checkpoint.url=memory://{uuid.uuid4().hex}"]


def basis(*command: str, given: list[str]) -> int:
    return main(["basis", *command, *(word for setting in given for word in ("--set", setting))])


def test_what_is_pinned_is_listed_and_shown_by_its_id(given: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    pinned_id = pinned_bases_of(load(None, environ={}, overrides=given).settings).pin(merged(), 5_000.0)
    assert basis("list", "--json", given=given) == 0
    (listed,) = json.loads(capsys.readouterr().out)["bases"]
    assert (listed["id"], listed["pinned_at_s"], listed["rows"], listed["d"]) == (pinned_id, 5_000.0, 80, 12)
    assert basis("show", pinned_id, given=given) == 0
    assert capsys.readouterr().out.startswith("80 rows, ")


def test_an_empty_list_names_the_command_that_pins(given: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert basis("list", given=given) == 0
    assert 'pin one by "sfd-stream basis pin"' in capsys.readouterr().out


def test_a_sketch_is_pinned_only_from_a_topic_of_snapshots(
    given: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert basis("pin", given=given) == 2
    assert "snapshot.topic is required: the topic whose newest sketch is pinned" in capsys.readouterr().err
