"""`sfd-stream drift` says what the library says of two pinned bases, and names the columns that moved."""

from __future__ import annotations

import json
import uuid
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import yaml
from scipy.linalg import subspace_angles

from sfd_stream import SparseFrequentDirections
from sfd_stream.cli import main
from sfd_stream.cli.commands.basis import pinned_bases_of
from sfd_stream.config.model import Settings
from sfd_stream.reader.merged import MergedSketch, merge
from sfd_stream.sketch.drift import moved_columns
from tests.unit.reader.made import snapshot

D = 20


def merged_with(direction: int, number: int) -> MergedSketch:
    """Rows along the first column and one other."""
    rng = np.random.default_rng(number)
    rows = (rng.standard_normal((400, 2)) * [5, 4]) @ np.eye(D)[[0, direction]] + 0.1 * rng.standard_normal((400, D))
    return merge([snapshot(SparseFrequentDirections(ell=8).fit(rows).sketch(), number=number)], 1.0)


@pytest.fixture
def site(tmp_path: Path) -> tuple[list[str], list[str]]:
    """Options of a command, and the ids of three bases: two alike, then one whose second direction has turned."""
    given = {
        "kafka": {"bootstrap.servers": "nowhere:1", "group.id": "g"},
        "input": {"topic": "rows"},
        "sketch": {"d": D, "ell": 8},
        "checkpoint": {"url": f"memory://{uuid.uuid4().hex}"},
    }
    path = tmp_path / "settings.yaml"
    path.write_text(yaml.safe_dump(given))
    bases = pinned_bases_of(Settings.model_validate(given))
    ids = [bases.pin(merged_with(direction, n), float(n)) for n, direction in enumerate([3, 3, 7], start=1)]
    return ["--config", str(path)], ids


def asked(capsys: pytest.CaptureFixture[str], *words: str) -> Any:
    assert main(["drift", *words, "--json"]) == 0
    return json.loads(capsys.readouterr().out)


def test_the_columns_that_moved_are_named(
    site: tuple[list[str], list[str]], capsys: pytest.CaptureFixture[str]
) -> None:
    options, (first, _, turned) = site
    found = asked(capsys, "--from", first, "--to", turned, *options)
    assert (found["k"], found["differs"]) == (2, True)
    assert found["largest_angle_degrees"] > 80
    assert found["outside"]["lower"] > found["reference_outside"]["upper"]
    assert [found["columns"][0][name] for name in ("column", "name")] == [7, "7"]
    assert found["columns"][0]["share"] > 0.9


def test_it_says_what_the_library_says(site: tuple[list[str], list[str]], capsys: pytest.CaptureFixture[str]) -> None:
    options, (first, second, _) = site
    found = asked(capsys, "--from", first, "--to", second, "--k", "1", *options)
    drift = merged_with(3, 2).drift(merged_with(3, 1), 1)
    assert found["outside"] == pytest.approx(drift.outside._asdict())
    assert (found["differs"], found["k"]) == (drift.differs, 1)
    assert main(["drift", "--from", first, "--to", second, "--k", "1", *options]) == 0
    out = capsys.readouterr().out
    assert f"outside the 1 directions of {first}" in out
    assert "two samples of one process differ, too" in out


def test_a_basis_that_does_not_exist_is_named(
    site: tuple[list[str], list[str]], capsys: pytest.CaptureFixture[str]
) -> None:
    options, (first, *_) = site
    assert main(["drift", "--from", first, "--to", "nothing", *options]) == 3
    assert "no basis nothing is pinned" in capsys.readouterr().err


def test_shares_add_up_to_one_and_follow_the_sines() -> None:
    rng = np.random.default_rng(0)
    V, W = (np.linalg.qr(rng.standard_normal((D, 3)))[0].T for _ in range(2))
    shares = moved_columns(V, W)
    outside = np.sum((V - V @ W.T @ W) ** 2, axis=0)
    assert shares.sum() == pytest.approx(1)
    assert np.allclose(shares * np.sum(np.sin(subspace_angles(V.T, W.T)) ** 2), outside)
    assert not moved_columns(V, V).any()


def test_the_angles_and_the_columns_are_drawn_into_a_file(
    site: tuple[list[str], list[str]], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    options, (first, second, turned) = site
    file, same = tmp_path / "drift.svg", tmp_path / "same.svg"
    asked(capsys, "--from", first, "--to", turned, "--plot", str(file), *options)
    drawn = file.read_text()
    for words in ("The rows differ beyond", "certified band", "Columns that moved", "% of the turn"):
        assert words in drawn
    asked(capsys, "--from", first, "--to", second, "--columns", "1", "--plot", str(same), *options)
    assert "Columns that moved" in same.read_text()
    assert main(["drift", "--from", first, "--to", turned, "--plot", str(tmp_path / "drift.txt"), *options]) == 2
    assert "must end in .png or .svg" in capsys.readouterr().err
