"""A partition of the scorer: scores in the order of its batches, and nothing after its release."""

from __future__ import annotations

from concurrent.futures import Future
from typing import Any

import pytest

from sfd_stream.score.partitions import PendingBatch, ScoredPartition
from sfd_stream.wire.columns import FixedColumns
from sfd_stream.wire.score_states import ScoreState
from tests.system.fakes import Diary


def partition() -> ScoredPartition:
    return ScoredPartition(0, FixedColumns(3), Diary())


def test_it_is_read_from_its_start_with_the_state_that_belongs_to_it() -> None:
    owned, state = partition(), ScoreState(7, "newest")
    assert not owned.is_read
    owned.begin(7, state)
    assert owned.is_read
    assert (owned.delivered_to, owned.state, owned.delivered) == (7, state, state)


def test_scores_are_ready_once_the_first_batch_is_scored_whatever_later_ones_are() -> None:
    owned, first, second = partition(), Future[Any](), Future[Any]()
    owned.scored.extend([PendingBatch(10, first), PendingBatch(10, second)])
    second.set_result("scores")
    assert not owned.has_scores
    first.set_result("scores")
    assert owned.has_scores


def test_a_released_partition_has_no_scores_and_never_begins_again() -> None:
    owned = partition()
    owned.scored.append(PendingBatch(10, Future()))
    owned.release()
    assert (owned.is_released, owned.has_scores, len(owned.scored)) == (True, False, 0)
    with pytest.raises(AssertionError):
        owned.begin(7, ScoreState(7, ""))
