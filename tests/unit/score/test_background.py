"""A question that the loop repeats: one at a time, at most every few seconds, and its answer is taken once."""

from __future__ import annotations

from concurrent.futures import Executor, Future
from typing import Any

from sfd_stream.loop.runtime import Runtime
from sfd_stream.score.background import Background
from tests.support.watched import Clock


class Later(Executor):
    """Runs a call when the test says so."""

    def __init__(self) -> None:
        self.calls: list[tuple[Future[Any], Any]] = []

    def submit(self, fn: Any, /, *args: Any, **_: Any) -> Future[Any]:
        future: Future[Any] = Future()
        self.calls.append((future, lambda: future.set_result(fn(*args))))
        return future

    def run(self) -> None:
        self.calls.pop()[1]()


def test_a_question_is_asked_again_after_its_answer_and_its_interval() -> None:
    clock, later = Clock(), Later()
    runtime = Runtime(None, clock=clock, io=later)  # type: ignore[arg-type]
    asking: Background[int] = Background(runtime, 10.0)
    asking.ask(lambda x: x + 1, 2)
    clock.now += 60
    assert not asking.is_due, "the first one is not answered yet"
    assert asking.take() is None
    later.run()
    answered = asking.take()
    assert answered is not None
    assert answered.result() == 3
    assert asking.take() is None, "an answer is taken once"
    asking.ask(lambda: 0)
    later.run()
    asking.take()
    assert not asking.is_due, "the interval is not over yet"
    clock.now += 10
    assert asking.is_due
