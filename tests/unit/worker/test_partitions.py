"""The partitions of a worker: claimed while memory has room, and released for good."""

from __future__ import annotations

import pytest

from sfd_stream.storage.memory import MemoryStore
from sfd_stream.worker.partitions import OwnedPartition, Partitions, Phase
from tests.support.watched import Stage
from tests.system.fakes import Diary, plan_of
from tests.unit.worker.chains import chain_on

ONE = plan_of().shape(0).memory_bytes()
"""The memory that a partition may need."""


def table(partitions: int, memory_max_bytes: int = 2**30) -> Partitions:
    """Partitions that wait to be claimed."""
    made = Partitions(plan_of(memory_max_bytes=memory_max_bytes))
    for number in range(partitions):
        made.add(OwnedPartition(number, chain_on(MemoryStore("phases"), number), Diary(), assigned_s=0.0))
    return made


def test_partitions_are_claimed_while_memory_has_room_for_them() -> None:
    made = table(3, memory_max_bytes=2 * ONE)
    assert [owned.number for owned in made.admit()] == [0, 1]
    assert made.reserved_bytes() == 2 * ONE
    assert made.admit() == [], "there is no room for the third"
    for owned in made.among(Phase.CLAIMING)[:1]:
        made.remove(owned)
    assert [owned.number for owned in made.admit()] == [2]


def test_one_partition_is_claimed_even_if_it_needs_more_than_the_maximum() -> None:
    made = table(2, memory_max_bytes=1)
    assert [owned.number for owned in made.admit()] == [0]
    assert made.admit() == []


def test_a_released_partition_is_never_used_again() -> None:
    made = table(1)
    (owned,) = made
    made.remove(owned)
    assert made.get(0) is None
    with pytest.raises(AssertionError, match="RELEASED to "):
        owned.move(Phase.CLAIMING)


def test_a_partition_is_dirty_while_a_record_is_in_no_checkpoint() -> None:
    stage = Stage(partitions=1)
    owned = stage.owned(0)
    assert not owned.is_dirty
    stage.feed(0, 5)
    assert owned.is_dirty
    stage.checkpoint(0)
    assert not owned.is_dirty


def test_log_lines_of_a_partition_name_it_and_the_owner_of_its_newest_manifest() -> None:
    log = Diary()
    owned = OwnedPartition(3, Stage(partitions=1).owned(0).chain, log, assigned_s=0.0)
    owned.log.info("checkpoint restored")
    assert log.of("checkpoint restored") == [{"partition": 3, "epoch": 3, "number": 1}]
