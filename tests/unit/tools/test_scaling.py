"""Columns that dominate all rows in the checkpoints are named, with the scale that makes their mean square 1."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from sfd_stream import encode_row
from sfd_stream.doctor import Finding
from sfd_stream.sketch.builder import Parameters
from sfd_stream.state.manifest import encode_manifest, manifest_key
from sfd_stream.state.partition import PartitionState, Shape
from sfd_stream.storage.contract import partition_prefix
from sfd_stream.storage.disk import DiskStore
from sfd_stream.tools.scaling import ColumnTotals, column_totals
from sfd_stream.wire.columns import GrowingColumns
from sfd_stream.wire.rows.decode import decode
from tests.unit.doctor.clinic import attempt
from tests.unit.state.test_partition import Shelf

ROWS = [{0: 1.0, 1: 20.0 + number % 3} for number in range(300)]


def stored(store: DiskStore, partition: int, rows: list[dict[int, float]], *, squares: bool = True) -> None:
    """A checkpoint of a partition of topic `rows` and group `g`, as a worker writes it."""
    parameters = Parameters(d=2, ell=1, buffer_entries_max=50, column_squares=squares)
    state = PartitionState(Shape(GrowingColumns(2, 8), parameters), 0)
    values = [encode_row(list(row), list(row.values())) for row in rows]
    state.apply(decode(values, state.columns), len(rows), None, 0)
    assert state.builder.shrinks
    shelf = Shelf.empty(state.shape)
    shelf.write(state.freeze(), None)
    for key, data in shelf.blobs.items():
        store.put(f"{partition}/{key}", data)
    manifest = shelf.manifest
    assert manifest.sketch is not None
    moved = replace(manifest, sketch=replace(manifest.sketch, key=f"{partition}/{manifest.sketch.key}"))
    store.put(manifest_key(partition_prefix("g", "rows", partition), manifest.number), encode_manifest(moved))


def found_in(store: DiskStore) -> ColumnTotals | None:
    return column_totals(store, "g", "rows", timeout_s=5.0)


def test_totals_add_up_over_partitions_of_different_width(tmp_path: Path) -> None:
    store = DiskStore(tmp_path / "store")
    assert found_in(store) is None
    stored(store, 0, ROWS, squares=False)
    assert found_in(store) is None
    stored(store, 1, ROWS)
    stored(store, 2, [{3: 2.0, 0: 1.0}] * 300)
    found = found_in(store)
    assert found is not None
    assert found.weight > 400, "rows that were shrunk"
    squares = found.squares.tolist()
    assert (len(squares), squares[0]) == (4, found.weight)
    assert squares[1] > 40_000 > squares[3] > 400


def test_a_dominant_column_is_named_with_its_scale() -> None:
    found = ColumnTotals(100.0, np.array([100.0, 40_000.0, 0.0]), {1: "amount"})
    (line,) = found.advice()
    assert line.startswith("amount has 100% of the squared norm")
    scale = re.search(r"a scale of ([\d.]+),", line)
    assert scale is not None
    assert float(scale.group(1)) ** 2 * 40_000 == pytest.approx(100.0)
    assert ColumnTotals(10.0, np.full(10, 5.0), {}).advice() == []
    assert ColumnTotals(10.0, np.array([9.0, 1.0]), {}).advice()[0].startswith("column 0 has 90%")


def test_doctor_has_the_advice(tmp_path: Path) -> None:
    def examined(**changes: str) -> Finding:
        return attempt("scaling", tmp_path, **changes)

    assert examined().reason == "sketch.column_squares is off"
    on = {"sketch.column_squares": "true"}
    assert examined(**on).reason == "no checkpoint has sums of squares yet"
    store = DiskStore(tmp_path / "store")
    stored(store, 0, [{0: 1.0, 1: 1.0, 2: 1.0, 3: 1.0, 4: 1.0}] * 300)
    assert examined(**on).verdict.value == "good"
    stored(store, 1, ROWS)
    found = examined(**on)
    assert (found.verdict.value, found.exit_code) == ("warning", 1)
    assert found.reason.startswith("column 1 has 9")
