"""The demo keeps its word: claims are checked, a false one is said, and nothing is left behind however it ends."""

from __future__ import annotations

import re
import tempfile
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from sfd_stream.cli import main
from sfd_stream.demo.script import Story
from sfd_stream.storage.open import open_store
from tests.unit.cli.commands.test_demo import small_truth

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.support.kafka import Broker
    from tests.support.seaweed import SeaweedServer
    from tests.unit.demo.conftest import Playing

CHAPTERS = ("Rows", "Stream", "Workers", "Accident", "Count", "Error", "Topics", "Scores", "Picture")


def chapters(text: str) -> list[str]:
    return re.findall(r"^\d+  (.+)$", text, re.MULTILINE)


@pytest.mark.real_s3
@pytest.mark.xdist_group("s3")
@pytest.mark.slow
def test_on_a_kafka_and_a_bucket_of_ones_own_it_stays_until_told_and_takes_everything_away_again(
    play: Callable[..., Playing], kafka: Broker, s3_server: SeaweedServer
) -> None:
    url, options = s3_server.new_url(), s3_server.options()
    environ = {f"SFD_CHECKPOINT__OPTIONS__{name.upper()}": text for name, text in options.items()}
    playing = play("--broker", kafka.bootstrap, "--s3", url.removeprefix("s3://"), "--stay", **environ)
    playing.await_("rows a second until Ctrl-C")
    text = playing.text
    assert chapters(text) == [*CHAPTERS, "It goes on"]
    assert text.count("in the sketch\n") == 4
    topics, store = kafka.admin.list_topics(timeout=10).topics, open_store(url, options)
    assert len([name for name in topics if name.startswith("sfd-demo-")]) == 2
    assert store.list("")

    assert playing.interrupt() == 0
    assert "everything except the picture was removed" in playing.text
    assert "could not remove" not in playing.text
    assert playing.left_behind() == []
    assert [name for name in kafka.admin.list_topics(timeout=10).topics if name.startswith("sfd-demo-")] == []
    groups = kafka.admin.list_consumer_groups(request_timeout=10).result().valid
    assert [group.group_id for group in groups if group.group_id.startswith("sfd-demo-")] == []
    assert store.list("") == []


@pytest.mark.slow
def test_with_json_events_every_claim_holds_too(play: Callable[..., Playing]) -> None:
    playing = play("--json")
    assert playing.process.wait(300) == 0, playing.text
    assert chapters(playing.text) == list(CHAPTERS)
    assert playing.text.count("✓") == 9
    assert 'The first one: {"words": [' in playing.text
    assert playing.left_behind() == []


@pytest.mark.slow
def test_interrupted_in_the_middle_it_leaves_nothing_behind(play: Callable[..., Playing]) -> None:
    playing = play()
    playing.await_("Rows flow")
    assert len(playing.left_behind()) > 3, "its folder, the broker, two workers, itself"
    assert playing.interrupt() == 130
    assert playing.text.endswith("interrupted\n")
    assert playing.left_behind() == []


@pytest.mark.slow
def test_a_claim_that_fails_is_said_with_exit_1_and_nothing_is_left_behind(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    few = small_truth(200)
    twice = replace(few, messages=[*few.messages, few.messages[0]])  # one row more goes in than is claimed
    vars(twice)["block"] = few.block
    monkeypatch.setattr("sfd_stream.demo.checks.truth", lambda: twice)
    monkeypatch.setattr(Story, "accident", lambda story: story.feed.send(twice.messages, 1000.0))  # none today
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    assert main(["demo", "--picture", str(tmp_path / "picture.svg")]) == 1
    out, err = capsys.readouterr()
    assert chapters(out) == ["Rows", "Stream", "Workers", "Count"]
    assert err.startswith("error: the counts of the sketch differ from the input: ")
    assert list(tmp_path.iterdir()) == []
