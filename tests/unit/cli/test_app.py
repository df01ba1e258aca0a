"""The list of commands: each is in the help with an example; misuse is one line that says where to read on."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
import typer

from sfd_stream import __version__
from sfd_stream.cli import app, main


@pytest.mark.parametrize("arguments", [["nope"], ["config"], ["produce", "--nope"], ["produce", "--seed", "x"]])
def test_misuse_is_one_line_with_where_to_read_on_and_exit_2(
    arguments: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(arguments) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert err.startswith("error: ")
    assert err.endswith('--help"\n')
    assert err.count("\n") == 1


@pytest.mark.parametrize("arguments", [[], ["--help"], ["-h"]])
def test_help_teaches_commands_exit_codes_and_settings(
    arguments: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(arguments) == 0
    out = capsys.readouterr().out
    for word in ("produce", "config", "Exit codes", "SFD_SECTION__KEY", "--install-completion"):
        assert word in out


def commands(command: Any, path: tuple[str, ...] = ()) -> Iterator[tuple[str, ...]]:
    """Every one that can be typed, groups too."""
    if path:
        yield path
    for name, below in getattr(command, "commands", {}).items():
        yield from commands(below, (*path, name))


COMMANDS = list(commands(typer.main.get_command(app._app())))


def test_the_tree_of_commands_is_walked_to_its_leaves() -> None:
    assert {("run",), ("checkpoint",), ("checkpoint", "reset"), ("config", "show")} <= set(COMMANDS)


@pytest.mark.parametrize("command", COMMANDS, ids=" ".join)
def test_every_command_shows_an_example(command: tuple[str, ...], capsys: pytest.CaptureFixture[str]) -> None:
    assert main([*command, "--help"]) == 0
    _, example = " ".join(capsys.readouterr().out.split()).split("Example: ", 1)
    assert f"sfd-stream {command[0]}" in example


def test_version(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--version"]) == 0
    assert capsys.readouterr().out == f"sfd-stream {__version__}\n"
