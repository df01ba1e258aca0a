"""Messages of every format with changed bytes: bad ones are reported alone, and both decoders agree about all."""

from __future__ import annotations

import random
from typing import Any

import pytest

from sfd_stream.wire.compiled import is_available, take_rows
from sfd_stream.wire.formats.records import Decoder, RecordDecoder
from sfd_stream.wire.rows.part import RowLimits
from tests.unit.wire.formats.events import events
from tests.unit.wire.formats.mutations import mutated
from tests.unit.wire.formats.reference import assert_same
from tests.unit.wire.formats.ways import COLUMNS, WAYS, decoded, reasons, same


@pytest.mark.parametrize("way", WAYS)
def test_no_mutated_message_crashes_or_changes_its_neighbours(way: str) -> None:
    """`python -m tests.unit.wire.formats.fuzz` runs it for 10^6 messages of each format."""
    fuzz_batch(way, seed=1, count=300)


def fuzz_batch(way: str, seed: int, count: int, *, whole: bool = True) -> int:
    """Decodes a batch of good and mutated messages; returns how many were bad.

    The reference decodes the whole batch too, or only the messages that the compiled decoder takes: it reads all others
    anyway. Most events have titles in ASCII, which the compiled decoder takes.
    """
    rng = random.Random(seed)
    decoder, write = WAYS[way]
    good = [write(event) for event in mostly_ascii(events(60, seed))]
    mixed = [good[number // 2 % 20] if number % 2 else mutated(rng, rng.choice(good)) for number in range(count)]
    checked = mixed if whole else taken(decoder, mixed)
    batch = assert_same(decoder, checked, COLUMNS)
    if not whole:
        batch = decoded(decoder, mixed)
    bad = set(reasons(batch))
    assert not {number for number in bad if number % 2}
    alone = decoded(decoder, [message for number, message in enumerate(mixed) if number not in bad])
    assert not alone.bad
    assert same(batch, alone)
    return len(bad)


def taken(decoder: Decoder, messages: list[bytes]) -> list[bytes]:
    """The messages that the compiled decoder takes, each once."""
    distinct = list(dict.fromkeys(messages))
    take = decoder._reader.take if isinstance(decoder, RecordDecoder) else take_rows
    left = set(take(distinct, COLUMNS, RowLimits())[1].tolist())
    return [message for number, message in enumerate(distinct) if number not in left]


def mostly_ascii(data: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """20 of these events, 17 or more with a title in ASCII."""
    return sorted(data[3:], key=lambda event: not event["title"].isascii())[:17] + data[:3]


def test_the_compiled_decoder_takes_most_events_that_are_fuzzed() -> None:
    if not is_available():
        pytest.skip("needs the compiled decoder: make compiled, with cargo")
    for decoder, write in WAYS.values():
        good = [write(event) for event in mostly_ascii(events(60, 1))]
        assert len(taken(decoder, good)) >= 15
