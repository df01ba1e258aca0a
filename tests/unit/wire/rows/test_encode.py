"""Encoding: what comes out reads back, and what could not be read is refused."""

from __future__ import annotations

from typing import Any

import msgpack
import numpy as np
import pytest
import scipy.sparse as sp

from sfd_stream.sketch.rows import RowBlock
from sfd_stream.wire.columns import FixedColumns
from sfd_stream.wire.rows.decode import decode
from sfd_stream.wire.rows.encode import encode_row, encode_rows


def test_float32_values_travel_in_four_bytes_and_others_in_eight() -> None:
    narrow = msgpack.unpackb(encode_row([1, 2], np.array([0.1, 0.2], dtype=np.float32)))
    wide = msgpack.unpackb(encode_row([1, 2], [1, 2]))
    assert (len(narrow["v"]), len(wide["v"])) == (8, 16)


def test_values_left_out_are_left_out() -> None:
    assert msgpack.unpackb(encode_row([1, 2])) == {"i": bytes([1, 0, 0, 0, 2, 0, 0, 0])}
    assert msgpack.unpackb(encode_row(np.array([1, 2]), packed=False)) == {"i": [1, 2]}


def test_friendly_rows_keep_integers_and_strings() -> None:
    assert msgpack.unpackb(encode_row(["a", 7], [1, 2], packed=False)) == {"i": ["a", 7], "v": [1, 2]}


@pytest.mark.parametrize(
    ("indices", "values", "packed"),
    [
        ([1, 2], [1.0], True),
        ([1, 2], [1.0], False),
        ([-1], None, True),
        ([2**32], None, True),
        ([1.5], None, True),
        ([1.5], None, False),
        ([True], None, True),
        ([True], None, False),
        (["a"], None, True),
        ([2**64], None, False),
        ([[1, 2]], None, True),
        ([1], [float("nan")], True),
        ([1], [float("inf")], False),
        ([1], [1.1e100], True),
        ([1], ["1"], False),
        ([1], [1j], True),
        ([1], 1.0, True),
    ],
)
def test_what_no_decoder_would_take_is_refused(indices: Any, values: Any, packed: bool) -> None:
    with pytest.raises(ValueError):
        encode_row(indices, values, packed=packed)


@pytest.mark.parametrize("packed", [True, False])
@pytest.mark.parametrize("rows_per_message", [None, 1, 4, 1000])
@pytest.mark.parametrize("dtype", [np.float64, np.float32, np.int32, bool])
def test_a_matrix_reads_back_as_itself(packed: bool, rows_per_message: int | None, dtype: type) -> None:
    matrix = sp.random_array((23, 40), density=0.1, rng=np.random.default_rng(0), format="coo")
    matrix = (matrix * 9).astype(dtype)
    messages = list(encode_rows(matrix, packed=packed, rows_per_message=rows_per_message))
    assert len(messages) == {None: 23, 1: 23, 4: 6, 1000: 1}[rows_per_message]
    block = decode(messages, FixedColumns(40)).block
    assert np.array_equal(block.csr().toarray(), matrix.toarray().astype(np.float64))


def test_a_block_without_rows_is_no_message() -> None:
    nothing = RowBlock.from_arrays([0], [], np.zeros(0), 5)
    assert list(encode_rows(nothing)) == []
    assert list(encode_rows(nothing, rows_per_message=10)) == []


def test_rows_per_message_is_checked_before_the_first_message_is_asked_for() -> None:
    with pytest.raises(ValueError, match="rows_per_message"):
        encode_rows(sp.csr_array((2, 2)), rows_per_message=0)
