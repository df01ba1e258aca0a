"""The words for a bad message name the most likely cause."""

from __future__ import annotations

import pytest

from sfd_stream.wire.formats.from_json import read_json
from tests.unit.wire.formats.events import events, framed
from tests.unit.wire.formats.test_formats import WAYS, decoded, plain


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


@pytest.mark.parametrize("way", ["json", "avro", "protobuf"])
def test_messages_of_a_registry_without_its_settings_are_recognised(way: str) -> None:
    decoder, write = WAYS[way]
    ((_, error),) = decoded(decoder, [framed(3, write(events(1)[0]))]).bad
    assert error.reason == "malformed"
    assert "set schema_registry.url" in error.words
    assert str(error).startswith(error.words)
