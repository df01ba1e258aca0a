"""Directions as a long table: the strongest columns of each, the largest first."""

from __future__ import annotations

import numpy as np

from sfd_stream.sketch.tables import long_table, strongest

DIRECTIONS = np.array([[0.1, -0.9, 0.4], [0.6, 0.0, -0.8]])


def test_the_strongest_columns_are_by_magnitude() -> None:
    assert strongest(DIRECTIONS, 2).tolist() == [[1, 2], [2, 0]]


def test_a_table_has_one_line_for_each_direction_and_column() -> None:
    table = long_table(DIRECTIONS, "column {}".format, top=2)
    assert table["component"].tolist() == [1, 1, 2, 2]
    assert table["name"].tolist() == ["column 1", "column 2", "column 2", "column 0"]
    assert table["weight"].tolist() == [-0.9, 0.4, -0.8, 0.6]
    assert len(long_table(DIRECTIONS, str)["weight"]) == DIRECTIONS.size
