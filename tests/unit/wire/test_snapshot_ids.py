"""The id of a snapshot is its key, its headers and its order; a reader takes no id that a writer would not write."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from sfd_stream.errors import FormatError
from sfd_stream.wire.snapshot_ids import EPOCH_MAX, EPOCH_TAKEN_MAX, SnapshotId, SnapshotPart, followed, next_epoch

ID = SnapshotId("cluster-1", "words", "rows", 3, 7, 41)


def test_the_key_names_group_topic_and_partition_and_a_window_if_there_is_one() -> None:
    assert ID.key == "words/rows/3"
    assert replace(ID, window="2026-01-01T00:00Z").key == "words/rows/3@2026-01-01T00:00Z"


def test_a_greater_epoch_is_newer_and_within_an_epoch_a_greater_number() -> None:
    ids = [replace(ID, epoch=8, number=1), ID, replace(ID, number=9)]
    assert sorted(ids, key=lambda each: each.order) == [replace(ID, number=9), ID, replace(ID, epoch=8, number=1)]


@pytest.mark.parametrize("one", [ID, replace(ID, cluster=None), replace(ID, window="w", epoch=EPOCH_MAX)], ids=str)
def test_headers_and_maps_lead_back_to_the_id(one: SnapshotId) -> None:
    assert SnapshotId.from_headers(one.headers("sfd-snapshot/1")) == one
    assert SnapshotId.from_map(one.as_map()) == one
    part = SnapshotPart(one, 4, 1042, 12, 1000.5)
    assert SnapshotPart.from_map(part.as_map()) == part


@pytest.mark.parametrize(
    "change", [{"topic": "a/b"}, {"epoch": EPOCH_MAX + 1}, {"partition": -1}, {"number": 1.0}, {"group": "g" * 1001}]
)
def test_an_id_that_no_writer_makes_is_refused(change: dict[str, Any]) -> None:
    with pytest.raises(FormatError, match=f"a snapshot's id has {next(iter(change))} = "):
        SnapshotId.from_map(ID.as_map() | change)


def test_a_writer_goes_above_the_epoch_of_its_topic_unless_that_one_is_forged() -> None:
    assert next_epoch(3, None) == 4
    assert next_epoch(3, 41) == 42
    assert next_epoch(3, EPOCH_TAKEN_MAX) == EPOCH_TAKEN_MAX + 1
    assert next_epoch(3, EPOCH_TAKEN_MAX + 1) == 4
    assert followed(EPOCH_TAKEN_MAX + 1) == 0


def test_half_an_id_in_the_headers_is_none() -> None:
    headers = ID.headers("x")
    for left_out in ("sfd-group", "sfd-topic", "sfd-partition", "sfd-epoch", "sfd-number"):
        assert SnapshotId.from_headers([pair for pair in headers if pair[0] != left_out]) is None
    assert SnapshotId.from_headers([*headers, ("sfd-epoch", b"seven")]) is None
    assert SnapshotId.from_headers([("other", None)]) is None


@pytest.mark.parametrize("digits", [17, 4000, 5000])
def test_a_header_of_many_digits_is_no_id(digits: int) -> None:
    headers = dict(ID.headers("x")) | {"sfd-epoch": b"9" * digits}
    assert SnapshotId.from_headers(headers.items()) is None
