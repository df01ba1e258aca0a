"""`--until-end`: the run ends once all rows are durable, published and committed, by whichever worker."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from sfd_stream.errors import RefusedStateError
from sfd_stream.kafka.commits import Committed
from sfd_stream.worker.partitions import Phase
from sfd_stream.worker.until_end import JOIN_S, UntilEnd
from tests.support.watched import Clock
from tests.system.fakes import Diary, plan_of

ENDS = {0: 10, 1: 20}
"""The run ends at these offsets."""


class Ours(list[Any]):
    """The partitions of this worker; the group has answered, unless a test says otherwise."""

    joined = True


def until_end(clock: Clock, *owned: Any, snapshots: bool = False) -> UntilEnd:
    source: Any = SimpleNamespace(position={0: 10, 1: 19}.get, last_committed={0: 10, 1: 20})
    runtime: Any = SimpleNamespace(clock=clock)
    table: Any = Ours(owned)
    found = UntilEnd(ENDS, plan_of(), runtime, source, table, Diary())
    found.publishes = snapshots
    return found


def owned(number: int, phase: Phase = Phase.FINISHED, *, has_pending_snapshot: bool = False) -> Any:
    return SimpleNamespace(number=number, phase=phase, chain=SimpleNamespace(has_pending_snapshot=has_pending_snapshot))


def test_a_partition_is_at_its_end_by_its_position() -> None:
    ending = until_end(Clock())
    assert ending.position(owned(0)) == 10
    assert ending.position(owned(1)) is None, "one record is missing"


def test_rows_are_delivered_when_committed_and_published() -> None:
    ending = until_end(Clock(), snapshots=True)
    assert ending.is_delivered(owned(0))
    assert not ending.is_delivered(owned(0, has_pending_snapshot=True))


def test_the_end_is_reached_when_every_partition_is_finished() -> None:
    assert until_end(Clock(), owned(0), owned(1)).is_reached()
    assert not until_end(Clock(), owned(0), owned(1, Phase.READING)).is_reached()
    assert not until_end(Clock(), owned(0)).is_reached(), "partition 1 is another worker's, and not known to be done"


def test_a_worker_without_an_assignment_waits_for_the_group_first() -> None:
    clock = Clock()
    ending = until_end(clock)
    ending.partitions.joined = False
    ending._done = {0, 1}
    assert not ending.is_reached()
    clock.now += JOIN_S
    assert ending.is_reached()


def test_another_worker_s_rows_are_done_when_committed_and_published() -> None:
    ending = until_end(Clock(), snapshots=True)
    assert not ending._is_done(1, Committed(19, "", None))
    assert not ending._is_done(1, Committed(20, "unpublished", None))
    assert ending._is_done(1, Committed(20, "", None))


def test_a_snapshot_that_never_comes_is_an_error() -> None:
    clock = Clock()
    ending = until_end(clock, snapshots=True)
    ending._is_done(1, Committed(20, "unpublished", None))
    clock.now += 1_000_000
    with pytest.raises(RefusedStateError, match="has not published their snapshot"):
        ending._is_done(1, Committed(20, "unpublished", None))
