"""The newest valid message of every key stays, within bounded memory; junk is skipped and counted."""

from __future__ import annotations

import itertools
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from sfd_stream.errors import RefusedStateError
from sfd_stream.reader.newest import Epochs, Newest, half_of_the_memory
from sfd_stream.wire.snapshot_ids import EPOCH_MAX, EPOCH_TAKEN_MAX
from sfd_stream.wire.snapshots import Snapshot
from tests.unit.reader.made import message, rows_of, sketch_of, snapshot

SKETCH = sketch_of(rows_of(0))
GOOD = message(snapshot(SKETCH, epoch=3, number=5))


def offered(newest: Newest, *snapshots: Snapshot) -> list[bool]:
    """Whether each of these was newer than the one before it."""
    return [newest.offer(one.key, one.value, one.headers) for one in map(message, snapshots)]


def test_the_newest_message_of_a_key_is_that_of_the_greatest_epoch_and_number() -> None:
    newest = Newest()
    orders = [(3, 5), (3, 5), (3, 4), (2, 9), (3, 6), (4, 1)]
    taken = offered(newest, *(snapshot(SKETCH, epoch=epoch, number=number) for epoch, number in orders))
    assert taken == [True, False, False, False, True, True]
    assert [found.id.order for found in newest.all()] == [(4, 1)]


def test_each_key_has_its_own_and_they_are_in_the_order_of_partitions() -> None:
    newest = Newest()
    assert all(offered(newest, *(snapshot(SKETCH, partition, partitions=12) for partition in (10, 2, 0))))
    assert [found.id.partition for found in newest.all()] == [0, 2, 10]


def test_of_one_group_no_other_is_held() -> None:
    newest = Newest(group="g")
    assert offered(newest, snapshot(SKETCH, group="h"), snapshot(SKETCH)) == [False, True]
    assert not newest.offer(b"h/rows/0", b"junk")
    assert (list(newest.ids), newest.skipped) == (["g/rows/0"], 0)


def test_a_null_value_resets_its_key() -> None:
    """An operator's way out: whatever pinned the key is forgotten, and the next snapshot is taken."""
    newest = Newest()
    pinned = message(snapshot(SKETCH, epoch=EPOCH_MAX))
    assert newest.offer(pinned.key, pinned.value, pinned.headers)
    assert not newest.offer(GOOD.key, GOOD.value, GOOD.headers)
    assert newest.offer(GOOD.key, None)
    assert len(newest) == 0
    assert newest.offer(GOOD.key, GOOD.value, GOOD.headers)
    assert newest.all()[0].id.order == (3, 5)


def test_a_million_junk_keys_take_no_memory() -> None:
    newest = Newest()
    for at in range(100_000):
        newest.offer(b"g/rows/%d" % at, b"junk")
    assert (len(newest), newest.skipped) == (0, 100_000)
    held = [name for name, value in vars(newest).items() if hasattr(value, "__len__") and len(value) > 100]
    assert held == []


def test_keys_beyond_the_limit_are_not_held() -> None:
    value = message(snapshot(SKETCH)).value
    newest = Newest(max_total_bytes=20 * (len(value) + 2000))
    for partition in range(100):
        one = message(snapshot(SKETCH, partition, partitions=100))
        newest.offer(one.key, one.value, one.headers)
    assert 10 <= len(newest) <= 40
    assert newest.skipped == 100 - len(newest)


def test_there_is_a_number_of_keys_that_is_not_exceeded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sfd_stream.reader.newest.KEYS_MAX", 10)
    newest = Newest()
    for number, partition in itertools.product((1, 2), range(30)):
        one = message(snapshot(SKETCH, partition, number=number, partitions=30))
        newest.offer(one.key, one.value, one.headers)
    assert [found.id.order for found in newest.all()] == [(1, 2)] * 10  # what is held goes on
    assert newest.skipped == 40


def test_a_container_s_limit_counts(tmp_path: Path) -> None:
    (tmp_path / "some").write_text("1000000\n")
    (tmp_path / "none").write_text("max\n")
    assert half_of_the_memory(tmp_path / "some") == 500_000
    assert half_of_the_memory(tmp_path / "none") == half_of_the_memory(tmp_path / "missing") > 500_000


def test_what_decoded_takes_more_than_the_limit_is_refused() -> None:
    wide = replace(SKETCH, matrix=np.zeros((6, 50_000)), column_sums=None)
    newest = Newest(max_total_bytes=6 << 20)
    for partition in range(3):
        one = message(snapshot(wide, partition, partitions=3))
        assert newest.offer(one.key, one.value, one.headers)
    with pytest.raises(RefusedStateError, match="max_total_bytes"):
        newest.all()


def test_replaced_snapshots_give_their_room_back() -> None:
    newest = Newest(max_total_bytes=200_000)
    for number in range(1, 200):
        one = message(snapshot(SKETCH, number=number))
        assert newest.offer(one.key, one.value, one.headers)
        assert newest.all()[0].id.number == number
    newest.offer(one.key, None)
    assert newest.held_bytes == 0


def test_of_a_topic_only_the_epochs_of_one_s_own_partitions_are_kept() -> None:
    epochs, small = Epochs("g", "rows"), sketch_of(rows_of(0, n=2, d=2), 2)
    for partition, epoch in ((0, 3), (0, 2), (1, 9), (2, EPOCH_TAKEN_MAX + 1), (2, 4)):
        one = message(snapshot(small, partition, epoch=epoch))
        epochs.note(one.key, one.value, one.headers if epoch != 2 else ())
    for others in (message(snapshot(small, group="h")), message(snapshot(small, topic="t", epoch=8))):
        epochs.note(others.key, others.value, others.headers)
    for junk in (b"g/rows/x", b"g/rows/" + b"9" * 5000, b"g/rows/0", None):
        epochs.note(junk, b"junk")
    assert (epochs.found, epochs.forged) == ({0: 3, 1: 9, 2: 4}, {2: EPOCH_TAKEN_MAX + 1})
    epochs.note(b"g/rows/2", None)
    epochs.note(b"g/rows/1", None)
    assert (epochs.found, epochs.forged) == ({0: 3}, {})
