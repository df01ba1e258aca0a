"""What goes wrong most often, in every command: a sentence and a remedy, never a traceback."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from sfd_stream.cli import main
from sfd_stream.kafka import topics
from tests.support.kafka import free_ports

if TYPE_CHECKING:
    from pathlib import Path

NEED_SETTINGS = [
    ["run"],
    ["doctor"],
    ["topics", "--partitions", "1"],
    ["config", "check"],
    ["config", "show"],
    *(["checkpoint", name] for name in ("ls", "verify", "prune")),
    *(["checkpoint", name, "rows/0"] for name in ("show", "rollback")),
    ["checkpoint", "reset", "rows/0", "--to", "earliest"],
]
NEED_A_BROKER = [["read"], ["watch"], ["merge"], ["plot", "x.svg"], ["export", "x.npz"]]


@pytest.fixture(autouse=True)
def _no_settings(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("SFD_CONFIG", raising=False)


@pytest.mark.parametrize("command", NEED_SETTINGS, ids=" ".join)
def test_without_settings_it_lists_what_is_missing_and_how_to_begin(
    command: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(command) == 2
    out, err = capsys.readouterr()
    assert "input.topic is required" in out + err
    assert '"sfd-stream config schema --example" prints one to begin with' in out + err
    assert "Traceback" not in out + err


@pytest.mark.parametrize("command", NEED_A_BROKER, ids=" ".join)
def test_without_a_broker_it_asks_which(command: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert main(command) == 2
    assert capsys.readouterr().err == (
        "error: which broker? Give --broker HOST:PORT, --config FILE or SFD_KAFKA__BOOTSTRAP_SERVERS\n"
    )


def test_a_file_that_is_not_there_is_said_before_any_broker_is_asked(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    flags = ["--topic", "rows", "--broker", f"127.0.0.1:{free_ports(1)[0]}"]
    assert main(["produce", str(tmp_path / "rows.npz"), *flags]) == 2
    assert (
        capsys.readouterr().err
        == f"error: there is no file {tmp_path / 'rows.npz'}; give the path of one that can be read\n"
    )


def test_nobody_there_is_not_taken_for_a_missing_right(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(topics, "_TIMEOUT_S", 1.0)
    given = {
        "kafka.bootstrap.servers": f"127.0.0.1:{free_ports(1)[0]}",
        "kafka.group.id": "g",
        "input.topic": "rows",
        "sketch.d": "100",
        "checkpoint.url": "memory://sentences",
    }
    flags = [word for item in given.items() for word in ("--set", "=".join(item))]
    assert main(["topics", "--partitions", "1", *flags]) == 5
    err = capsys.readouterr().err.splitlines()[-1]
    assert "did not answer within 1 s" in err
    assert "grant CREATE" not in err
