"""The topics that settings name: compacted where snapshots go, with room for what must fit; made once."""

from __future__ import annotations

import json
import uuid
from typing import Any

import pytest

from sfd_stream.cli import build, main
from sfd_stream.config import load
from sfd_stream.tools.topics import create_missing, merge_topic, wanted_topics
from tests.support.kafka import Broker
from tests.unit.kafka.test_topics import FakeAdmin

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


@pytest.mark.parametrize("inline_bytes", [100, 900_000, 3_000_000])
def test_run_and_merge_create_their_topics_as_topics_does(inline_bytes: int, monkeypatch: pytest.MonkeyPatch) -> None:
    given = ["kafka.bootstrap.servers=b:1", "input.topic=rows", "snapshot.topic=sketches", "merge.topic=world"]
    given += [f"snapshot.inline_max_bytes={inline_bytes}", "kafka.message.max.bytes=5000000"]
    settings = load(None, environ={}, overrides=[*SETTINGS, *given]).settings
    _, sketches, world = wanted_topics(settings, 4)
    admin = Recorder({})
    monkeypatch.setattr(build, "admin_of", lambda _: admin)
    build.make_output_topic(settings, timeout_s=1.0)
    create_missing(admin, [merge_topic("world", settings.kafka)])
    assert admin.created == [(wanted.name, wanted.partitions, wanted.config) for wanted in (sketches, world)]


def test_a_topic_of_snapshots_that_has_more_partitions_is_used_as_it_is(monkeypatch: pytest.MonkeyPatch) -> None:
    given = ["kafka.bootstrap.servers=b:1", "input.topic=rows", "snapshot.topic=sketches"]
    admin = Recorder({"sketches": 6})
    monkeypatch.setattr(build, "admin_of", lambda _: admin)
    build.make_output_topic(load(None, environ={}, overrides=[*SETTINGS, *given]).settings, timeout_s=1.0)
    assert admin.created == []


class Recorder(FakeAdmin):
    """Keeps how each topic was created."""

    def __init__(self, topics: dict[str, int]) -> None:
        super().__init__(topics)
        self.created: list[tuple[str, int, dict[str, str]]] = []

    def create_topics(self, new: list[Any], **times: float) -> dict[str, Any]:
        self.created += [(topic.topic, topic.num_partitions, topic.config) for topic in new]
        return super().create_topics(new, **times)


def test_a_broker_that_refuses_is_said(kafka: Broker, capsys: pytest.CaptureFixture[str]) -> None:
    given = [*SETTINGS, f"kafka.bootstrap.servers={kafka.bootstrap}", f"input.topic=t-{uuid.uuid4().hex[:8]}"]
    command = ["topics", "--partitions", "1", "--replication-factor", "7"]
    assert main(command + [word for item in given for word in ("--set", item)]) == 5
    assert "can't be created (INVALID_REPLICATION_FACTOR" in capsys.readouterr().err
