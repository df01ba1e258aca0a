"""Decoding: laws over any message, good or bad, whole batches and the readers that share them."""

from __future__ import annotations

import math
import struct
from typing import Any

import msgpack
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sfd_stream.errors import RowDecodeError
from sfd_stream.wire.columns import Columns, FixedColumns, GrowingColumns, HashedColumns
from sfd_stream.wire.reasons import MAGNITUDE_MAX, Reason
from sfd_stream.wire.rows import decode as wire
from sfd_stream.wire.rows import read_lists
from sfd_stream.wire.rows.decode import DecodedBatch, decode, decode_one
from sfd_stream.wire.rows.encode import encode_row, encode_rows
from sfd_stream.wire.rows.part import RowLimits
from tests.support.slow import smoke_first


def test_a_poll_is_one_block_and_each_bad_message_has_its_reason() -> None:
    """Rows of several forms, a block of two rows among them."""
    block = msgpack.packb({"i": [0, 1, 2], "v": [7.0, 8.0, 9.0], "p": [0, 1, 3]})
    batch = decode([encode_row([3, 1], [1.0, 2.5]), b"no row", block, encode_row([5])], FixedColumns(5))
    assert batch.block.csr().toarray().tolist() == [[0, 2.5, 0, 1, 0], [7, 0, 0, 0, 0], [0, 8, 9, 0, 0]]
    assert batch.rows_of_message.tolist() == [1, 0, 2, 0]
    assert [(number, error.reason) for number, error in batch.bad] == [(1, "malformed"), (3, "bad_index")]


LIMITS = RowLimits(message_bytes_max=2000, nnz_max=40, rows_max=8, string_bytes_max=12)
FIXED = FixedColumns(50)
REASONS = {reason.value for reason in Reason}

indices = st.lists(st.integers(0, 60), max_size=12)
any_value = st.one_of(
    st.integers(-3, 3),
    st.floats(-4, 4),
    st.floats(width=32),
    st.sampled_from([1e100, -1e100, 1e101, math.nan, 7e99]),
)


def _packed(numbers: list[Any], code: str) -> bytes:
    return struct.pack(f"<{len(numbers)}{code}", *numbers)


@st.composite
def row_messages(draw: st.DrawFn) -> bytes:
    """Messages that are rows, or nearly."""
    columns = draw(indices)
    values = draw(st.lists(any_value, min_size=len(columns), max_size=len(columns)))
    form = draw(
        st.sampled_from(["list", "f8", "f4", "ones", "packed ones", "map", "mixed", "block", "packed block", "strings"])
    )
    match form:
        case "list":
            fields: dict[Any, Any] = {"i": columns, "v": values}
        case "f8":
            fields = {"i": _packed(columns, "I"), "v": _packed(values, "d")}
        case "f4":
            fields = {"i": _packed(columns, "I"), "v": np.array(np.clip(values, -9, 9), "<f4").tobytes()}
        case "ones":
            fields = {"i": columns}
        case "packed ones":
            fields = {"i": _packed(columns, "I")}
        case "map":
            fields = dict(zip(columns, values, strict=True))
        case "mixed":
            fields = {"v": values, "i": _packed(columns, "I")}
        case "packed block":
            cuts = sorted(draw(st.lists(st.integers(0, len(columns)), max_size=4)))
            fields = {"i": _packed(columns, "I"), "p": _packed([0, *cuts, len(columns)], "I")}
            if draw(st.booleans()):
                fields["v"] = _packed(values, "d")
            order = draw(st.permutations(sorted(fields)))
            fields = {key: fields[key] for key in order}
        case "block":
            cuts = sorted(draw(st.lists(st.integers(0, len(columns)), max_size=4)))
            pointers = [0, *cuts, len(columns)]
            fields = {
                "i": columns,
                "v": values,
                "p": draw(st.sampled_from([pointers, _packed(pointers, "I")])),
            }
        case _:
            fields = {"i": [str(column) for column in columns], "v": values}
    message: bytes = msgpack.packb(fields, use_single_float=bool(np.all(np.abs(values) < 9)) and draw(st.booleans()))
    return message


@st.composite
def mutated_messages(draw: st.DrawFn) -> bytes:
    """A row with a few bytes changed, cut or added."""
    message = bytearray(draw(row_messages()))
    for _ in range(draw(st.integers(1, 3))):
        at = draw(st.integers(0, len(message)))
        match draw(st.sampled_from(["set", "cut", "insert", "end"])):
            case "set" if at < len(message):
                message[at] = draw(st.integers(0, 255))
            case "cut":
                del message[at : at + draw(st.integers(1, 4))]
            case "insert":
                message[at:at] = draw(st.binary(min_size=1, max_size=4))
            case _:
                del message[at:]
    return bytes(message)


