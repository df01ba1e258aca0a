"""`sfd-stream doctor`: what it prints, and with which code it ends."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from sfd_stream.cli import main

if TYPE_CHECKING:
    import pytest


def test_wrong_settings_end_it_with_2_and_the_problem(capsys: pytest.CaptureFixture[str]) -> None:
    flags = ["--set", "input.topic=rows", "--set", "sketch.el=5"]
    assert main(["doctor", *flags]) == 2
    out, err = capsys.readouterr()
    assert out.startswith("✗ settings")
    assert "sketch.el" in out
    assert err == ""
    assert main(["doctor", "--json", *flags]) == 2
    (only,) = json.loads(capsys.readouterr().out)["checks"]
    assert (only["name"], only["verdict"]) == ("settings", "failed")


def test_for_people_each_check_has_a_mark_and_each_fault_a_remedy(capsys: pytest.CaptureFixture[str]) -> None:
    given = {
        "kafka.bootstrap.servers": "127.0.0.1:1",
        "kafka.group.id": "g",
        "input.topic": "rows",
        "sketch.d": "20",
        "sketch.ell": "4",
        "checkpoint.url": "memory://doctor",
    }
    assert main(["doctor", *(word for item in given.items() for word in ("--set", "=".join(item)))]) == 5
    lines = capsys.readouterr().out.splitlines()
    marks = {line[2:24].strip(): line[0] for line in lines if line[0] != " "}
    assert (marks["settings"], marks["connection"], marks["topic"], marks["store"]) == ("✓", "✗", "-", "✓")
    assert lines[lines.index(next(line for line in lines if line[0] == "✗")) + 1].strip().startswith("→ ")
