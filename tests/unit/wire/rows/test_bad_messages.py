"""Bad and hostile messages: each by its reason, none at a price."""

from __future__ import annotations

import struct
import sys
import tracemalloc
from typing import Any

import msgpack
import numpy as np
import pytest

from sfd_stream.errors import RowDecodeError
from sfd_stream.wire.columns import Columns, FixedColumns, GrowingColumns, HashedColumns
from sfd_stream.wire.reasons import Reason
from sfd_stream.wire.rows.decode import decode, decode_one
from sfd_stream.wire.rows.encode import encode_row
from sfd_stream.wire.rows.part import RowLimits
from tests.support.slow import smoke_first

FIXED = FixedColumns(10)
HASHED = HashedColumns(10)
LIMITS = RowLimits(message_bytes_max=400, nnz_max=20, rows_max=4, string_bytes_max=8)


def u32(*numbers: int) -> bytes:
    return struct.pack(f"<{len(numbers)}I", *numbers)


def reason_of(message: bytes, columns: Columns = FIXED, limits: RowLimits = LIMITS) -> str:
    with pytest.raises(RowDecodeError) as caught:
        decode_one(message, columns, limits)
    return caught.value.reason


@pytest.mark.parametrize(
    ("fields", "reason"),
    [
        ({"i": None}, Reason.BAD_TYPE),
        ({"i": 3}, Reason.BAD_TYPE),
        ({"i": "3"}, Reason.BAD_TYPE),
        ({"i": {}}, Reason.BAD_TYPE),
        ({"i": [None]}, Reason.BAD_TYPE),
        ({"i": [b"3"]}, Reason.BAD_TYPE),
        ({"i": [3, False]}, Reason.BAD_TYPE),
        ({"i": [3], "v": None}, Reason.BAD_TYPE),
        ({"i": [3], "v": ["1"]}, Reason.BAD_TYPE),
        ({"i": [3], "v": [None]}, Reason.BAD_TYPE),
        ({"i": u32(3), "v": [True]}, Reason.BAD_TYPE),
        ({"i": [3], "p": [0.0, 1.0]}, Reason.BAD_TYPE),
        ({"i": [3], "p": [False, True]}, Reason.BAD_TYPE),
        ({3: "x"}, Reason.BAD_TYPE),
        ({3: True}, Reason.BAD_TYPE),
        ({3: 1.0, "i": 1.0}, Reason.BAD_KEYS),
        ({"i": [3], 3: 1.0}, Reason.BAD_KEYS),
        ({"x": [3]}, Reason.BAD_KEYS),
        ({b"i": [3]}, Reason.BAD_KEYS),
        ({True: 3}, Reason.BAD_KEYS),
        ({None: 3}, Reason.BAD_KEYS),
        ({1.0: 3}, Reason.BAD_KEYS),
        ({"p": [0], "v": []}, Reason.BAD_KEYS),
        ({"i": [1, 2], "v": [1.0]}, Reason.BAD_LENGTH),
        ({"i": [1, 2], "v": bytes(12)}, Reason.BAD_LENGTH),
        ({"i": [], "v": bytes(4)}, Reason.BAD_LENGTH),
        ({"i": bytes(7)}, Reason.BAD_LENGTH),
        ({"i": [1], "p": bytes(7)}, Reason.BAD_LENGTH),
        ({"i": [1], "p": []}, Reason.BAD_POINTERS),
        ({"i": [1], "p": b""}, Reason.BAD_POINTERS),
        ({"i": [1, 2], "p": [1, 2]}, Reason.BAD_POINTERS),
        ({"i": [1, 2], "p": [0, 1]}, Reason.BAD_POINTERS),
        ({"i": [1, 2], "p": [0, 2, 1, 2]}, Reason.BAD_POINTERS),
        ({"i": [1, 2], "p": [0, 3, 2]}, Reason.BAD_POINTERS),
        ({"i": [1, 2], "p": [0, -1, 2]}, Reason.BAD_POINTERS),
        ({"i": [1, 2], "p": [0, 2**64 - 1, 2]}, Reason.BAD_POINTERS),
        ({"i": [1, 2], "p": u32(0, 2**32 - 1, 2)}, Reason.BAD_POINTERS),
        ({"i": [10]}, Reason.BAD_INDEX),
        ({"i": [-1]}, Reason.BAD_INDEX),
        ({"i": [2**32 + 1]}, Reason.BAD_INDEX),
        ({"i": [2**64 - 1]}, Reason.BAD_INDEX),
        ({"i": [-(2**63)]}, Reason.BAD_INDEX),
        ({"i": u32(2**32 - 1)}, Reason.BAD_INDEX),
        ({10: 1.0}, Reason.BAD_INDEX),
        ({"i": [10], "v": [0]}, Reason.BAD_INDEX),
        ({"i": u32(1), "v": struct.pack("<f", float("nan"))}, Reason.NOT_FINITE),
        ({"i": u32(1), "v": struct.pack("<d", float("-inf"))}, Reason.NOT_FINITE),
        ({"i": u32(1), "v": bytes.fromhex("010000000000f07f")}, Reason.NOT_FINITE),  # a signalling NaN
        ({"i": u32(1), "v": bytes.fromhex("0100807f")}, Reason.NOT_FINITE),
        ({"i": [1, 1], "v": [8e99, 8e99]}, Reason.TOO_LARGE),
        ({"i": [1], "v": [-1.1e100]}, Reason.TOO_LARGE),
        ({"i": list(range(21))}, Reason.OVER_LIMIT),
        ({"i": bytes(84)}, Reason.OVER_LIMIT),
        ({"i": [], "p": [0, 0, 0, 0, 0, 0]}, Reason.OVER_LIMIT),
        ({"i": b"", "p": bytes(24)}, Reason.OVER_LIMIT),
        (dict.fromkeys(range(21), 1), Reason.OVER_LIMIT),
        ({"i": bytes(500)}, Reason.OVER_LIMIT),
        ({"a key that is long": []}, Reason.OVER_LIMIT),
    ],
)
@pytest.mark.parametrize("crowd", smoke_first([1, 40]))
def test_a_bad_message_is_bad_by_its_reason(fields: dict[Any, Any], reason: Reason, crowd: int) -> None:
    good = encode_row([1, 4], [2.0, 3.0])
    batch = decode([msgpack.packb(fields), good] * crowd, FIXED, LIMITS)
    assert [(number, error.reason) for number, error in batch.bad] == [(2 * n, reason) for n in range(crowd)]
    assert batch.rows_of_message.tolist() == [0, 1] * crowd
    assert np.array_equal(batch.block.values, [2.0, 3.0] * crowd)


