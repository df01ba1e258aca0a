"""Columns and values are checked by message: a bad one takes no other with it."""

from __future__ import annotations

import numpy as np

from sfd_stream.errors import RowDecodeError
from sfd_stream.wire.columns import FixedColumns
from sfd_stream.wire.reasons import MAGNITUDE_MAX
from sfd_stream.wire.rows.part import Part
from sfd_stream.wire.rows.validate import checked, merged


def part(messages: list[int], features: list[int], values: list[float]) -> Part:
    numbers = np.array(messages)
    return Part.of_single_rows(numbers, np.ones_like(numbers), np.array(features), np.array(values))


def test_a_bad_message_is_taken_out_with_its_reason() -> None:
    faults: dict[int, RowDecodeError] = {}
    given = part([3, 5, 8, 9], [0, 7, 1, 1], [1.0, 1.0, np.nan, 2 * MAGNITUDE_MAX])
    good = checked(given, FixedColumns(5), faults)
    assert list(good.messages) == [3]
    assert {number: fault.reason for number, fault in faults.items()} == {
        5: "bad_index",
        8: "not_finite",
        9: "too_large",
    }


def test_parts_are_merged_in_the_order_of_their_messages() -> None:
    whole = merged([part([1, 4], [0, 1], [1.0, 2.0]), part([2], [3], [5.0])])
    assert (list(whole.messages), list(whole.features), list(whole.values)) == ([1, 2, 4], [0, 3, 1], [1.0, 5.0, 2.0])
