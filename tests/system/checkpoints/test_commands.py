"""`checkpoint ls|show|verify|rollback|reset|prune` on a store, without a broker."""

from __future__ import annotations

import io
import json
import sys
import uuid
from pathlib import Path
from typing import Any

import pytest

from sfd_stream.errors import FencedError, RefusedStateError
from sfd_stream.state.manifest import Kind
from tests.system.checkpoints.conftest import History, Site


@pytest.fixture
def history(site: Site) -> History:
    """Manifests 1 (genesis), 2 (10 rows), 3 (20 rows), 4 (30 rows)."""
    made = History(site).claim()
    for _ in range(3):
        made.checkpoint(10)
    return made


def said(capsys: pytest.CaptureFixture[str]) -> Any:
    return json.loads(capsys.readouterr().out)


def test_ls_tells_each_partitions_newest(history: History, site: Site, capsys: pytest.CaptureFixture[str]) -> None:
    History(site, 7).claim()
    assert site.run("checkpoint", "ls", "--json") == 0
    found = said(capsys)["partitions"]
    assert set(found) == {"0", "7"}
    wanted = {"number": 4, "epoch": 1, "state": "checkpoint", "rows": 30, "next_offset": 30}
    assert found["0"].items() >= wanted.items()
    assert found["0"]["bytes"] == sum(path.stat().st_size for path in site.blob_paths())
    assert found["7"]["state"] == "genesis"
    assert site.run("checkpoint", "ls") == 0
    assert f"{site.topic}/7" in capsys.readouterr().out


def test_ls_of_nothing_says_so(site: Site, capsys: pytest.CaptureFixture[str]) -> None:
    assert site.run("checkpoint", "ls") == 0
    assert "no checkpoint" in capsys.readouterr().out


def test_ls_goes_on_past_an_unreadable_manifest(
    history: History, site: Site, capsys: pytest.CaptureFixture[str]
) -> None:
    manifest_path(site, 4).write_bytes(b"rubbish")
    assert site.run("checkpoint", "ls", "--json") == 0
    found = said(capsys)["partitions"]["0"]
    assert found["number"] == 4
    assert f"checkpoint rollback {site.topic}/0" in found["state"]


@pytest.mark.parametrize("short", [True, False])
def test_show_prints_a_manifest_and_its_blobs(
    history: History, site: Site, capsys: pytest.CaptureFixture[str], short: bool
) -> None:
    where = "0" if short else f"{site.topic}/0"
    assert site.run("checkpoint", "show", where, "--number", "3", "--json") == 0
    found = said(capsys)
    assert (found["number"], found["next_offset"], found["counters"]["rows"]) == (3, 20, 20)
    assert found["topic_id"] == "t"
    assert all((site.folder / "store" / blob["key"]).stat().st_size == blob["bytes"] for blob in found["blobs"])
    assert site.run("checkpoint", "show", where) == 0
    assert "counters.rows" in capsys.readouterr().out


def test_show_of_what_is_not_there_is_refused(history: History, site: Site, capsys: pytest.CaptureFixture[str]) -> None:
    assert site.run("checkpoint", "show", "0", "--number", "9") == 3
    assert "there are 1, 2, 3, 4" in capsys.readouterr().err
    assert site.run("checkpoint", "show", "5") == 3
    assert "checkpoint ls" in capsys.readouterr().err
    assert site.run("checkpoint", "show", "rows/x") == 2


def test_verify_is_content_with_a_whole_store(history: History, site: Site, capsys: pytest.CaptureFixture[str]) -> None:
    History(site).claim().checkpoint(5)
    assert site.run("checkpoint", "verify", "--json") == 0
    found = said(capsys)["partitions"][f"{site.topic}/0"]
    assert found["ok"]
    assert found["manifests"] == 6
    assert found["blobs"] >= 2


@pytest.mark.parametrize("damage", ["flip", "cut", "remove", "swap"])
def test_verify_finds_any_damaged_blob(
    history: History, site: Site, capsys: pytest.CaptureFixture[str], damage: str
) -> None:
    for path in site.blob_paths():
        whole = path.read_bytes()
        spoil(path, whole, damage)
        assert site.run("checkpoint", "verify", f"{site.topic}/0") == 3
        assert f"checkpoint rollback {site.topic}/0" in capsys.readouterr().out
        path.write_bytes(whole)
    assert site.run("checkpoint", "verify", f"{site.topic}/0") == 0


