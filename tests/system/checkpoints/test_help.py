"""--help teaches: every command shows an example that the command line itself understands."""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
from collections.abc import Iterator

import pytest
import typer

from sfd_stream.cli import main
from sfd_stream.cli.app import _app


def commands() -> Iterator[tuple[str, ...]]:
    """Every one that there is, by its words."""
    root = typer.main.get_command(_app())
    for name, command in root.commands.items():
        below = getattr(command, "commands", None)
        yield from [(name,)] if below is None else [(name, each) for each in below]


COMMANDS = list(commands())


@pytest.fixture(autouse=True)
def _wide(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "200")
    monkeypatch.setenv("TERMINAL_WIDTH", "200")


def examples(text: str) -> list[list[str]]:
    """Each stands at the end of its line; the line of usage is none."""
    lines = [line for line in text.splitlines() if "Usage:" not in line]
    found = (re.search(r"sfd-stream ([a-z][^>|\"]*?)\.?\s*(?:>.*)?$", line) for line in lines)
    return [shlex.split(match[1]) for match in found if match]


@pytest.mark.parametrize("command", [(), *COMMANDS], ids=" ".join)
def test_help_shows_an_example_that_parses(command: tuple[str, ...], capsys: pytest.CaptureFixture[str]) -> None:
    assert main([*command, "--help"]) == 0
    shown = [found for found in examples(capsys.readouterr().out) if tuple(found[: len(command)]) == command]
    assert shown, "no example"
    for words in shown:
        parse(words)


def parse(words: list[str]) -> None:
    """As far as the values of its options: nothing is run."""
    group = typer.main.get_command(_app())
    context = group.make_context("sfd-stream", [])
    while hasattr(group, "commands"):
        group = group.commands[words[0]]
        words = words[1:]
    group.make_context(group.name, list(words), parent=context)


@pytest.mark.parametrize("command", [words for words in COMMANDS if words != ("demo",)], ids=" ".join)
def test_every_command_but_the_demo_prints_json_when_asked(
    command: tuple[str, ...], capsys: pytest.CaptureFixture[str]
) -> None:
    assert main([*command, "--help"]) == 0
    assert " --json " in capsys.readouterr().out


def test_without_arguments_it_shows_how_to_begin(capsys: pytest.CaptureFixture[str]) -> None:
    assert main([]) == 0
    assert "sfd-stream demo" in capsys.readouterr().out


def test_commands_are_shown_in_groups_by_what_one_wants(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--help"]) == 0
    out = capsys.readouterr().out
    panels = ["The stream", "Reading", "Data", "Settings", "Planning and diagnosis"]
    assert all(f"─ {panel} ─" in out for panel in panels)
    assert "─ Commands ─" not in out, "a command without a group"


@pytest.mark.parametrize(("typed", "offered"), [("sfd-stream doc", "doctor"), ("sfd-stream checkpoint ver", "verify")])
def test_the_shell_completes_commands(typed: str, offered: str) -> None:
    """As bash asks the script that --install-completion puts in its place."""
    asked = {"COMP_WORDS": typed, "COMP_CWORD": str(len(typed.split()) - 1), "_SFD_STREAM_COMPLETE": "complete_bash"}
    done = subprocess.run(
        [sys.executable, "-m", "sfd_stream.cli"],
        env={**os.environ, **asked},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.stdout.split() == [offered], done.stderr


@pytest.mark.parametrize("command", [(), *COMMANDS], ids=" ".join)
def test_a_flag_is_not_shown_as_if_it_took_a_value(
    command: tuple[str, ...], capsys: pytest.CaptureFixture[str]
) -> None:
    assert main([*command, "--help"]) == 0
    shown = capsys.readouterr().out
    assert "--help" in shown
    assert "bool" not in shown.lower()


def test_examples_name_no_file_that_an_installed_program_lacks(capsys: pytest.CaptureFixture[str]) -> None:
    """The first example writes the settings that all others read."""
    made = "sfd-stream config schema --example > settings.yaml"
    for command in [(), *COMMANDS]:
        assert main([*command, "--help"]) == 0
        shown = capsys.readouterr().out
        assert command or made in shown
        named = set(re.findall(r"[\w./-]+\.(?:yaml|yml|toml|md|py)\b", shown))
        assert named <= {"settings.yaml", "metrics.md"}, command  # examples write both
