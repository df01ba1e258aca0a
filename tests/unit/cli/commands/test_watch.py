"""`sfd-stream watch`: a line for each change, the live screen, and the lag."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest
from rich.console import Console

from sfd_stream.cli import logins
from sfd_stream.cli.commands.watch import SketchUpdate, view
from sfd_stream.kafka import admin
from sfd_stream.kafka.errors import Hooks
from sfd_stream.reader.merged import merge
from tests.unit.cli.test_reading_commands import made, run
from tests.unit.reader.made import message, publish

if TYPE_CHECKING:
    from tests.support.kafka_fixtures import BuiltIn


@pytest.fixture
def topic(built_in: BuiltIn) -> str:
    name = built_in.create_topic()
    publish(built_in, name, map(message, made()))
    return name


def test_watch_prints_a_line_a_change(built_in: BuiltIn, topic: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(built_in, "watch", "--topic", topic, "--changes", "1", "--every", "0.1") == 0
    assert "MergedSketch(all 2 partitions" in capsys.readouterr().out


def test_watch_json_is_an_object_a_line_for_each_change(
    built_in: BuiltIn, topic: str, capsys: pytest.CaptureFixture[str]
) -> None:
    command = ["watch", "--topic", topic, "--changes", "1", "--every", "0.1", "--top", "3", "--json"]
    assert run(built_in, *command) == 0
    (line,) = capsys.readouterr().out.splitlines()
    found = json.loads(line)
    assert (found["rows"], found["complete"], len(found["directions"])) == (80, True, 3)
    assert found["drift"]["angles"] == pytest.approx([0.0] * 3, abs=1e-6)
    assert isinstance(found["lag"], dict)


def test_what_asks_for_the_lag_logs_in_as_the_reader_does(
    built_in: BuiltIn, topic: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    login, told = Hooks(), []

    class Watched(admin.Admin):
        def __init__(self, properties: Any, hooks: Hooks | None = None) -> None:
            told.append((properties["log_level"], hooks))
            super().__init__(properties, hooks)

    monkeypatch.setattr(admin, "Admin", Watched)
    monkeypatch.setattr(logins, "hooks_for", lambda named, _: login if named == "our_tokens:make" else None)
    flags = ["--changes", "1", "--every", "0.1", "--set", "kafka_oauth_callback=our_tokens:make"]
    assert run(built_in, "watch", "--topic", topic, *flags) == 0
    assert told == [(2, login)]


def test_the_live_view_shows_partitions_bars_and_drift() -> None:
    merged = merge(made((0, 2), 3), 1000.0)
    look = SketchUpdate(merged, made((0, 2), 3), {"rows/0": 1234}, merged.drift(merged, 2))
    console = Console(width=160, record=True, file=open("/dev/null", "w"))  # noqa: SIM115, PTH123 - nobody reads it
    console.print(view(look, 3, 4))
    text = console.export_text()
    console.file.close()
    assert "INCOMPLETE: 2 of 3 partitions" in text
    assert "1,234" in text
    assert "missing" in text
    assert "█" * 30 in text
    assert "drift 0.0°" in text
    assert "[red]star[/red]" in text
