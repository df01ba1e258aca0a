"""Who is started again, when, and when it is over: no process, no clock."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sfd_stream.processes.restarts import FINAL_CODES, RestartPolicy
from sfd_stream.retry import Backoff

BACKOFF = Backoff(first_s=1.0, longest_s=8.0)


def crew(workers: int = 2, *, until_end: bool = False) -> RestartPolicy:
    made = RestartPolicy(workers, until_end=until_end, backoff=BACKOFF, jitter=lambda: 1.0)
    for number in made.due(0.0):
        made.started(number, 0.0)
    return made


def test_all_are_due_at_once() -> None:
    assert RestartPolicy(3, until_end=False, backoff=BACKOFF, jitter=lambda: 1.0).due(0.0) == [1, 2, 3]


@pytest.mark.parametrize("code", [1, -9, -11, 130, 143, 0])
def test_a_dead_worker_is_started_again_ever_later(code: int) -> None:
    made, now_s, waits = crew(), 0.0, []
    for _ in range(6):
        wait_s = made.ended(1, code, now_s)
        assert wait_s is not None
        assert made.due(now_s + wait_s - 0.01) == []
        now_s += wait_s
        assert made.due(now_s) == [1]
        made.started(1, now_s)
        waits.append(wait_s)
    assert waits == [1.0, 2.0, 4.0, 8.0, 8.0, 8.0]


def test_one_that_ran_for_long_is_started_again_as_at_first() -> None:
    made = crew()
    for _ in range(3):
        made.started(1, made.ended(1, 1, 0.0) or 0.0)
    assert made.ended(1, 1, 1_000.0) == 1.0


def test_failures_are_each_worker_s_own() -> None:
    made = crew()
    made.started(1, made.ended(1, 1, 0.0) or 0.0)
    made.ended(1, 1, 2.0)
    assert made.ended(2, 1, 2.0) == 1.0


@pytest.mark.parametrize("code", sorted(FINAL_CODES))
def test_what_no_restart_mends_ends_all_with_that_code(code: int) -> None:
    made = crew(3)
    made.ended(2, -9, 1.0)  # waits to be started again, and no longer does
    assert made.ended(1, code, 1.0) is None
    assert made.stopping
    assert not made.over
    assert made.running == [3]
    made.ended(3, 0, 2.0)
    assert made.over
    assert made.exit_code == code
    assert made.due(1e9) == []


def test_the_first_final_code_counts() -> None:
    made = crew()
    made.ended(1, 3, 1.0)
    made.ended(2, 5, 1.0)
    assert made.exit_code == 3


def test_until_the_end_each_is_done_by_itself() -> None:
    made = crew(until_end=True)
    assert made.ended(1, 0, 1.0) is None
    assert not made.over
    assert made.ended(2, -9, 1.0) == 1.0
    made.started(2, 2.0)
    made.ended(2, 0, 3.0)
    assert made.over
    assert made.exit_code == 0


@pytest.mark.parametrize(("code", "whole"), [(0, 0), (-15, 0), (1, 1), (-9, 1), (3, 3)])
def test_after_a_stop_nobody_is_started_again(code: int, whole: int) -> None:
    made = crew()
    made.stop()
    assert made.ended(1, code, 1.0) is None
    assert made.ended(2, 0, 1.0) is None
    assert made.over
    assert made.exit_code == whole


@given(st.lists(st.tuples(st.integers(1, 3), st.sampled_from([0, 1, -9, 3, 5])), max_size=30))
def test_nobody_runs_twice_and_nothing_starts_after_the_end(events: list[tuple[int, int]]) -> None:
    made, now_s = crew(3, until_end=True), 0.0
    for number, code in events:
        now_s += 100.0
        for due in made.due(now_s):
            assert due not in made.running
            made.started(due, now_s)
        if number in made.running:
            made.ended(number, code, now_s)
        if made.stopping:
            assert made.due(1e12) == []
            assert made.exit_code in FINAL_CODES
