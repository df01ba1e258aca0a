"""The topics that settings name: compacted where snapshots go, with room for what must fit; made once."""

from __future__ import annotations

import json
import uuid

import pytest

from sfd_stream.cli import main
from sfd_stream.config import load
from sfd_stream.service.topic_plan import wanted_topics
from tests.parts.kafka import Broker

SETTINGS = ["kafka.group.id=g", "sketch.d=10", "sketch.ell=5", "checkpoint.url=memory://x"]


def test_every_topic_that_is_named_is_wanted_and_no_other() -> None:
    named = ["kafka.bootstrap.servers=b:1", "input.topic=rows"]
    few = load(None, environ={}, overrides=[*SETTINGS, *named]).settings
    assert [topic.name for topic in wanted_topics(few, 4)] == ["rows"]
    others = ["snapshot.topic=sketches", "snapshot.inline_max_bytes=900000", "dead_letters.topic=bad"]
    others += ["merge.topic=world", "kafka.message.max.bytes=3000000"]
    settings = load(None, environ={}, overrides=[*SETTINGS, *named, *others]).settings
    rows, sketches, bad, world = wanted_topics(settings, 4)
    assert (rows.name, sketches.name, bad.name, world.name) == ("rows", "sketches", "bad", "world")
    assert (rows.partitions, sketches.partitions, bad.partitions, world.partitions) == (4, 1, 4, 1)
    assert sketches.config["cleanup.policy"] == world.config["cleanup.policy"] == "compact"
    assert int(world.config["max.message.bytes"]) > 3_000_000, "a merge is never published as a reference"
    assert int(sketches.config["max.message.bytes"]) > settings.snapshot.inline_max_bytes
    assert int(bad.config["max.message.bytes"]) > settings.input.max_message_bytes


def test_they_are_made_once_and_left_alone_after(kafka: Broker, capsys: pytest.CaptureFixture[str]) -> None:
    name = f"t-{uuid.uuid4().hex[:8]}"
    given = [*SETTINGS, f"kafka.bootstrap.servers={kafka.bootstrap}", f"input.topic={name}"]
    given += [f"snapshot.topic={name}-sketches", f"dead_letters.topic={name}-bad", f"merge.topic={name}-world"]
    command = ["topics", "--partitions", "3", "--json"] + [word for item in given for word in ("--set", item)]
    assert main(command) == 0
    made = json.loads(capsys.readouterr().out)
    assert made == dict.fromkeys([name, f"{name}-sketches", f"{name}-bad", f"{name}-world"], "made")
    kafka._wait_for(lambda: kafka.leaders_known(name, partitions=3), "the topic")
    assert main(command) == 0
    assert set(json.loads(capsys.readouterr().out).values()) == {"there"}


def test_a_broker_that_refuses_is_said(kafka: Broker, capsys: pytest.CaptureFixture[str]) -> None:
    given = [*SETTINGS, f"kafka.bootstrap.servers={kafka.bootstrap}", f"input.topic=t-{uuid.uuid4().hex[:8]}"]
    command = ["topics", "--partitions", "1", "--replication-factor", "7"]
    assert main(command + [word for item in given for word in ("--set", item)]) == 5
    assert "can't be made (INVALID_REPLICATION_FACTOR" in capsys.readouterr().err