def spoil(path: Path, whole: bytes, damage: str) -> None:
    match damage:
        case "flip":
            path.write_bytes(whole[:-1] + bytes([whole[-1] ^ 1]))
        case "cut":
            path.write_bytes(whole[:-1])
        case "remove":
            path.unlink()
        case "swap":
            path.write_bytes(b"x" * len(whole))


def test_verify_finds_a_manifest_that_does_not_follow(
    history: History, site: Site, capsys: pytest.CaptureFixture[str]
) -> None:
    other = Site(site.folder / "other", site.topic, site.group)
    other.folder.mkdir()
    other.write()
    stranger = History(other).claim()
    for _ in range(3):
        stranger.checkpoint(10)
    foreign = other.folder / "store" / site.place().prefix
    for path in [manifest_path(other, 3), *(foreign / "blobs").iterdir()]:
        (site.folder / "store" / path.relative_to(other.folder / "store")).write_bytes(path.read_bytes())
    assert site.run("checkpoint", "verify") == 3
    assert "does not follow" in capsys.readouterr().out


def test_verify_of_a_partition_without_checkpoints_is_refused(site: Site) -> None:
    assert site.run("checkpoint", "verify", "3") == 3


def test_rollback_is_a_new_manifest_of_the_state_before(history: History, site: Site) -> None:
    assert site.run("checkpoint", "rollback", "0", "--yes") == 0
    made = site.newest()
    assert (made.number, made.kind, made.next_offset, made.counters["rows"]) == (5, Kind.ROLLBACK, 20, 20)
    assert made.epoch > history.chain.newest.epoch
    with pytest.raises(FencedError):
        history.checkpoint(10)
    assert History(site).claim().state.rows == 20
    assert site.run("checkpoint", "verify") == 0


def test_rollback_again_goes_further_back_and_never_forth(history: History, site: Site) -> None:
    offsets = []
    for claimed in (False, True, False):
        if claimed:
            History(site).claim()
        assert site.run("checkpoint", "rollback", "0", "--yes") == 0
        offsets.append(site.newest().next_offset)
    assert offsets == [20, 10, 0]
    assert site.run("checkpoint", "rollback", "0", "--yes") == 3


def test_rollback_after_going_on_from_a_rollback_takes_the_state_before(history: History, site: Site) -> None:
    site.run("checkpoint", "rollback", "0", "--yes")
    owner = History(site).claim()
    owner.checkpoint(3)
    owner.checkpoint(4)
    assert site.run("checkpoint", "rollback", "0", "--yes") == 0
    assert site.newest().next_offset == 23


def test_rollback_to_a_named_checkpoint(history: History, site: Site, capsys: pytest.CaptureFixture[str]) -> None:
    assert site.run("checkpoint", "rollback", "0", "--to", "2", "--yes", "--json") == 0
    assert said(capsys)["rows"] == 10
    assert site.run("checkpoint", "rollback", "0", "--to", "99", "--yes") == 3


def test_a_reset_without_a_broker_starts_at_the_offset_with_nothing(
    history: History, site: Site, capsys: pytest.CaptureFixture[str]
) -> None:
    assert site.run("checkpoint", "reset", "0", "--to", "17", "--yes") == 0
    assert f"rollback {site.topic}/0 --to 4" in capsys.readouterr().err
    state = History(site).claim().state
    assert (state.rows, state.next_offset) == (0, 17)


def test_a_reset_is_undone_by_the_rollback_that_it_names(history: History, site: Site) -> None:
    site.run("checkpoint", "reset", "0", "--to", "17", "--yes")
    assert site.run("checkpoint", "rollback", "0", "--to", "4", "--yes") == 0
    assert History(site).claim().state.rows == 30


