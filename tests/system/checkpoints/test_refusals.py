"""Every refusal to start names a command, and following it repairs: on a real broker, with real workers."""

from __future__ import annotations

import json
import re
import shlex
import shutil
from typing import TYPE_CHECKING

import pytest

from sfd_stream.cli.build import output_epochs
from tests.system.checkpoints.conftest import D, History, Site, messages

if TYPE_CHECKING:
    from pathlib import Path

    from tests.support.kafka import Broker

Said = pytest.CaptureFixture[str]
ALL_BAD = {"max_share": 1.0, "max_consecutive": 1_000}
ADVICE = re.compile(r'"sfd-stream (checkpoint [^"]+)"')


@pytest.fixture
def live(site: Site, kafka: Broker) -> Site:
    """A topic with 30 rows."""
    site.bootstrap, site.topic = kafka.bootstrap, kafka.create_topic()
    site.write()
    kafka.produce(site.topic, messages(0, 30))
    return site


def follow(site: Site, words: str, which: int = 0) -> tuple[int, list[str]]:
    """Runs the command that a message names; its exit code, and its words."""
    command = shlex.split(ADVICE.findall(words)[which])
    return site.run(*command, "--yes"), command


def counted(site: Site, capsys: Said) -> tuple[int, int]:
    found = site.rows(capsys)["0"]
    return found["rows"], found["next_offset"]


def test_a_store_that_is_gone(live: Site, capsys: Said) -> None:
    assert counted(live, capsys) == (30, 30)
    shutil.rmtree(live.folder / "store")
    words = live.refusal(capsys)
    assert "has committed offset 30" in words
    assert follow(live, words)[0] == 0
    assert counted(live, capsys) == (30, 30)


@pytest.mark.parametrize("to", ["earliest", "0"])
def test_a_state_begun_anew_is_news_to_those_who_read_snapshots(
    live: Site, kafka: Broker, capsys: Said, to: str
) -> None:
    """Though the store, which knew the epochs, is gone."""
    live.write(snapshot={"topic": kafka.create_topic(config={"cleanup.policy": "compact"})})
    for first in (30, 40, 50):
        live.rows(capsys)
        kafka.produce(live.topic, messages(first, first + 10))
    shown = output_epochs(live.settings).get(0)
    assert shown == 3
    shutil.rmtree(live.folder / "store")
    assert live.run("checkpoint", "reset", "0", "--to", to, "--yes") == 0
    assert live.newest().epoch > shown
    assert counted(live, capsys) == (60, 60)
    after = output_epochs(live.settings).get(0)
    assert after is not None
    assert after > shown


@pytest.mark.parametrize("what", ["manifest", "blob"])
def test_a_damaged_checkpoint(live: Site, kafka: Broker, capsys: Said, what: str) -> None:
    live.rows(capsys)
    kafka.produce(live.topic, messages(30, 50))
    live.rows(capsys)
    damage(newest_manifest(live) if what == "manifest" else live.blob_paths()[-1])
    words = live.refusal(capsys)
    code, command = follow(live, words)
    assert (code, command[1]) == (0, "rollback")
    assert counted(live, capsys) == (50, 50)


def test_every_manifest_damaged(live: Site, capsys: Said) -> None:
    """The rollback that the worker advises finds nothing to go back to, and names the reset that helps."""
    live.rows(capsys)
    for path in newest_manifest(live).parent.iterdir():
        damage(path)
    assert follow(live, live.refusal(capsys))[0] == 3
    assert follow(live, capsys.readouterr().err)[0] == 0
    assert counted(live, capsys) == (30, 30)


def test_retention_overtook_the_checkpoint(live: Site, kafka: Broker, capsys: Said) -> None:
    live.rows(capsys)
    kafka.produce(live.topic, messages(30, 60))
    kafka.delete_records(live.topic, 0, 40)
    words = live.refusal(capsys)
    assert "offsets 30 to 39" in words
    assert follow(live, words)[0] == 0
    assert counted(live, capsys) == (50, 60)  # 30 kept, 20 read, 10 lost and said so


