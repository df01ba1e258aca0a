"""A part holds the rows of some messages, and gives those of fewer messages."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from sfd_stream.wire.rows.part import Part

FEATURES: dict[str, Any] = {"numbers": np.array([5, 6, 7, 8]), "names": ["a", "b", "c", "d"]}


@pytest.mark.parametrize("kind", FEATURES)
def test_the_messages_that_are_kept_bring_their_rows_and_non_zeros(kind: str) -> None:
    """Message 2 has rows with one and two non-zeros, message 5 a row without any, message 9 a row with one."""
    whole = Part(
        messages=np.array([2, 5, 9]),
        rows=np.array([2, 1, 1]),
        nnz=np.array([3, 0, 1]),
        lengths=np.array([1, 2, 0, 1]),
        features=FEATURES[kind],
        values=np.array([1.0, 2.0, 3.0, 4.0]),
    )
    kept = whole.only(np.array([False, True, True]))
    assert [each.tolist() for each in (kept.messages, kept.rows, kept.nnz, kept.lengths)] == [
        [5, 9],
        [1, 1],
        [0, 1],
        [0, 1],
    ]
    assert list(kept.features) == list(FEATURES[kind][3:])
    assert kept.values.tolist() == [4.0]


def test_of_single_rows_each_message_is_a_row() -> None:
    part = Part.of_single_rows(np.array([4, 7]), np.array([2, 1]), FEATURES["numbers"][:3], np.array([1.0, 2.0, 3.0]))
    assert (part.rows.tolist(), part.lengths.tolist()) == ([1, 1], [2, 1])


def test_other_entries_leave_the_rows_as_they_were() -> None:
    part = Part.of_single_rows(np.array([4]), np.array([2]), ["a", "b"], np.array([1.0, 2.0]))
    placed = part.with_entries(np.array([9, 3]), np.array([-1.0, 2.0]))
    assert (placed.features.tolist(), placed.values.tolist()) == ([9, 3], [-1.0, 2.0])
    assert placed.lengths is part.lengths