@pytest.mark.parametrize(("offset", "words"), [(25, "COUNTED TWICE"), (50, "never counted"), (30, "same offset")])
def test_a_reset_that_keeps_the_sketch_says_what_that_means(
    history: History, site: Site, capsys: pytest.CaptureFixture[str], offset: int, words: str
) -> None:
    assert site.run("checkpoint", "reset", "0", "--to", str(offset), "--keep-sketch", "--yes") == 0
    assert words in capsys.readouterr().err
    state = History(site).claim().state
    assert (state.rows, state.next_offset) == (30, offset)


def test_a_reset_where_there_is_no_checkpoint_makes_the_first(site: Site) -> None:
    assert site.run("checkpoint", "reset", "0", "--to", "5", "--yes") == 0
    assert (site.newest().number, site.newest().next_offset) == (1, 5)


def test_a_reset_without_a_broker_is_bound_to_the_topic_by_the_next_claim(history: History, site: Site) -> None:
    assert site.run("checkpoint", "reset", "0", "--to", "5", "--yes") == 0
    assert site.newest().binding.topic_id is None
    History(site, ids=("c", "another")).claim().checkpoint(1)
    assert site.newest().binding.topic_id == "another"
    with pytest.raises(RefusedStateError, match="deleted and created again"):
        History(site, ids=("c", "a third")).claim()
    assert site.run("checkpoint", "verify") == 0


@pytest.mark.parametrize("command", [("rollback", "0"), ("reset", "0", "--to", "5")])
def test_nothing_is_done_without_a_yes(
    history: History, site: Site, capsys: pytest.CaptureFixture[str], command: tuple[str, ...]
) -> None:
    assert site.run("checkpoint", *command) == 2
    assert "--yes" in capsys.readouterr().err
    assert site.newest().number == 4


@pytest.mark.parametrize(("answer", "code", "number"), [("y\n", 0, 5), ("n\n", 130, 4), ("\n", 130, 4), ("", 130, 4)])
def test_on_a_terminal_it_asks(
    history: History, site: Site, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str],
    answer: str, code: int, number: int,
) -> None:  # fmt: skip
    typed = io.StringIO(answer)
    monkeypatch.setattr(typed, "isatty", lambda: True, raising=False)
    monkeypatch.setattr(sys, "stdin", typed)
    assert site.run("checkpoint", "rollback", "0") == code
    told = capsys.readouterr().err
    assert told.index("20 rows") < told.index("Do it?"), "what will happen is said before it is asked"
    assert site.newest().number == number


def test_the_commands_work_on_any_store(tmp_path: Path) -> None:
    site = Site(tmp_path, store_url=f"memory://{uuid.uuid4().hex}")
    site.write()
    owner = History(site).claim()
    for _ in range(3):
        owner.checkpoint(10)
    assert site.run("checkpoint", "rollback", "0", "--yes") == 0
    assert site.run("checkpoint", "reset", "0", "--to", "5", "--keep-sketch", "--yes") == 0
    assert site.run("checkpoint", "prune", "--set", "checkpoint.keep=2") == 0
    assert site.run("checkpoint", "verify") == 0
    assert History(site).claim().state.rows == 20


@pytest.mark.parametrize("to", ["", "-1", "first", "1.5", "\uff11"])
def test_a_reset_to_nowhere_is_refused(history: History, site: Site, to: str) -> None:
    assert site.run("checkpoint", "reset", "0", f"--to={to}", "--yes") == 2
    assert site.newest().number == 4


def test_prune_keeps_as_many_states_as_it_is_told(
    history: History, site: Site, capsys: pytest.CaptureFixture[str]
) -> None:
    (site.folder / "store" / ".tmp-left").write_bytes(b"")
    assert site.run("checkpoint", "prune", "--set", "checkpoint.keep=1", "--json") == 0
    assert said(capsys)["partitions"]["0"]["manifests"] == 3
    assert site.run("checkpoint", "verify") == 0
    assert History(site).claim().state.rows == 30


def test_a_running_owner_goes_on_after_a_prune(history: History, site: Site) -> None:
    assert site.run("checkpoint", "prune", "--set", "checkpoint.keep=1") == 0
    history.checkpoint(10)
    assert site.newest().next_offset == 40
    assert site.run("checkpoint", "verify") == 0


def manifest_path(site: Site, number: int) -> Path:
    return site.folder / "store" / site.place().prefix / "manifests" / f"{number:020d}"
