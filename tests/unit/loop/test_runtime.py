"""The runtime: a loop that is woken by answers."""

from __future__ import annotations

import time

from sfd_stream.loop.runtime import Runtime


def test_an_answer_that_came_before_the_wait_ends_it_at_once() -> None:
    """Else the loop would sleep over it."""
    runtime = Runtime(None)  # type: ignore[arg-type]
    runtime.wake()
    began = time.monotonic()
    runtime.wait(30.0)
    assert time.monotonic() - began < 10
    assert not runtime._woken.is_set(), "the next wait is a wait again"