def test_a_topic_deleted_and_made_again(live: Site, kafka: Broker, capsys: Said) -> None:
    live.rows(capsys)
    kafka.delete_topic(live.topic)
    kafka.create_topic(name=live.topic)
    kafka.produce(live.topic, messages(0, 45))
    words = live.refusal(capsys)
    assert "deleted and created again" in words
    assert follow(live, words)[0] == 0
    assert counted(live, capsys) == (45, 45)


def test_another_cluster(live: Site, capsys: Said) -> None:
    History(live, ids=("another", None)).claim().checkpoint(10)
    words = live.refusal(capsys)
    assert "cluster another" in words
    assert follow(live, words)[0] == 0
    assert counted(live, capsys) == (30, 30)


@pytest.mark.parametrize(
    "change",
    [
        {"sketch": {"d": D - 1}},
        {"input": {"columns": "growing"}},
        {"input": {"columns": "hashed"}},
    ],
)
def test_columns_that_would_change_their_meaning(
    live: Site, kafka: Broker, capsys: Said, change: dict[str, dict[str, object]]
) -> None:
    kafka.produce(live.topic, [b"not rows"])
    live.write(dead_letters=ALL_BAD | {"topic": kafka.create_topic()})
    live.rows(capsys)
    live.write(dead_letters=ALL_BAD | {"topic": kafka.create_topic()}, **change)
    words = live.refusal(capsys)
    assert "was made with" in words
    assert follow(live, words)[0] == 0
    found = live.rows(capsys)["0"]
    assert (found["rows"] + found["bad"], found["next_offset"]) == (31, 31)


def test_a_log_that_lost_records_by_going_back(live: Site, capsys: Said) -> None:
    beyond_the_end(live)
    tries = 0
    while tries < 5:
        tries += 1
        assert follow(live, live.refusal(capsys), 0)[0] == 0
        if live.newest().next_offset <= 30:
            break
    assert tries == 2
    assert counted(live, capsys) == (30, 30)


def test_a_log_that_lost_records_by_going_on(live: Site, kafka: Broker, capsys: Said) -> None:
    beyond_the_end(live)
    assert follow(live, live.refusal(capsys), 1)[0] == 0
    kafka.produce(live.topic, messages(30, 35))
    assert counted(live, capsys) == (65, 35)


def beyond_the_end(site: Site) -> None:
    """Checkpoints at 20, 40 and 60 of a log that ends at 30, as after an unclean election."""
    owner = History(site, ids=(None, None)).claim()
    for _ in range(3):
        owner.checkpoint(20)


@pytest.mark.parametrize(("to", "wanted"), [("earliest", (20, 30)), ("latest", (0, 30)), ("25", (5, 30))])
def test_a_reset_begins_where_it_is_told(
    live: Site, kafka: Broker, capsys: Said, to: str, wanted: tuple[int, int]
) -> None:
    live.rows(capsys)
    kafka.delete_records(live.topic, 0, 10)
    assert live.run("checkpoint", "reset", f"{live.topic}/0", "--to", to, "--yes", "--json") == 0
    made = json.loads(capsys.readouterr().out)
    assert made["next_offset"] == {"earliest": 10, "latest": 30, "25": 25}[to]
    assert counted(live, capsys) == wanted


def test_a_reset_of_a_partition_or_topic_that_is_not_there_is_refused(live: Site, capsys: Said) -> None:
    assert live.run("checkpoint", "reset", "7", "--to", "earliest", "--yes") == 2
    assert "partitions 0 to 0" in capsys.readouterr().err
    assert live.run("checkpoint", "reset", "no-such-topic/0", "--to", "earliest", "--yes") == 5


def test_a_reset_that_needs_a_broker_says_what_needs_none(site: Site, capsys: Said) -> None:
    site.write(kafka={"bootstrap.servers": "127.0.0.1:1"})
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("sfd_stream.cli.commands.checkpoint_repair.BROKER_TIMEOUT_S", 0.5)
        assert site.run("checkpoint", "reset", "0", "--to", "earliest", "--yes") == 5
    assert "--to OFFSET" in capsys.readouterr().err


def newest_manifest(site: Site) -> Path:
    return site.folder / "store" / site.place().prefix / "manifests" / f"{site.newest().number:020d}"


def damage(path: Path) -> None:
    whole = path.read_bytes()
    path.write_bytes(whole[:-1] + bytes([whole[-1] ^ 1]))
