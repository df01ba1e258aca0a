"""Offsets are committed until the broker has acknowledged the newest one."""

from __future__ import annotations

from typing import Any, cast

import pytest

from sfd_stream.kafka.commits import CommitResult
from sfd_stream.storage.memory import MemoryStore
from sfd_stream.worker.delivery import COMMIT_AGAIN_S, Delivery
from sfd_stream.worker.partitions import Commit, OwnedPartition, Partitions
from sfd_stream.worker.runtime import Runtime
from tests.support.watched import Clock, Stage
from tests.system.fakes import Diary, FakeSource, plan_of
from tests.unit.worker.chains import chain_on

BEFORE, NEWEST = Commit(10, "unpublished"), Commit(10, "published")


@pytest.mark.parametrize("fails", [BEFORE, NEWEST])
def test_a_commit_that_failed_is_sent_again_also_after_one_of_the_same_offset(fails: Commit) -> None:
    """The metadata says whether the rows are published: the newest must arrive, whatever became of the one before."""
    clock, source, partitions = Clock(), FakeSource({0: []}), Partitions(plan_of())
    runtime = Runtime(MemoryStore("commits"), clock=clock)
    given = {"source": cast("Any", source), "partitions": partitions, "log": Diary(), "watch": Stage(0).watch}
    delivery = Delivery(runtime=runtime, **given)
    owned = OwnedPartition(0, chain_on(runtime.store), Diary(), 0.0)
    partitions.add(owned)
    for commit in (BEFORE, NEWEST):
        delivery._send(owned, commit)
    source.results = [CommitResult(0, 10, "TIMED_OUT" if commit is fails else None) for commit in (BEFORE, NEWEST)]
    sent = len(source.commits)
    for _ in range(3):
        delivery.serve()
        clock.now += COMMIT_AGAIN_S
    assert len(source.commits) == sent + (fails is NEWEST)
    assert owned.commit is not None
    assert owned.commit.acknowledged
