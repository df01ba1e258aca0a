"""`sfd-stream features`: a preview for people and for programs, and what cannot be previewed."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from sfd_stream.cli import main
from sfd_stream.cli.commands.features import _await_schemas
from sfd_stream.errors import BrokerUnavailableError
from tests.unit.tools.test_preview import EVENTS


def test_a_registry_that_does_not_answer_is_named_after_the_time_limit() -> None:
    class Waiting:
        outage = "connection refused, for 3 s"

        def missing(self, _: Any) -> frozenset[int]:
            return frozenset({1})

        def is_missing(self, _: Any) -> bool:
            return True

    moments = iter(range(100))
    with pytest.raises(BrokerUnavailableError, match="connection refused"):
        _await_schemas(Waiting(), [b""], clock=lambda: float(next(moments)), timeout_s=2)  # type: ignore[arg-type]


GIVEN = {
    "kafka.bootstrap.servers": "127.0.0.1:1", "kafka.group.id": "g", "input.topic": "t", "input.format": "json",
    "input.columns": "hashed", "sketch.d": "1024", "checkpoint.url": "memory://x",
}  # fmt: skip


def flags(**changes: str) -> list[str]:
    given = GIVEN | {name.replace("__", "."): value for name, value in changes.items()}
    return [word for name, value in given.items() for word in ("--set", f"{name}={value}")]


def test_a_file_is_previewed_for_people_and_for_programs(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "events.jsonl"
    file.write_text("\n".join(json.dumps(event) for event in EVENTS) + "\n\n")
    assert main(["features", "--file", str(file), *flags(input__features="{exclude: [secret]}")]) == 0
    out = capsys.readouterr().out
    assert "row 1: 4 features" in out
    assert "secret (excluded)" in out
    assert "price has" in out
    assert main(["features", "--json", "--file", str(file), "--sample", "10", *flags()]) == 0
    found = json.loads(capsys.readouterr().out)
    assert (found["rows"], found["messages"]) == (10, 10)


@pytest.mark.parametrize(
    ("changes", "file", "words"),
    [({"input__format": "msgpack"}, None, "input.format is msgpack"), ({}, "/no/such/file", "No such file")],
)
def test_what_cannot_be_previewed_is_said(
    changes: dict[str, str], file: str | None, words: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["features", *(["--file", file] if file else []), *flags(**changes)]) == 2
    assert words in capsys.readouterr().err
