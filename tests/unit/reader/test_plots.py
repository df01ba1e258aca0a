"""Pictures show the estimates with their certified bands, and say what is missing."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import scipy.sparse as sp

from sfd_stream.errors import NoSnapshotError
from sfd_stream.reader.merged import merge
from sfd_stream.reader.plots import drift, drift_points, energy, new_figure, refuse_if_empty, save, spectrum
from tests.unit.reader.made import rows_of, sketch_of, snapshot

MERGED = merge([snapshot(sketch_of(rows_of(0)), 0, partitions=2)], 1010.0)


def test_the_spectrum_is_drawn_with_its_certified_band() -> None:
    axes = new_figure().subplots()
    spectrum(axes, MERGED, 4)
    values = MERGED.singular_values(4)
    assert axes.lines[0].get_ydata().tolist() == values.tolist()
    band = axes.collections[0].get_paths()[0].vertices[:, 1]
    assert band.max() == pytest.approx(np.sqrt(values[0] ** 2 + MERGED.delta))
    assert axes.get_title() == "Spectrum of 40 rows (INCOMPLETE: 1 partitions missing)"


def test_the_energy_is_drawn_for_as_many_directions_as_there_are() -> None:
    axes = new_figure().subplots()
    energy(axes, MERGED, 99)
    found = [MERGED.explained(k) for k in range(1, MERGED.k_max + 1)]
    assert axes.lines[0].get_ydata().tolist() == [share.lower for share in found]
    assert axes.collections[0].get_paths()[0].vertices[:, 1].max() == found[-1].upper


def test_the_same_sketch_gives_the_same_file(tmp_path: Path) -> None:
    for name in ("one.svg", "two.svg"):
        figure = new_figure()
        spectrum(figure.subplots(), MERGED, 4)
        save(figure, tmp_path / name)
    assert (tmp_path / "one.svg").read_bytes() == (tmp_path / "two.svg").read_bytes()


def test_a_sketch_without_a_direction_is_not_drawn() -> None:
    with pytest.raises(NoSnapshotError, match="there is nothing to draw"):
        refuse_if_empty(merge([snapshot(sketch_of(sp.csr_array((3, 12))))], 1010.0))


def test_drift_is_told_from_the_first_state_that_has_directions_and_says_what_is_missing() -> None:
    states = [sp.csr_array((3, 12)), rows_of(0, n=1), rows_of(1), rows_of(2)]
    history = [merge([snapshot(sketch_of(A), partitions=2, made_at_s=3600.0 * n)], 0) for n, A in enumerate(states)]
    points = drift_points(history[-1], iter(history), 2)
    assert [point.hours for point in points] == [0.0, 1.0, 1.0]
    assert [point.lower <= point.angle <= point.upper for point in points] == [True] * 3
    assert points[0].angle < 1e-6 < points[1].angle
    axes = new_figure().subplots()
    drift(axes, history[-1], points, 2)
    assert axes.get_title() == "Drift since the first snapshot (INCOMPLETE: 1 partitions missing)"
