"""--help teaches: every command shows an example that the command line itself understands."""

from __future__ import annotations

import re
import shlex

import pytest
import typer

from sfd_stream.cli import main
from sfd_stream.cli.app import _app

COMMANDS = [
    ("run",), ("produce",), ("demo",), ("config", "check"), ("config", "show"), ("config", "schema"),
    *(("checkpoint", name) for name in ("ls", "show", "verify", "rollback", "reset", "prune")),
]  # fmt: skip


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


def test_without_arguments_it_shows_how_to_begin(capsys: pytest.CaptureFixture[str]) -> None:
    assert main([]) == 0
    assert "sfd-stream demo" in capsys.readouterr().out
