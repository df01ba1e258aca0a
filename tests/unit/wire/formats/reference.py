"""Decoding by the compiled decoder and by the reference in Python, compared in all that a batch holds."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from sfd_stream.wire import compiled
from sfd_stream.wire.columns import Columns, HashedColumns
from sfd_stream.wire.formats.records import Decoder
from sfd_stream.wire.rows.decode import DecodedBatch
from sfd_stream.wire.rows.part import RowLimits


@contextmanager
def reference() -> Iterator[None]:
    """Within it, messages are read by Python alone."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(compiled, "_library", lambda: None)
        yield


def verdicts(batch: DecodedBatch) -> list[tuple[int, str, str]]:
    """Without the addresses of objects, which some messages of fastavro contain."""
    return [(number, error.reason, re.sub("0x[0-9a-f]+", "", str(error))) for number, error in batch.bad]


def assert_same(decoder: Decoder, messages: list[bytes], columns: Columns, **limits: int) -> DecodedBatch:
    """Decodes by both, and compares all that a batch holds."""
    found = decoder.decode(messages, columns, RowLimits(**limits))
    with reference():
        wanted = decoder.decode(messages, columns, RowLimits(**limits))
    assert verdicts(found) == verdicts(wanted)
    for name in ("indptr", "indices", "values"):
        one, other = getattr(found.block, name), getattr(wanted.block, name)
        assert one.dtype == other.dtype
        assert one.tobytes() == other.tobytes()
    assert found.rows_of_message.tolist() == wanted.rows_of_message.tolist()
    assert found.columns == wanted.columns
    assert found.growth == wanted.growth
    if isinstance(found.columns, HashedColumns) and isinstance(wanted.columns, HashedColumns):
        assert list(found.columns.names.items()) == list(wanted.columns.names.items())
    return found
