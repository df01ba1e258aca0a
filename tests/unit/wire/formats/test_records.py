"""Every format gives the same rows, and a bad message is reported alone."""

from __future__ import annotations

import pytest

from sfd_stream import HashedColumns
from sfd_stream.wire.formats.from_json import read_json
from sfd_stream.wire.formats.records import MsgpackDecoder
from tests.unit.wire.formats.events import by_name, events, framed
from tests.unit.wire.formats.ways import WAYS, decoded, plain, reasons, same


@pytest.mark.parametrize("way", WAYS)
def test_every_format_gives_the_same_bits_and_the_same_names(way: str) -> None:
    data = events(300)
    decoder, write = WAYS[way]
    batch = decoded(decoder, [write(event) for event in data])
    reference = decoded(MsgpackDecoder(), [by_name(event) for event in data])
    assert not batch.bad
    assert batch.block.rows == 300
    assert same(batch, reference)
    assert isinstance(batch.columns, HashedColumns)
    assert {"kind=SALE", "items=🫖", "attributes.茶"} <= set(batch.columns.names.values())


@pytest.mark.parametrize("way", [way for way in WAYS if way != "msgpack"])
def test_a_bad_message_is_reported_alone(way: str) -> None:
    data = events(40)
    decoder, write = WAYS[way]
    messages = [write(event) for event in data]
    broken = {3: b"\xff\xff\xff\xff\xff\xff", 17: messages[17][:-3], 39: b"\x07"}
    batch = decoded(decoder, [broken.get(number, message) for number, message in enumerate(messages)])
    alone = decoded(decoder, [message for number, message in enumerate(messages) if number not in broken])
    assert set(reasons(batch)) == set(broken)
    assert set(reasons(batch).values()) == {"malformed"}
    assert same(batch, alone)
    assert [rows == 0 for rows in batch.rows_of_message] == [number in broken for number in range(40)]


@pytest.mark.parametrize(
    ("message", "limits"),
    [
        (b'{"a": "' + b"x" * 100 + b'"}', {"message_bytes_max": 100}),
        (b'{"a": ["x", "y", "z"]}', {"nnz_max": 2}),
        (b"[{}, {}, {}]", {"rows_max": 2}),
        (b'{"aaaaaaaaaa": {"aaaaaaaaaa": 1}}', {"string_bytes_max": 20}),
    ],
)
def test_a_message_over_a_limit_is_bad(message: bytes, limits: dict[str, int]) -> None:
    assert reasons(decoded(plain(read_json), [message], **limits)) == {0: "over_limit"}
    assert not decoded(plain(read_json), [message], **{name: most + 9 for name, most in limits.items()}).bad


@pytest.mark.parametrize("way", ["json", "avro", "protobuf"])
def test_messages_of_a_registry_without_its_settings_are_recognised(way: str) -> None:
    decoder, write = WAYS[way]
    ((_, error),) = decoded(decoder, [framed(3, write(events(1)[0]))]).bad
    assert error.reason == "malformed"
    assert "set schema_registry.url" in error.words
    assert str(error).startswith(error.words)
