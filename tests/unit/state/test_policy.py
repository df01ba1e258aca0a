from __future__ import annotations

import pytest

from sfd_stream.state.policy import PENDING_AFTER_S, CheckpointPolicy, Pending, SnapshotPolicy


@pytest.mark.parametrize(
    ("rows", "since_s", "due"),
    [(100, 60, True), (99, 31, False), (0, 30, True), (0, None, False)],
)
def test_a_checkpoint_is_due_by_rows_or_time_and_never_without_progress(
    rows: int, since_s: float | None, due: bool
) -> None:
    policy = CheckpointPolicy(every_rows=100, every_s=30)
    assert policy.is_due(Pending(0.0, rows, since_s), 60.0) is due


@pytest.mark.parametrize(
    ("rows", "since_s", "elapsed_s", "has_pending", "due"),
    [
        (100, 0, 0, False, True), (99, 0, 29, False, False), (0, 0, 30, False, True), (0, None, 30, False, False),
        (0, None, PENDING_AFTER_S, True, True), (0, None, PENDING_AFTER_S - 1, True, False),
    ],
)  # fmt: skip
def test_a_snapshot_is_due_by_rows_or_time_and_without_progress_only_if_it_is_owed(
    rows: int, since_s: float | None, elapsed_s: float, has_pending: bool, due: bool
) -> None:
    policy = SnapshotPolicy(every_rows=100, every_s=30)
    assert policy.is_due(Pending(1000.0, rows, since_s), 1000.0 + elapsed_s, has_pending=has_pending) is due


def test_rows_are_as_old_as_the_oldest_that_is_not_acknowledged() -> None:
    pending = Pending(0.0)
    pending.add(3, 10.0)
    pending.add(4, 20.0)
    assert (pending.rows, pending.since_s) == (7, 10.0)
    pending.begin(25.0)
    pending.add(5, 30.0)
    pending.begin(35.0)  # the first one was not acknowledged
    assert (pending.rows, pending.since_s, pending.begun_since_s) == (0, None, 10.0)
    pending.end()
    assert pending == Pending(35.0)
