"""Readers of a topic to which somebody writes what he should not: they skip it, count it and go on."""

from __future__ import annotations

import contextlib
import itertools
import logging
import os
from collections.abc import Iterable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import msgpack
import numpy as np
import pytest

from sfd_stream import SnapshotReader, encode_row
from sfd_stream.errors import (
    ChecksumError,
    FormatError,
    NoSnapshotError,
    ObjectMissingError,
    SettingsError,
    StoreRefusedError,
    UnmergeableError,
)
from sfd_stream.kafka.records import Record
from sfd_stream.reader.merged import merge
from sfd_stream.reader.newest import Newest
from sfd_stream.storage.open import open_store
from sfd_stream.wire import snapshots
from sfd_stream.wire.snapshot_ids import EPOCH_MAX
from sfd_stream.wire.snapshots import Message, Reference, encode_reference, encode_snapshot, message_of, reference_to
from tests.unit.reader.made import message, rows_of, sketch_of, snapshot

SKETCH = sketch_of(rows_of(0))
GOOD = message(snapshot(SKETCH, epoch=3, number=5))
KEY = "g/rows/0/blobs/1-snapshot"


def malformed(epoch: int) -> Message:
    """Sealed, with an id that outranks the good ones, and an array that is none."""
    body = msgpack.unpackb(msgpack.unpackb(message(snapshot(SKETCH, epoch=epoch)).value)["body"])
    return message_of(snapshots._seal("sfd-snapshot", body | {"matrix": b"junk"}))


def newer_format() -> bytes:
    body = msgpack.packb({"id": snapshot(SKETCH, epoch=9).id.as_map()})
    return snapshots._head("sfd-snapshot", 2, snapshots._sum_of("sfd-snapshot", 2, body), len(body)) + body


JUNK = {
    "no snapshot": GOOD._replace(value=b"junk", headers=()),
    "no snapshot, with the headers of a newer one": GOOD._replace(
        value=b"junk", headers=message(snapshot(SKETCH, epoch=EPOCH_MAX)).headers
    ),
    "a header of 4,000 digits": GOOD._replace(value=b"junk", headers=(*GOOD.headers, ("sfd-epoch", b"9" * 4000))),
    "epoch 2^63": GOOD._replace(
        value=snapshots._seal("sfd-snapshot", {"id": snapshot(SKETCH, epoch=2**63).id.as_map()}), headers=()
    ),
    "malformed within its seal": malformed(9),
    "headers that belie the value": GOOD._replace(headers=message(snapshot(SKETCH, epoch=4)).headers),
    "the key of another": message(snapshot(SKETCH, 1, epoch=9))._replace(key=GOOD.key),
    "no key": message(snapshot(SKETCH, 1))._replace(key=b""),
    "a newer format": GOOD._replace(value=newer_format(), headers=()),
    "rows": GOOD._replace(value=encode_row([1, 2], [1.0, 2.0]), headers=()),
}


def records(messages: Iterable[Message]) -> list[Record]:
    return [
        Record(partition=0, offset=at, value=one.value, key=one.key, headers=one.headers, timestamp_ms=at)
        for at, one in enumerate(messages)
    ]


@pytest.fixture
def reader_fed() -> Iterator[Any]:
    """A reader of no broker that has read these messages."""
    made: list[SnapshotReader] = []

    def feed(*messages: Message, **options: Any) -> SnapshotReader:
        reader = SnapshotReader("127.0.0.1:1", "sketches", log_level=0, wall_clock=lambda: 1060.0, **options)
        made.append(reader)
        reader._offer(records(messages))
        return reader

    yield feed
    for reader in made:
        reader.close()


# -- junk ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", JUNK)
def test_junk_is_skipped_and_counted_and_what_is_good_stays(kind: str, reader_fed: Any) -> None:
    reader = reader_fed(GOOD)
    assert reader.held()[0].id.order == (3, 5)
    reader._offer(records([JUNK[kind]]))
    for _ in range(2):
        (found,) = reader.held()
        assert found.id.order == (3, 5)
    assert reader.skipped == 1
    reader._offer(records([message(snapshot(SKETCH, epoch=3, number=6))]))
    assert reader.held()[0].id.order == (3, 6)


@pytest.mark.parametrize("kind", JUNK)
def test_junk_that_came_first_is_replaced_by_the_next_good_one(kind: str, reader_fed: Any) -> None:
    reader = reader_fed(JUNK[kind])
    for _ in range(2):
        with pytest.raises((FormatError, NoSnapshotError)):
            reader.held()
    reader._offer(records([GOOD]))
    assert reader.held()[0].id.order == (3, 5)


