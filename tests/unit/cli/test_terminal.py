"""Text from outside never reaches a terminal raw: names of columns, topics, keys, and what brokers and stores say."""

from __future__ import annotations

import io
import json
import logging
from dataclasses import replace
from typing import TYPE_CHECKING
from xml.etree import ElementTree as ET

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.console import Console

from sfd_stream import SnapshotReader
from sfd_stream.cli import app, main
from sfd_stream.cli.commands.doctor import _print
from sfd_stream.cli.commands.watch import SketchUpdate, view
from sfd_stream.cli.output import print_json, print_table
from sfd_stream.demo.view import DemoOutput
from sfd_stream.doctor import Examined
from sfd_stream.doctor.check import warning
from sfd_stream.errors import RefusedStateError
from sfd_stream.observe.logs import configure, get_logger
from sfd_stream.reader.merged import merge
from tests.unit.cli.test_reading_commands import made
from tests.unit.reader.made import message, publish

if TYPE_CHECKING:
    from pathlib import Path

    from tests.support.kafka_fixtures import BuiltIn

EVIL = "a\x1b]0;title\x07\x1b[31mb\nc\u202ed\x9be\x7f"
SAFE = r"a\x1b]0;title\x07\x1b[31mb\nc\u202ed\x9be\x7f"


def assert_safe(text: str) -> None:
    assert text.replace("\n", "").isprintable(), ascii(text)
    assert "b\nc" not in text


@pytest.fixture
def evil_topic(built_in: BuiltIn) -> str:
    name = built_in.create_topic()
    names = dict.fromkeys(range(12), EVIL)
    publish(built_in, name, [message(replace(one, names=names)) for one in made()])
    return name


@pytest.mark.parametrize("command", [["read"], ["watch", "--changes", "1", "--every", "0.1"]])
def test_commands_that_read_print_names_safely(
    built_in: BuiltIn, evil_topic: str, command: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert main([*command, "--topic", evil_topic, "--broker", built_in.bootstrap]) == 0
    printed = capsys.readouterr()
    assert_safe(printed.out)
    assert_safe(printed.err)
    if command == ["read"]:
        assert SAFE in printed.out


@pytest.mark.parametrize("command", [["read"], ["watch", "--changes", "1", "--every", "0.1"]])
def test_json_is_safe_and_loses_nothing(
    built_in: BuiltIn, evil_topic: str, command: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert main([*command, "--json", "--topic", evil_topic, "--broker", built_in.bootstrap]) == 0
    printed = capsys.readouterr().out
    assert_safe(printed)
    assert json.loads(printed)["directions"][0]["columns"][0]["name"] == EVIL


def test_a_picture_of_such_names_is_well_formed(built_in: BuiltIn, evil_topic: str, tmp_path: Path) -> None:
    file = tmp_path / "sketch.svg"
    command = ["plot", str(file), "--what", "components", "--topic", evil_topic, "--broker", built_in.bootstrap]
    assert main(command) == 0
    texts = [element.text or "" for element in ET.fromstring(file.read_text()).iter() if "text" in element.tag]  # noqa: S314 - our own
    assert SAFE[:17] + "…" in texts


@given(st.text())
def test_printed_json_is_printable_and_reads_back(text: str) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("sys.stdout", stream := io.StringIO())
        print_json({text: [text]})
    assert stream.getvalue().replace("\n", "").isprintable()
    assert json.loads(stream.getvalue()) == {text: [text]}


def test_the_live_view_shows_names_and_labels_safely() -> None:
    parts = [replace(one, id=replace(one.id, topic=f"[red]{EVIL}"), names={0: EVIL}) for one in made()]
    merged = merge(parts[:1], 1000.0)
    console = Console(width=300, file=io.StringIO())
    console.print(view(SketchUpdate(merged, parts, {}, None), 3, 12))
    shown = console.file.getvalue()  # type: ignore[attr-defined]
    assert_safe(shown)
    assert f"[red]{SAFE}" in shown


@pytest.mark.parametrize("width", [40, 1000])
def test_tables_are_safe_at_any_width(width: int, monkeypatch: pytest.MonkeyPatch) -> None:
    stream = io.StringIO()
    stream.isatty = lambda: True  # type: ignore[method-assign]
    monkeypatch.setattr("sys.stdout", stream)
    monkeypatch.setenv("COLUMNS", str(width))
    monkeypatch.setenv("TERM", "dumb")
    print_table(("name", "other"), [(EVIL * 4, 3)])
    assert_safe(stream.getvalue())


def test_what_doctor_finds_is_printed_safely(capsys: pytest.CaptureFixture[str]) -> None:
    _print(Examined("store", warning(EVIL, EVIL)))
    printed = capsys.readouterr().out
    assert_safe(printed)
    assert printed.count(SAFE) == 2


def test_what_the_demo_says_is_printed_safely() -> None:
    teller = DemoOutput(Console(file=io.StringIO(), width=300))
    teller.sentence(EVIL)
    teller.check(EVIL)
    teller.bars([(1.0, EVIL)])
    assert_safe(teller.console.file.getvalue())  # type: ignore[attr-defined]


@pytest.mark.parametrize("debug", [[], ["--debug"]])
@pytest.mark.parametrize("error", [RefusedStateError(EVIL), RuntimeError(EVIL)])
def test_the_last_sentence_of_a_command_is_safe(
    error: Exception, debug: list[str], capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(_: list[str]) -> int:
        raise error

    monkeypatch.setattr(app, "run", fail)
    assert main(["read", *debug]) != 0
    printed = capsys.readouterr().err
    assert printed.replace("\n", "").isprintable()
    assert r"a\x1b]0;title\x07\x1b[31mb" in printed


def test_misuse_is_reported_safely(capsys: pytest.CaptureFixture[str]) -> None:
    assert main([f"--{EVIL}"]) == 2
    assert capsys.readouterr().err.replace("\n", "").isprintable()


def test_a_reader_is_described_safely(built_in: BuiltIn, evil_topic: str) -> None:
    with SnapshotReader(built_in.bootstrap, evil_topic) as reader:
        assert_safe(repr(reader.merged()))


@pytest.mark.parametrize("form", ["text", "json"])
def test_log_lines_are_safe(form: str) -> None:
    stream = io.StringIO()
    configure(form=form, stream=stream)  # type: ignore[arg-type]
    get_logger(topic=EVIL).warning(EVIL, names=[EVIL], **{EVIL: 1})
    logging.getLogger("rdkafka").warning("%s says %s", "client", EVIL)
    try:
        raise ValueError(EVIL)  # noqa: TRY301 - its traceback is the point
    except ValueError:
        get_logger().exception("failed")
    text = stream.getvalue()
    assert text.replace("\n", "").replace("\x7f", "" if form == "json" else "\x7f").isprintable(), ascii(text)
    assert "31mb\\nc" in text
