"""Delays between attempts: doubling, bounded, with jitter."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from sfd_stream.retry import Backoff

BACKOFF = Backoff(first_s=1.0, longest_s=8.0)


def test_delays_double_up_to_the_longest() -> None:
    assert [BACKOFF.delay_s(failures, jitter=1.0) for failures in range(1, 7)] == [1, 2, 4, 8, 8, 8]


@given(st.integers(1, 5_000), st.floats(0.5, 1.0))
def test_a_delay_is_never_more_than_the_longest_nor_less_than_half_the_first(failures: int, jitter: float) -> None:
    assert 0.5 * BACKOFF.first_s <= BACKOFF.delay_s(failures, jitter) <= BACKOFF.longest_s
