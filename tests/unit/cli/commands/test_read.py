"""`sfd-stream read`: exact counts, the certified error, the partitions, and the strongest directions."""

from __future__ import annotations

import importlib
import json
from dataclasses import replace

import pytest

from sfd_stream.cli import main
from sfd_stream.cli.commands.read import print_merged, read
from tests.unit.cli.commands.published import SKETCHES, merged, publish_to

command = importlib.import_module(read.__module__)
BROKER = ["--topic", "sketches", "--broker", "b:1"]


def test_the_first_line_has_the_exact_counts_and_the_error(capsys: pytest.CaptureFixture[str]) -> None:
    sketch = merged()
    print_merged(sketch, 3, 2, centre=False)
    first, *lines = capsys.readouterr().out.splitlines()
    assert first.startswith(f"80 rows, {sketch.nnz:,} non-zeros, 12 columns; ||A||F^2 = ")
    assert f"error <= {sketch.delta / sketch.squared_frobenius:.3%} of it" in first
    assert [line.split()[0] for line in lines if line.split()[0].isdigit()] == ["1", "2", "3"]
    assert [line.split()[0] for line in lines if "/" in line.split()[0]] == ["rows/0", "rows/1"]


def test_each_partition_has_a_sketch_of_its_own_on_request(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    publish_to(command, monkeypatch)
    assert main(["read", *BROKER, "--per-partition", "--json"]) == 0
    assert [one["rows"] for one in json.loads(capsys.readouterr().out)["snapshots"]] == [40, 40]


def test_directions_around_the_mean_need_column_sums(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    without = [replace(one, sketch=replace(one.sketch, column_sums=None)) for one in SKETCHES]
    publish_to(command, monkeypatch, without)
    assert main(["read", *BROKER, "--centre"]) == 3
    assert "set snapshot.column_sums: true in the workers' settings" in capsys.readouterr().err