anything = st.recursive(
    st.one_of(
        st.none(),
        st.booleans(),
        st.integers(-(2**63), 2**64 - 1),
        st.floats(),
        st.text(max_size=20),
        st.binary(max_size=20),
        st.builds(msgpack.ExtType, st.integers(0, 127), st.binary(max_size=5)),
        st.builds(msgpack.Timestamp, st.integers(0, 2**40), st.integers(0, 10**9 - 1)),
    ),
    lambda inner: st.one_of(
        st.lists(inner, max_size=4),
        st.dictionaries(st.one_of(st.sampled_from(["i", "v", "p"]), st.integers(-5, 60)), inner, max_size=4),
    ),
    max_leaves=8,
)
msgpack_messages = st.builds(msgpack.packb, anything)
messages = st.one_of(row_messages(), row_messages(), mutated_messages(), st.binary(max_size=30), msgpack_messages)
batches = st.lists(messages, max_size=12)
modes = st.sampled_from(
    [FIXED, GrowingColumns(1, 55), HashedColumns(16, 3, names_max=9), HashedColumns(7, keep_names=False)]
)


def rows_of(batch: DecodedBatch) -> list[tuple[list[int], list[float]]]:
    block = batch.block
    cuts = zip(block.indptr[:-1], block.indptr[1:], strict=True)
    return [(block.indices[a:b].tolist(), block.values[a:b].tolist()) for a, b in cuts]


def seen(batch: DecodedBatch) -> tuple[Any, ...]:
    """All that a batch says, in plain data."""
    bad = [(message, error.reason, str(error)) for message, error in batch.bad]
    names = batch.columns.names if isinstance(batch.columns, HashedColumns) else None
    return (
        rows_of(batch),
        batch.rows_of_message.tolist(),
        bad,
        batch.columns,
        names,
        batch.growth,
        batch.block.d,
    )


def decode_slowly(values: list[bytes], columns: Columns) -> DecodedBatch:
    """Decoding with the general reader alone."""
    everything = np.arange(len(values))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(wire, "take_packed", lambda _joined, _limits: ([], everything))
        patch.setattr(wire, "take_lists", lambda _joined, candidates, _limits: ([], candidates))
        patch.setattr(wire, "take_blocks", lambda _values, messages, _limits: ([], messages))
        return decode(values, columns, LIMITS)


@given(batches, modes)
@settings(max_examples=100, deadline=None)
def test_whatever_comes_the_block_keeps_its_promise_and_reasons_come_from_the_fixed_set(
    values: list[bytes], columns: Columns
) -> None:
    batch = decode(values, columns, LIMITS)
    block = batch.block
    assert block.indptr.dtype == np.int64
    assert block.indices.dtype == np.int32
    assert block.values.dtype == np.float64
    assert block.rows == batch.rows_of_message.sum()
    for row, weights in rows_of(batch):
        assert row == sorted(set(row))
        assert all(0 <= column < batch.columns.d for column in row)
        assert all(0 < abs(weight) <= MAGNITUDE_MAX for weight in weights)
    assert all(error.reason in REASONS for _, error in batch.bad)
    assert all(isinstance(error, RowDecodeError) for _, error in batch.bad)
    assert not any(batch.rows_of_message[message] for message, _ in batch.bad)


@given(st.lists(messages, min_size=1, max_size=6), modes)
@settings(max_examples=100, deadline=None)
def test_the_batch_readers_agree_with_the_general_one_on_any_message(values: list[bytes], columns: Columns) -> None:
    crowd = values * 40  # enough of them to walk together
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(read_lists, "CHECK_STEPS", 2)
        assert seen(decode(crowd, columns, LIMITS)) == seen(decode_slowly(crowd, columns))


TEMPLATES = [
    encode_row([3, 17], [1.0, 2.5]),
    encode_row([3, 17], np.array([1.0, 2.5], dtype=np.float32)),
    encode_row([3, 17]),
    encode_row([3, 17], [1.0, 2.5], packed=False),
    encode_row([3, 200, 1000], packed=False),
    msgpack.packb({"i": [3, 17, 300, 70_000], "v": [-1, 200, 2.5, -300]}),
    msgpack.packb({"i": [3, 17], "v": [1.5, 70_000]}, use_single_float=True),
    msgpack.packb({"i": _packed([3, 17], "I"), "v": _packed([1.0, 2.5], "d"), "p": _packed([0, 1, 2], "I")}),
    msgpack.packb({"p": _packed([0, 2], "I"), "i": _packed([3, 17], "I")}),
]