def test_junk_is_logged_but_not_a_line_each(reader_fed: Any, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.WARNING, "sfd_stream.reader")
    junk = (GOOD._replace(key=f"\x1b[31m{at}".encode(), value=b"\x80", headers=()) for at in range(1000))
    reader = reader_fed(GOOD)
    for one in junk:
        reader._offer(records([one]))
    assert reader.skipped == 1000
    assert 1 <= len(caplog.records) <= 12
    assert "not a snapshot of sfd-stream" in caplog.text
    assert "\x1b" not in caplog.text


def test_a_topic_of_rows_is_said_to_be_one(reader_fed: Any) -> None:
    rows = [Message(b"", encode_row([at], [1.0]), ()) for at in range(1, 5)]
    with pytest.raises(NoSnapshotError, match=r"topic sketches holds rows, not snapshots.*snapshot\.topic"):
        reader_fed(*rows).held()
    with pytest.raises(NoSnapshotError, match="holds rows"):
        reader_fed(*(Message(b"key", encode_row(["word"], [1.0], packed=False), ()) for _ in rows)).held()


# -- how much --------------------------------------------------------------------------------------------------


def test_sums_that_are_too_large_are_unmergeable() -> None:
    vast = replace(SKETCH, squared_frobenius=1e307)
    with pytest.raises(UnmergeableError, match="can't be merged"):
        merge([snapshot(vast, partition, partitions=2) for partition in range(2)], 2000.0)


def test_texts_of_an_id_reach_no_terminal_as_they_are(reader_fed: Any) -> None:
    forged = message(snapshot(SKETCH, group="\x1b[31m\u202e"))
    reader = reader_fed(forged._replace(value=b"junk"), GOOD._replace(value=forged.value, headers=()))
    assert reader.skipped == 2
    with pytest.raises(FormatError) as caught:
        reader.held()
    assert "\\x1b[31m\\u202e" in str(caught.value)
    assert str(caught.value).isprintable()


def test_a_narrow_sketch_is_not_padded_to_more_than_the_limit() -> None:
    wide = replace(SKETCH, matrix=np.zeros((0, 2**24)), column_sums=None)
    parts = [snapshot(SKETCH, 0, partitions=2, columns="growing"), snapshot(wide, 1, partitions=2, columns="growing")]
    with pytest.raises(UnmergeableError, match=r"16,777,216 columns.*g/rows/1"):
        merge(parts, 2000.0, max_bytes=1 << 20)


def test_what_is_missing_is_named_only_up_to_a_number() -> None:
    parts = [snapshot(SKETCH, 0, topic=f"t{at}", partitions=100_000) for at in range(20)]
    with pytest.raises(UnmergeableError, match=r"1,999,980 partitions are missing"):
        merge(parts, 2000.0)


# -- references ------------------------------------------------------------------------------------------------


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "store" / "g").mkdir(parents=True)
    return tmp_path / "store"


def referring(url: str, key: str, **changes: Any) -> Message:
    encoded = encode_snapshot(snapshot(SKETCH, epoch=4))
    found = snapshots.decode_message(reference_to(encoded, url, key).value)
    assert isinstance(found, Reference)
    return message_of(encode_reference(found._replace(**changes)))


