"""`sfd-stream topics`: creates the topics that are missing, and leaves the others as they are."""

from __future__ import annotations

import json

import pytest

from sfd_stream.cli import build
from sfd_stream.cli.commands.topics import topics
from tests.unit.kafka.test_topics import FakeAdmin

GIVEN = ["kafka.bootstrap.servers=b:1", "kafka.group.id=g", "input.topic=rows", "sketch.d=10", "sketch.ell=4"]


def test_a_missing_topic_is_created_and_an_existing_one_is_left_alone(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    cluster = FakeAdmin({"rows": 3})
    monkeypatch.setattr(build, "admin_of", lambda _: cluster)
    overrides = [*GIVEN, "checkpoint.url=memory://x", "snapshot.topic=sketches"]
    topics(partitions=4, overrides=overrides, as_json=True)
    assert json.loads(capsys.readouterr().out) == {"rows": "there", "sketches": "made"}
    assert cluster.topics == {"rows": 3, "sketches": 1}
