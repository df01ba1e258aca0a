"""A merged sketch as a file that other programs read: the suffix selects the format."""

from __future__ import annotations

import csv
from pathlib import Path

import numpy as np
import pytest
import scipy.io
import scipy.sparse as sp

from sfd_stream.errors import NoSnapshotError, SettingsError
from sfd_stream.reader.export import export
from sfd_stream.reader.merged import merge
from tests.unit.reader.made import rows_of, sketch_of, snapshot

MERGED = merge([snapshot(sketch_of(rows_of(0)), 0, partitions=2)], 1010.0)


def test_an_exported_file_has_the_sketch(tmp_path: Path) -> None:
    export(MERGED, tmp_path / "sketch.npz")
    with np.load(tmp_path / "sketch.npz") as found:
        assert np.array_equal(found["matrix"], MERGED.matrix)


def test_a_file_of_another_kind_is_refused(tmp_path: Path) -> None:
    with pytest.raises(SettingsError, match="must end in"):
        export(MERGED, tmp_path / "sketch.pickle")


def test_a_table_has_a_line_for_each_column_of_the_k_strongest_directions(tmp_path: Path) -> None:
    export(MERGED, tmp_path / "sketch.csv", k=2)
    with (tmp_path / "sketch.csv").open(newline="") as stream:
        lines = list(csv.DictReader(stream))
    assert list(lines[0]) == list(MERGED.to_table(2))
    assert {line["component"] for line in lines} == {"1", "2"}


def test_a_matrix_market_file_says_what_is_guaranteed_and_what_is_missing(tmp_path: Path) -> None:
    export(MERGED, tmp_path / "sketch.mtx")
    assert np.array_equal(scipy.io.mmread(tmp_path / "sketch.mtx"), MERGED.matrix)
    text = (tmp_path / "sketch.mtx").read_text()
    assert f"% 40 rows, delta {MERGED.delta!r}: 0 <= A'A - B'B <= delta; INCOMPLETE, without rows/1" in text


def test_a_sketch_without_rows_is_no_matrix_market_file(tmp_path: Path) -> None:
    empty = merge([snapshot(sketch_of(sp.csr_array((0, 12))))], 1010.0)
    with pytest.raises(NoSnapshotError, match="has no rows yet"):
        export(empty, tmp_path / "sketch.mtx")
    assert not (tmp_path / "sketch.mtx").exists()