@pytest.mark.parametrize(
    "message",
    [
        b"",
        b"\xc1",
        b"\x81",
        b"\x81\xa1",
        b"\x81\xa1i",
        b"\x81\xa1i\xc1",
        b"\x81\xa1i\x91\xc1",
        b"\x81\xa1i\xc4\x08abcd",
        b"\x82\xa1i\x91\x01",
        b"\xdf\xff\xff\xff\xff",
        b"\x81\xa1\xff\x91\x01",
        b"\x81\xa1i\x91\xd4\x05x",
        b"\x81\xa1i\x91\xd6\xff\x00\x00\x00\x00",
        b"\x81\xa1i\x91\xc7\x00\x05",
        b"\x81\xa1i\x91\x80",
        b"\x81\xa1i\x91\x90",
        b"\x80\x80",
        encode_row([1]) + b"\x00",
        encode_row([1], packed=False)[:-1],
    ],
)
def test_what_is_not_one_flat_map_is_malformed(message: bytes) -> None:
    assert reason_of(message) in {Reason.MALFORMED, Reason.BAD_TYPE}


@pytest.mark.parametrize("message", [b'{"i": [3]}', b"[1, 2]", b' \r\n\t{"3": 1.0}', b'\xef\xbb\xbf{"i": [3]}'])
def test_a_message_that_looks_like_json_is_bad_for_that_reason(message: bytes) -> None:
    ((_, error),) = decode([message], FIXED).bad
    assert (error.reason, str(error)) == (
        "json",
        "this looks like JSON: set input.format: json, or send rows as docs/reference/formats.md says",
    )


def test_a_repeated_key_is_bad_but_a_repeated_column_adds_up() -> None:
    assert reason_of(b"\x82\xa1i\x91\x01\xa1i\x91\x01") == Reason.BAD_KEYS
    assert decode_one(b"\x82\x01\x02\x01\x03", FIXED).block.values.tolist() == [5.0]


def test_strings_have_a_limit_and_must_be_utf8() -> None:
    assert reason_of(encode_row(["a" * 9], packed=False), HASHED) == Reason.OVER_LIMIT
    assert reason_of(b"\x81\xa1i\x91\xa2\xff\xfe", HASHED) == Reason.MALFORMED
    assert decode_one(encode_row(["a" * 8], packed=False), HASHED, LIMITS).block.rows == 1


