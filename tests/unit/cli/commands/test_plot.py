"""`sfd-stream plot`: the wanted pictures of the newest sketch, one below the other, in one file."""

from __future__ import annotations

import importlib
import json
from pathlib import Path

import pytest

from sfd_stream.cli import main
from sfd_stream.cli.commands.plot import PictureName, plot
from tests.unit.cli.commands.published import publish_to

command = importlib.import_module(plot.__module__)
BROKER = ["--topic", "sketches", "--broker", "b:1"]


def test_all_but_the_drift_are_drawn_unless_others_are_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    publish_to(command, monkeypatch)
    file = tmp_path / "sketch.svg"
    assert main(["plot", str(file), *BROKER, "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["pictures"] == [name for name in PictureName if name != "drift"]
    all_three = file.stat().st_size
    assert main(["plot", str(file), "--what", "energy", *BROKER]) == 0
    assert f"{file}: energy of MergedSketch(" in capsys.readouterr().out
    assert 0 < file.stat().st_size < all_three