def test_a_store_that_the_reader_was_not_told_of_is_not_opened(
    reader_fed: Any, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    open_store(folder.as_uri()).put(KEY, encode_snapshot(snapshot(SKETCH, epoch=4)))
    opened: list[str] = []
    monkeypatch.setattr("sfd_stream.reader.reader.open_store", lambda url, _: opened.append(url))
    with pytest.raises(StoreRefusedError, match=f"{folder.as_uri()}.*does not trust.*store_url"):
        reader_fed(referring(folder.as_uri(), KEY)).held()
    reader = reader_fed(GOOD, trusted_stores=[folder.as_uri()])
    assert reader.held()[0].id.order == (3, 5)
    reader._offer(records([referring("s3://others-bucket/secret", KEY)]))
    assert reader.held()[0].id.order == (3, 5)
    assert (opened, reader.skipped) == ([], 1)


@pytest.mark.parametrize("how", ["store_url", "trusted_stores", "trusted_stores, written otherwise"])
def test_a_store_that_the_reader_was_told_of_is_read(how: str, reader_fed: Any, tmp_path: Path) -> None:
    url = (tmp_path / "a store").as_uri()
    open_store(url).put(KEY, encode_snapshot(snapshot(SKETCH, epoch=4)))
    told: dict[str, Any] = {
        "store_url": {"store_url": url},
        "trusted_stores": {"trusted_stores": ["s3://some/where", url]},
        "trusted_stores, written otherwise": {"trusted_stores": [url.replace("%20", " ") + "/"]},
    }[how]
    assert reader_fed(referring(url, KEY), **told).held()[0].id.epoch == 4


def test_a_trusted_store_is_opened_as_the_reader_was_told_it(reader_fed: Any, tmp_path: Path) -> None:
    """However the reference writes it."""
    url, asked = (tmp_path / "store").as_uri(), []
    open_store(url).put(KEY, encode_snapshot(snapshot(SKETCH, epoch=4)))
    for written in (url.replace("store", "%73tore"), url + "//"):
        reader = reader_fed(referring(written, KEY), trusted_stores=[url])
        assert reader.held()[0].id.epoch == 4
        asked += list(reader._stores)
    assert asked == [url, url]


def test_only_regular_files_are_read(reader_fed: Any, folder: Path) -> None:
    os.mkfifo(folder / "g" / "fifo")
    (folder / "g" / "zero").symlink_to("/dev/zero")
    (folder / "g" / "loop").symlink_to(folder / "g" / "loop")
    (folder / "g" / "folder").mkdir()
    for name in ("fifo", "zero", "loop", "folder"):
        reader = reader_fed(GOOD, store_url=folder.as_uri())
        reader.held()
        reader._offer(records([referring(folder.as_uri(), f"g/{name}")]))
        with contextlib.suppress(ObjectMissingError):
            reader.held()
        assert [one.id.epoch for one in reader.held()] == [3], name
        assert reader.skipped == 1


@pytest.mark.parametrize("key", ["../../etc/passwd", "/etc/passwd", "g/../../x", "g/.hidden", "", "g//x", "g/\0", "."])
def test_a_key_that_climbs_out_is_refused(key: str, reader_fed: Any, folder: Path) -> None:
    with pytest.raises(StoreRefusedError, match="is no key of a checkpoint store"):
        reader_fed(referring(folder.as_uri(), key), store_url=folder.as_uri()).held()


def test_no_more_is_read_than_the_reference_declares(reader_fed: Any, folder: Path) -> None:
    with (folder / "g" / "huge").open("wb") as file:
        file.truncate(1 << 40)
    with pytest.raises(ChecksumError, match="size or checksum differ"):
        reader_fed(referring(folder.as_uri(), "g/huge"), store_url=folder.as_uri()).held()
    with pytest.raises(FormatError, match=r"1,099,511,627,776 bytes.*max_snapshot_bytes"):
        reader_fed(referring(folder.as_uri(), "g/huge", size=1 << 40), store_url=folder.as_uri()).held()


def test_errors_of_a_reference_name_the_store_that_was_read(reader_fed: Any, folder: Path) -> None:
    url = folder.as_uri()
    elsewhere = "s3://somewhere/else"
    encoded = encode_snapshot(snapshot(SKETCH, epoch=4))
    open_store(url).put(KEY, encoded[:-1] + bytes([encoded[-1] ^ 1]))
    with pytest.raises(ChecksumError) as caught:
        reader_fed(referring(elsewhere, KEY), store_url=url).held()
    assert f"{url}/{KEY}" in str(caught.value)
    assert elsewhere not in str(caught.value)


def test_a_reference_to_nothing_does_not_hold_up_the_rest_for_ever(reader_fed: Any, folder: Path) -> None:
    """The bytes may be gone because a newer message is on its way: the first time says so, then the rest is given."""
    other = message(snapshot(SKETCH, 1, partitions=2))
    reader = reader_fed(other, referring(folder.as_uri(), KEY), store_url=folder.as_uri())
    with pytest.raises(ObjectMissingError, match=r"g/rows/0 \(4, 1\) refers to"):
        reader.held()
    assert [one.id.partition for one in reader.held()] == [1]
    assert reader.skipped == 1
    alone = reader_fed(referring(folder.as_uri(), KEY), store_url=folder.as_uri())
    for _ in range(3):
        with pytest.raises(ObjectMissingError):
            alone.held()


# -- how it is called ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("bootstrap", [["localhost:9092"], ("localhost:9092",), None, b"localhost:9092"])
def test_a_bootstrap_that_is_no_text_is_an_error(bootstrap: Any) -> None:
    with pytest.raises(SettingsError, match=r'bootstrap must be a text like "host:9092"'):
        SnapshotReader(bootstrap, "sketches", log_level=0)


def test_any_order_of_good_and_junk_ends_at_the_newest_good_one() -> None:
    good = [message(snapshot(SKETCH, epoch=epoch, number=number)) for epoch, number in ((1, 5), (2, 3))]
    for order in itertools.permutations([*good, JUNK["no snapshot"], malformed(9)]):
        newest = Newest()
        for one in order:
            newest.offer(one.key, one.value, one.headers)
            try:
                newest.all()
            except FormatError:
                assert one in (JUNK["no snapshot"], order[0], malformed(9))
        assert [found.id.order for found in newest.all()] == [(2, 3)]
