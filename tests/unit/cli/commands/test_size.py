"""`sfd-stream size`: both answers, and which is which; what it measures and what it refuses."""

from __future__ import annotations

import json

import pytest

from sfd_stream.cli import main
from sfd_stream.cli.commands import size
from sfd_stream.tools import sizing


@pytest.fixture(autouse=True)
def _quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """How exactly a processor is measured is no matter here."""
    monkeypatch.setattr(size, "_BUDGET_S", 0.01)


def test_size_gives_both_answers_and_says_which_is_which(capsys: pytest.CaptureFixture[str]) -> None:
    flags = ["size", "--epsilon", "0.1", "--k", "5", "--d", "200", "--rate", "100", "--partitions", "4", "--z", "10"]
    assert main([*flags, "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["theorem"]["ell"] == sizing.ell_by_theorem(0.1, 5)
    assert found["experience"]["ell"] == sizing.ell_by_experience(0.1, 5)
    for answer in (found["theorem"], found["experience"]):
        shape = sizing.plain_shape(200, answer["ell"])
        assert answer["memory_per_partition_bytes"] == shape.memory_bytes()
        assert answer["memory_per_pod_bytes"] > 4 * shape.memory_bytes()
        assert answer["cpu_share"] > 0
    assert main(flags) == 0
    out = capsys.readouterr().out
    assert "theorem" in out.splitlines()[0]
    for word in ("docs/guarantees.md", "docs/experiments.md", "delta", "memory per pod", "checkpoints an hour"):
        assert word in out


def test_a_sketch_as_large_as_the_matrix_is_wide_is_said_to_be_exact(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["size", "--epsilon", "0.01", "--d", "50"]) == 0
    out = capsys.readouterr().out
    assert "50 (= d: exact)" in out
    assert "measured just now (the shape itself)" in out  # though the theorem asks for more rows than there are columns


@pytest.mark.parametrize(
    ("flags", "words"),
    [
        (["size", "--epsilon", "0", "--d", "10"], "--help"),
        (["size", "--epsilon", "0.1"], "--d"),
    ],
)
def test_misuse_is_one_sentence_and_a_remedy(flags: list[str], words: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(flags) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert words in err
    assert err.count("\n") == 1
