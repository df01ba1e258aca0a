"""Columns: growth and names depend on the rows alone."""

from __future__ import annotations

from itertools import pairwise

from hypothesis import given, settings
from hypothesis import strategies as st

from sfd_stream.wire.columns import NAME_CHARS_MAX, GrowingColumns, HashedColumns
from sfd_stream.wire.rows.decode import decode
from sfd_stream.wire.rows.encode import encode_row


def test_d_grows_at_the_row_that_needs_it_in_powers_of_two_up_to_d_max() -> None:
    messages = [encode_row([column]) for column in (0, 4, 3, 5, 8, 99, 64)]
    batch = decode([*messages[:3], encode_row([]), *messages[3:]], GrowingColumns(3, 100))
    assert batch.growth == ((1, 8), (5, 16), (6, 100))
    assert batch.columns == GrowingColumns(100, 100)
    assert batch.block.d == 100


def test_what_is_dropped_or_bad_makes_nothing_grow() -> None:
    zero, cancelled = encode_row([9, 1], [0.0, 1.0]), encode_row([9, 9], [1.0, -1.0])
    bad = encode_row([9, 50])
    batch = decode([zero, cancelled, bad], GrowingColumns(2, 20))
    assert (batch.columns, batch.growth, batch.block.d) == (GrowingColumns(2, 20), (), 2)
    assert [error.reason for _, error in batch.bad] == ["bad_index"]


@given(st.lists(st.integers(0, 2**20), max_size=30), st.integers(1, 50))
@settings(max_examples=100, deadline=None)
def test_growth_is_what_row_by_row_growth_gives(largest: list[int], d: int) -> None:
    columns, expected = GrowingColumns(d, 2**21), []
    for row, column in enumerate(largest):
        if column >= d:
            d = 1 << column.bit_length()
            expected.append((row, d))
    batch = decode([encode_row([column]) for column in largest], columns)
    assert batch.growth == tuple(expected)
    assert all(later > earlier for (_, earlier), (_, later) in pairwise(batch.growth))


def test_the_first_name_of_a_column_stays() -> None:
    columns = HashedColumns(1, names_max=5)
    first = decode([encode_row(["a", "b"], packed=False)], columns).columns
    assert dict(decode([encode_row(["c"], packed=False)], first).columns.names) == {0: "a"}


def test_names_restored_as_plain_data_go_on_as_before() -> None:
    messages = [encode_row([f"word{number}", f"other{number}"], packed=False) for number in range(40)]
    whole = decode(messages, HashedColumns(50, 1, names_max=20)).columns
    half = decode(messages[:17], HashedColumns(50, 1, names_max=20)).columns
    restored = HashedColumns(50, 1, names_max=20, names=dict(half.names))
    assert list(decode(messages[17:], restored).columns.names.items()) == list(whole.names.items())
    assert len(whole.names) == 20


def test_names_are_cut_bounded_and_can_be_off() -> None:
    message = encode_row(["é" * 100, "b", "c", "d"], packed=False)
    names = decode([message], HashedColumns(1000, names_max=3)).columns.names
    assert len(names) == 3
    assert "é" * NAME_CHARS_MAX in names.values()
    assert not decode([message], HashedColumns(1000, names_max=0)).columns.names
    assert not decode([message], HashedColumns(1000, keep_names=False)).columns.names


def test_zeros_and_bad_messages_name_nothing() -> None:
    messages = [
        encode_row(["zero"], [0], packed=False),
        encode_row(["sum", "sum"], [8e99, 8e99], packed=False),
        encode_row(["good"], packed=False),
    ]
    batch = decode(messages, HashedColumns(1))
    assert dict(batch.columns.names) == {0: "good"}
    assert [(number, error.reason) for number, error in batch.bad] == [(1, "too_large")]
    assert batch.rows_of_message.tolist() == [1, 0, 1]
