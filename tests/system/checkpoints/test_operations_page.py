"""docs/operations.md: its captures are of the commands that make them, its tables of the program as it is."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from benchmarks import operations
from sfd_stream import errors
from sfd_stream.cli import main
from sfd_stream.doctor import checks

PAGE = (Path(__file__).parents[3] / "docs" / "operations.md").read_text()


def capture(name: str) -> str:
    found = re.search(rf"<!-- capture {name} -->\n```console\n(.*?)\n```\n<!-- end -->", PAGE, re.DOTALL)
    assert found is not None, f"no capture {name}: run python -m benchmarks.operations"
    return found[1]


def commands(name: str) -> list[str]:
    typed = (line.removeprefix("$ ").removesuffix(" &") for line in capture(name).splitlines() if line.startswith("$ "))
    return [command for command in typed if command.startswith("sfd-stream")]


def test_the_captures_are_of_the_commands_that_make_them() -> None:
    run, rollback = operations.RUN, operations.ROLLBACK
    assert commands("killed") == [operations.PRODUCE, run, operations.LS, run]
    assert commands("damaged") == [run, operations.VERIFY, rollback, run]
    assert commands("doctor") == [operations.TOPICS, operations.DOCTOR, operations.SICK]
    assert commands("size") == [operations.SIZE]
    assert commands("bench") == [operations.BENCH]


def test_every_check_of_the_doctor_is_told_and_shown() -> None:
    names = {"settings", *(check.name for check in checks())}
    table = PAGE.split("| checks | how |")[1].split("\n\n")[0]
    words = table.replace("right to write, to the group", "right to write, right to the group")
    assert not [name for name in names if name not in words]
    assert not [name for name in names if capture("doctor").count(f" {name} ") < 2]


def test_the_run_that_was_killed_and_resumed_counted_each_row_once() -> None:
    before, after = capture("killed").split(operations.LS)
    assert "kill -9" in before
    (total,) = [line.split() for line in after.splitlines() if line.startswith("total")]
    assert total[1] == f"{operations.ROWS:,}"
    restored = [int(rows) for rows in re.findall(r"restored .* rows=(\d+)", after)]
    assert 0 < sum(restored) < operations.ROWS, "it was killed on the way"


def test_every_exit_code_of_the_program_is_explained() -> None:
    codes = {error.exit_code for error in vars(errors).values() if isinstance(error, type)} | {0, 130, 143}
    table = PAGE.split("## Exit codes")[1].split("## ")[0]
    told = {int(code) for cells in re.findall(r"^\| ([\d, ]+) \|", table, re.MULTILINE) for code in cells.split(",")}
    assert told == codes


@pytest.mark.parametrize("command", ["ls", "show", "verify", "rollback", "reset", "prune"])
def test_every_checkpoint_command_is_told_and_shows_an_example(
    command: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert f"`checkpoint {command}" in PAGE
    assert main(["checkpoint", command, "--help"]) == 0
    assert f"Example: sfd-stream checkpoint {command}" in " ".join(capsys.readouterr().out.split())
