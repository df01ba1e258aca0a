"""`sfd-stream checkpoint ls|show|verify`: how what a store holds is printed.

The commands on real stores are tested in tests/system/checkpoints.
"""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from sfd_stream.cli import main
from sfd_stream.cli.commands.checkpoint import _flat, _line, _print_verdicts
from sfd_stream.state.steps import Refused
from sfd_stream.tools.inspect import Place, Standing, Verification
from tests.unit.state.chains import genesis

PLACE = Place("g", "rows", 3)
GIVEN = ["kafka.bootstrap.servers=b:1", "kafka.group.id=g", "input.topic=rows", "sketch.d=10", "sketch.ell=4"]


def test_a_partition_is_listed_with_its_newest_manifest() -> None:
    newest = genesis()
    line = _line(PLACE, Standing((newest.number,), newest), newest.written_at_s + 60)
    assert (line["partition"], line["number"], line["epoch"]) == (3, newest.number, newest.epoch)
    assert (line["next_offset"], line["age_s"]) == (newest.next_offset, 60)


def test_an_unreadable_manifest_is_listed_with_its_remedy_instead_of_numbers() -> None:
    line = _line(PLACE, Standing((7,), Refused("bad checksum", "roll back")), 0.0)
    assert (line["number"], line["state"], line["rows"]) == (7, "bad checksum; roll back", None)


def test_nested_fields_get_names_with_dots() -> None:
    assert _flat({"a": {"b": 1, "c": {"d": None}}, "e": "x"}) == [("a.b", "1"), ("a.c.d", "-"), ("e", "x")]


def test_a_verdict_has_a_line_for_each_problem(capsys: pytest.CaptureFixture[str]) -> None:
    _print_verdicts({PLACE: Verification(2, 3, 4_000, (Refused("blob x is missing", "roll back"),))})
    assert capsys.readouterr().out.splitlines() == [
        "rows/3: NOT GOOD (2 manifests, 3 blobs, 4,000 bytes)",
        "  blob x is missing; roll back",
    ]


def test_an_empty_store_is_no_error(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    given = [word for each in [*GIVEN, f"checkpoint.url={tmp_path.as_uri()}"] for word in ("--set", each)]
    assert main(["checkpoint", "ls", "--json", *given]) == 0
    assert json.loads(capsys.readouterr().out) == {"partitions": {}}
