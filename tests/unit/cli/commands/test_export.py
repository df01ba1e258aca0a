"""`sfd-stream export`: the newest merged sketch as a file, and a line about what the file holds."""

from __future__ import annotations

import importlib
from pathlib import Path

import numpy as np
import pytest

from sfd_stream.cli import main
from sfd_stream.cli.commands.export import export
from tests.unit.cli.commands.published import SKETCHES, merged, publish_to

command = importlib.import_module(export.__module__)
BROKER = ["--topic", "sketches", "--broker", "b:1"]


def test_the_file_holds_the_merged_sketch(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    publish_to(command, monkeypatch)
    file = tmp_path / "sketch.npz"
    assert main(["export", str(file), *BROKER]) == 0
    with np.load(file) as written:
        assert int(written["rows"]) == merged().rows
    assert capsys.readouterr().out.startswith(f"{file}: MergedSketch(")


def test_a_missing_partition_is_named_on_standard_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    publish_to(command, monkeypatch, SKETCHES[:1])
    assert main(["export", str(tmp_path / "sketch.csv"), *BROKER]) == 0
    assert capsys.readouterr().err == "INCOMPLETE: 1 of 2 partitions, no snapshot of rows/1\n"
