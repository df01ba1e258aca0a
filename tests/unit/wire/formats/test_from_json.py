"""JSON has a defined outcome where the standard leaves one open, and the words for bad JSON name the likely cause."""

from __future__ import annotations

from typing import Any

import pytest

from sfd_stream import FeatureMap, HashedColumns, RowDecodeError
from sfd_stream.wire.formats.from_json import read_json
from tests.unit.wire.formats.ways import decoded, plain, reasons


def test_a_message_becomes_plain_values() -> None:
    assert read_json(b'{"user": "ab", "items": [1, 2.5, null, true]}') == {"user": "ab", "items": [1, 2.5, None, True]}
    with pytest.raises(RowDecodeError, match="not JSON that can be read"):
        read_json(b'{"user": "ab"')


TRAPS: list[tuple[bytes, str | dict[str, float]]] = [
    (b'{"a": 1, "a": 2}', {"a": 2.0}),
    (b'{"a": NaN}', "malformed"),
    (b'{"a": Infinity}', "malformed"),
    (b'{"a": 1e400}', "too_large"),
    (b'{"a": 1e101}', "too_large"),
    (b'{"a": -0.0, "b": 1e-400}', {}),
    (b'{"a": 9007199254740993}', {"a": 9007199254740992.0}),
    (b'{"a": 18446744073709551616}', {"a": 18446744073709551616.0}),
    (b'{"a": ' + b"1" * 5000 + b"}", "too_large"),
    (b'{"a": "\\ud800"}', "malformed"),
    (b'{"a": "\\ud83d\\ude00"}', {"a=😀": 1.0}),
    (b'{"a": "\xff"}', "malformed"),
    (b'{"\xed\xa0\x80": 1}', "malformed"),
    (b'\xef\xbb\xbf{"a": 1}', "malformed"),
    (b"[" * 100_000, "over_limit"),
    (b'{"a":' * 100 + b"1" + b"}" * 100, "over_limit"),
    (b'{"a": 1} {"a": 1}', "malformed"),
    (b"", "malformed"),
    (b"null", {}),
    (b"7", "bad_path"),
    (b'{"a": [1, 2]}', "bad_field"),
]


@pytest.mark.parametrize(("message", "expected"), TRAPS)
def test_the_traps_of_json_have_a_defined_outcome(message: bytes, expected: Any) -> None:
    columns = HashedColumns(2**20, names_max=99, mapping=FeatureMap())
    batch = decoded(plain(read_json), [message, b'{"good": 1}'], columns)
    assert batch.block.values[-1] == columns.column_of("good")[1]
    if isinstance(expected, str):
        assert reasons(batch) == {0: expected}
        return
    assert not batch.bad
    assert isinstance(batch.columns, HashedColumns)
    signs = batch.columns.signs()
    found = zip(batch.block.indices[:-1].tolist(), batch.block.values[:-1].tolist(), strict=True)
    assert {batch.columns.names[column]: value * signs[column] for column, value in found} == expected


def test_a_list_of_objects_is_a_block_and_null_holds_no_rows() -> None:
    batch = decoded(plain(read_json), [b'[{"a": 1}, {}, {"a": 2}]', b"[]", b"null", b'{"b": 1}'])
    assert batch.rows_of_message.tolist() == [3, 0, 0, 1]
    assert not batch.bad


@pytest.mark.parametrize(
    ("message", "words"),
    [
        (b'{"a": -Infinity}', "write null"),
        (b'\xef\xbb\xbf{"a": 1}', "byte order mark"),
        (b'{"a": "NaN"', "can be read:"),
    ],
)
def test_the_likely_cause_of_bad_json_is_named(message: bytes, words: str) -> None:
    assert words in str(decoded(plain(read_json), [message]).bad[0][1])
