from __future__ import annotations

import pytest

from sfd_stream.state.policy import CheckpointPolicy


@pytest.mark.parametrize(
    ("rows", "elapsed_s", "changed", "due"),
    [(100, 0, True, True), (99, 29, True, False), (0, 30, True, True), (100, 30, False, False)],
)
def test_a_checkpoint_is_due_by_rows_or_time_and_never_without_progress(
    rows: int, elapsed_s: float, changed: bool, due: bool
) -> None:
    policy = CheckpointPolicy(every_rows=100, every_s=30)
    assert policy.is_due(rows=rows, elapsed_s=elapsed_s, changed=changed) is due
