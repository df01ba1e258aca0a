"""Friendly single rows of a whole batch are taken together, and every other message is left to `read_any`."""

from __future__ import annotations

from typing import Any

import msgpack
import numpy as np

from sfd_stream.wire.rows.part import Part, RowLimits
from sfd_stream.wire.rows.read_lists import TOGETHER_MIN, take_lists
from sfd_stream.wire.rows.read_packed import Joined

ROW = msgpack.packb({"i": [3, 300, 70_000], "v": [1.5, -2, 0.25]})
ENOUGH = [ROW] * TOGETHER_MIN


def taken(messages: list[bytes], limits: RowLimits | None = None) -> tuple[list[Part], list[int]]:
    parts, rest = take_lists(Joined.of(messages), np.arange(len(messages)), limits or RowLimits())
    return parts, rest.tolist()


def test_rows_of_lists_are_taken_together() -> None:
    (part,), rest = taken(ENOUGH)
    assert rest == []
    assert part.features.tolist() == [3, 300, 70_000] * TOGETHER_MIN
    assert part.values.tolist() == [1.5, -2.0, 0.25] * TOGETHER_MIN
    assert part.nnz.tolist() == [3] * TOGETHER_MIN


def test_a_row_without_values_has_ones() -> None:
    (part,), _ = taken([msgpack.packb({"i": [3, 5]})] * TOGETHER_MIN)
    assert part.values.tolist() == [1.0, 1.0] * TOGETHER_MIN


def test_fewer_rows_than_pay_are_left() -> None:
    assert taken(ENOUGH[1:]) == ([], list(range(TOGETHER_MIN - 1)))


def test_what_is_no_friendly_row_is_left_and_the_others_are_taken() -> None:
    others: list[Any] = [
        {"i": ["name"]},
        {"i": [2**40]},
        {"i": [1, 2], "v": [1.0]},
        {"v": [1.0], "i": [1]},
        {"i": [1], "v": [None]},
        {3: 1.0},
    ]
    strangers = [*map(msgpack.packb, others), ROW[:-1], ROW + b"\0"]
    (part,), rest = taken([*strangers, *ENOUGH])
    assert rest == list(range(len(strangers)))
    assert part.messages.tolist() == list(range(len(strangers), len(strangers) + TOGETHER_MIN))


def test_a_row_above_a_limit_is_left_to_be_refused() -> None:
    for limits in (RowLimits(nnz_max=2), RowLimits(message_bytes_max=len(ROW) - 1)):
        assert taken(ENOUGH, limits) == ([], list(range(TOGETHER_MIN)))