def test_a_growing_matrix_ends_at_d_max() -> None:
    assert reason_of(encode_row([12]), GrowingColumns(2, 12)) == Reason.BAD_INDEX
    assert decode_one(encode_row([11]), GrowingColumns(2, 12)).block.d == 12


def test_a_message_that_says_too_much_at_once_keeps_one_reason_for_all_readers() -> None:
    worst = msgpack.packb({"i": [99, 1], "v": [float("nan"), 1e200]})
    assert {error.reason for _, error in decode([worst] * 40, FIXED).bad} == {Reason.BAD_INDEX}
    assert reason_of(worst) == Reason.BAD_INDEX


SIZE = 60_000
HOSTILE = {
    "nothing but empty arrays": b"\x81\xa1i\xdd" + struct.pack(">I", SIZE) + b"\x90" * SIZE,
    "nothing but empty maps": b"\x81\xa1i\xdd" + struct.pack(">I", SIZE) + b"\x80" * SIZE,
    "arrays in arrays that claim much": b"\x81\xa1i" + b"\xdd\x00\x03\x00\x00" * (SIZE // 5),
    "maps in maps that claim much": b"\xdf\x00\x03\x00\x00" * (SIZE // 5),
    "deep": b"\x81\xa1i" + b"\x91" * SIZE,
    "a map that claims four billion pairs": b"\xdf\xff\xff\xff\xff" + b"\x00" * SIZE,
    "an array that claims all it may": b"\x81\xa1i\xdd\x00\x0f\xff\xff" + b"\x00" * 1000,
    "a bin that claims four billion bytes": b"\x81\xa1i\xc6\xff\xff\xff\xff" + b"\x00" * 1000,
    "a packed row that claims four billion bytes": b"\x82\xa1i\xc6\xff\xff\xff\xfc" + b"\x00" * 1000,
    "nils": b"\x81\xa1i\xdd" + struct.pack(">I", SIZE) + b"\xc0" * SIZE,
    "short strings": b"\x81\xa1i\xdd" + struct.pack(">I", SIZE // 3) + b"\xa2xy" * (SIZE // 3),
    "extensions": b"\x81\xa1i\xdd" + struct.pack(">I", SIZE // 3) + b"\xd4\x01x" * (SIZE // 3),
    "pairs of integers": b"\xdf" + struct.pack(">I", SIZE // 2) + b"\x07" * SIZE,
    "a good list": encode_row(range(SIZE // 5), packed=False),
}


@pytest.mark.parametrize("crowd", smoke_first([1, 40]))
@pytest.mark.parametrize("name", HOSTILE)
def test_a_hostile_message_costs_a_small_multiple_of_its_size(name: str, crowd: int) -> None:
    messages = [HOSTILE[name]] * crowd
    tracemalloc.start()
    try:
        decode(messages, HASHED)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < 40 * sum(map(len, messages)) + 2**20


MANY = 40
_HEAD = b"\xa1i\xdd" + struct.pack(">I", SIZE)
LIES = {
    "elements that end early": (b"\x82" + _HEAD + b"\x01" * 200 + b"\xa1v" + b"\x01" * SIZE, 200),
    "elements longer than the message": (b"\x81" + _HEAD + b"\xcb" * SIZE, SIZE // 9),
    "values that end early": (
        b"\x82" + _HEAD + b"\x01" * SIZE + b"\xa1v" + _HEAD[2:] + b"\x01" * 200 + b"\xa1" * SIZE,
        SIZE,
    ),
}
"""Each with the number of elements that it really has before the first that is none."""


def calls_of(messages: list[bytes]) -> int:
    """How many functions written in C the decoder calls: most of what its work is measured in, on any machine."""
    calls = 0

    def count(_: object, event: str, __: object) -> None:
        nonlocal calls
        calls += event == "c_call"

    sys.setprofile(count)
    try:
        decode(messages, FIXED)
    finally:
        sys.setprofile(None)
    return calls


@pytest.mark.parametrize("name", LIES)
def test_a_message_that_lies_about_its_lengths_costs_no_more_work_than_an_honest_one(name: str) -> None:
    message, elements = LIES[name]
    honest = calls_of([encode_row([1] * elements, packed=False)] * MANY)
    assert calls_of([message] * MANY) < 1.2 * honest + 3000


def test_a_crowd_of_long_lists_too_small_to_be_read_in_step_is_read_one_by_one() -> None:
    """In step every element costs a call of each function, and 16 messages do not make up for that."""
    assert calls_of([encode_row([1] * SIZE, packed=False)] * 16) < SIZE // 10
