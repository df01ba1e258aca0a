"""`sfd-stream drift`: which columns moved between two sketches, and what is printed of it."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp

from sfd_stream.cli.commands.drift import _moved, _numbers, _print
from sfd_stream.reader.merged import MergedSketch, merge
from tests.unit.reader.made import sketch_of, snapshot


def mostly_in(*columns: int) -> MergedSketch:
    """A sketch of rows of six columns, whose non-zeros are almost all in these."""
    rows = np.full((40, 6), 0.01) * np.random.default_rng(0).standard_normal((40, 6))
    rows[:, columns] += 1.0
    return merge([snapshot(sketch_of(sp.csr_array(rows)))], 0.0)


def test_the_columns_that_moved_come_first() -> None:
    moved = _moved(mostly_in(0, 1), mostly_in(0, 2), k=1, top=2)
    assert {each["column"] for each in moved} == {1, 2}


def test_equal_sketches_have_no_column_that_moved_and_no_difference() -> None:
    same = mostly_in(0, 1)
    assert _moved(same, same, k=1, top=6) == []
    assert _numbers(same.drift(same, 1))["differs"] is False


def test_the_verdict_is_printed_with_its_bounds_and_the_columns(capsys: pytest.CaptureFixture[str]) -> None:
    later, reference = mostly_in(1), mostly_in(0)
    moved: list[dict[str, Any]] = _moved(later, reference, k=1, top=2)
    _print(later.drift(reference, 1), moved, "pinned")
    out = capsys.readouterr().out
    assert "outside the 1 directions of pinned" in out
    assert "they differ beyond the error of both sketches" in out
    assert "column" in out