@pytest.mark.parametrize("template", smoke_first(TEMPLATES, 2))
def test_the_readers_agree_whichever_byte_of_a_row_is_changed_cut_or_added(
    template: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(read_lists, "CHECK_STEPS", 2)
    mutants = [template[:at] + bytes([byte]) + template[at + 1 :] for at in range(len(template)) for byte in range(256)]
    mutants += [
        template[:at] + bytes([byte]) + template[at:] for at in range(len(template) + 1) for byte in range(0, 256, 5)
    ]
    mutants += [template[:at] + template[at + cut :] for at in range(len(template)) for cut in (1, 2, 9, 99)]
    columns = FixedColumns(1100)
    assert seen(decode(mutants, columns, LIMITS)) == seen(decode_slowly(mutants, columns))


@given(batches, modes, st.data())
@settings(max_examples=40, deadline=None)
def test_how_messages_are_batched_changes_nothing(values: list[bytes], columns: Columns, data: st.DataObject) -> None:
    cut = data.draw(st.integers(0, len(values)))
    whole = decode(values, columns, LIMITS)
    first = decode(values[:cut], columns, LIMITS)
    second = decode(values[cut:], first.columns, LIMITS)
    assert rows_of(whole) == rows_of(first) + rows_of(second)
    assert whole.columns == second.columns
    later = tuple((row + first.block.rows, d) for row, d in second.growth)
    assert whole.growth == first.growth + later
    assert [e.reason for _, e in whole.bad] == [e.reason for _, e in (*first.bad, *second.bad)]


@given(batches, batches, modes)
@settings(max_examples=40, deadline=None)
def test_bad_messages_never_disturb_good_ones(values: list[bytes], noise: list[bytes], columns: Columns) -> None:
    bad_ones = [noise[message] for message, _ in decode(noise, columns, LIMITS).bad]
    alone = decode(values, columns, LIMITS)
    disturbed: list[bytes] = []
    for message in values:
        disturbed += [*bad_ones, message]
    among = decode(disturbed, columns, LIMITS)
    assert rows_of(among) == rows_of(alone)
    assert (among.columns, among.growth) == (alone.columns, alone.growth)


@given(batches, modes)
@settings(max_examples=40, deadline=None)
def test_decoding_leaves_the_columns_as_they_were(values: list[bytes], columns: Columns) -> None:
    before = repr(columns)
    decode(values, columns, LIMITS)
    assert repr(columns) == before


@given(batches)
@settings(max_examples=40, deadline=None)
def test_decoded_rows_encode_to_messages_that_decode_to_the_same_rows(values: list[bytes]) -> None:
    batch = decode(values, FIXED, LIMITS)
    for packed in (True, False):
        for rows_per_message in (None, 3):
            again = list(encode_rows(batch.block, packed=packed, rows_per_message=rows_per_message))
            assert rows_of(decode(again, FIXED)) == rows_of(batch)


@given(indices, st.data())
@settings(max_examples=40, deadline=None)
def test_a_row_is_the_sum_of_its_entries_in_the_order_given(columns: list[int], data: st.DataObject) -> None:
    values = data.draw(st.lists(st.floats(-1e10, 1e10), min_size=len(columns), max_size=len(columns)))
    expected: dict[int, float] = {}
    for column, value in zip(columns, values, strict=True):
        expected[column] = expected.get(column, 0.0) + value
    kept = sorted((column, value) for column, value in expected.items() if value)
    for packed in (True, False):
        batch = decode([encode_row(columns, values, packed=packed)], FixedColumns(61))
        assert rows_of(batch) == [([column for column, _ in kept], [value for _, value in kept])]


def test_an_empty_batch_is_an_empty_block() -> None:
    batch = decode([], FixedColumns(5))
    assert (batch.block.rows, batch.block.nnz, batch.bad, batch.rows_of_message.tolist()) == (0, 0, (), [])


def test_blocks_of_no_rows_are_good_and_count_nothing() -> None:
    batch = decode_one(msgpack.packb({"i": [], "p": [0]}), FixedColumns(5))
    assert (batch.block.rows, batch.bad) == (0, ())
