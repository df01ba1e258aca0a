"""Questions to the broker: repeated until answered, never on the loop's thread; partitions share one reading."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Executor, Future
from functools import partial
from typing import Any, Self

import pytest

from sfd_stream.errors import BrokerRefusedError, BrokerUnavailableError
from sfd_stream.loop.jobs import Jobs
from sfd_stream.loop.questions import OutputEpochs, Questions
from sfd_stream.loop.runtime import Runtime
from sfd_stream.state.manifest import Binding
from sfd_stream.state.steps import AskCommitted, AskLog, AskOutputEpoch, LogFacts
from tests.support.watched import Clock
from tests.system.fakes import FakeSource, plan_of, rows
from tests.unit.worker.chains import driven

GIVE_UP_S = 90.0


def test_it_is_read_once_for_an_assignment_and_again_for_the_next() -> None:
    clock, readings = Clock(10.0), [{0: 3, 1: 4}, {0: 5}]
    runtime, found = Runtime(None, clock=clock), dict[int, int | None]()  # type: ignore[arg-type]
    epochs, jobs = OutputEpochs(lambda: readings.pop(0), runtime, Lines(), GIVE_UP_S), Jobs[int](runtime)

    def claim(partition: int) -> Any:
        found[partition] = yield from epochs.of(partition, 10.0)

    for partition in (0, 1, 2):
        jobs.start(partition, "claim", claim(partition))
    while jobs:
        assert all(finished.error is None for finished in jobs.advance())
    assert found == {0: 3, 1: 4, 2: None}
    clock.now = 20.0
    assert driven(epochs.of(0, 15.0), runtime) == 5
    assert readings == []


def test_a_first_claim_reads_again_until_the_broker_answers_and_reports_why_it_waits() -> None:
    """A broker that is unavailable for 30 s ended the worker (campaign, seed 12 with --fencing)."""
    clock, outcomes = Clock(10.0), [BrokerUnavailableError("away"), TimeoutError("still away"), {0: 7, 1: 8}]
    read = partial(read_after, clock, 30.0, outcomes)
    runtime = Runtime(None, clock=clock, io=Inline())  # type: ignore[arg-type]
    epochs = OutputEpochs(read, runtime, Lines(), GIVE_UP_S)
    claim = epochs.of(0, 10.0)
    waits = [next(claim)]
    for error in (BrokerUnavailableError, TimeoutError):
        failed = waits[-1].answer
        assert failed is not None
        with pytest.raises(error) as raised:
            failed.result()
        waits.append(claim.throw(raised.value))
    assert [(wait.what, wait.since_s, wait.failure) for wait in waits] == [
        ("output topic", 10.0, ""),
        ("output topic", 10.0, "away"),
        ("output topic", 10.0, "still away"),
    ]
    with pytest.raises(StopIteration) as stop:
        claim.send(waits[-1].answer.result())  # type: ignore[union-attr]
    assert stop.value.value == 7
    assert driven(epochs.of(1, 10.0), runtime) == 8  # the same reading
    assert outcomes == []


def test_a_first_claim_ends_when_the_output_topic_cannot_be_read_for_give_up_s() -> None:
    clock, outcomes = Clock(0.0), [BrokerUnavailableError("away") for _ in range(9)]
    runtime = Runtime(None, clock=clock, io=Inline())  # type: ignore[arg-type]
    epochs = OutputEpochs(partial(read_after, clock, 30.0, outcomes), runtime, Lines(), GIVE_UP_S)
    with pytest.raises(BrokerRefusedError, match=f"away, and not for {GIVE_UP_S:g} s"):
        driven(epochs.of(0, 0.0), runtime)
    assert clock.now == GIVE_UP_S


def test_a_refusal_ends_a_first_claim_at_once() -> None:
    clock, outcomes = Clock(), [BrokerRefusedError("no right to read it"), {0: 7}]
    runtime = Runtime(None, clock=clock, io=Inline())  # type: ignore[arg-type]
    epochs = OutputEpochs(partial(read_after, clock, 0.0, outcomes), runtime, Lines(), GIVE_UP_S)
    with pytest.raises(BrokerRefusedError, match="no right"):
        driven(epochs.of(0, 0.0), runtime)
    assert driven(epochs.of(0, 0.0), runtime) == 7  # the next assignment asks again


def read_after(clock: Clock, seconds: float, outcomes: list[Any]) -> dict[int, int]:
    clock.now += seconds
    outcome = outcomes.pop(0)
    if isinstance(outcome, Exception):
        raise outcome
    found: dict[int, int] = outcome
    return found


class Inline(Executor):
    """Runs what is submitted at once."""

    def submit(self, call: Callable[..., Any], /, *args: Any, **named: Any) -> Future[Any]:
        future: Future[Any] = Future()
        try:
            future.set_result(call(*args, **named))
        except Exception as error:  # noqa: BLE001 - as an executor does
            future.set_exception(error)
        return future


def test_a_claim_goes_on_without_an_answer_and_asks_once_an_assignment() -> None:
    clock, readings, log = Clock(10.0), [], Lines()

    def read() -> dict[int, int]:
        readings.append(clock.now)
        raise BrokerRefusedError("no right to read it")

    runtime = Runtime(None, clock=clock)  # type: ignore[arg-type]
    epochs = OutputEpochs(read, runtime, log, GIVE_UP_S)
    found = [driven(epochs.of(partition, 10.0, needed=False), runtime) for partition in range(100)]
    assert found == [None] * 100
    assert readings == [10.0]
    (line,) = log.lines
    assert "output topic could not be read" in line["event"]
    assert "no right to read it" in line["reason"]
    clock.now = 20.0
    assert driven(epochs.of(0, 20.0, needed=False), runtime) is None  # the next assignment asks again
    assert readings == [10.0, 20.0]
    with pytest.raises(BrokerRefusedError):
        driven(epochs.of(0, 20.0), runtime)  # a state that begins needs it


class Lines:
    def __init__(self) -> None:
        self.lines: list[dict[str, object]] = []

    def warning(self, event: str, **context: object) -> None:
        self.lines.append({"event": event, **context})

    info = debug = warning

    def bind(self, **_: object) -> Self:
        return self


def questions_on(source: FakeSource, clock: Clock | None = None, **plan: Any) -> Questions:
    runtime = Runtime(None, clock=clock or Clock(), io=Inline())  # type: ignore[arg-type]
    found = Questions(plan_of(**plan), runtime, source, None)  # type: ignore[arg-type]
    driven(found.connect(), runtime)
    return found


def test_a_question_is_repeated_until_it_is_answered_or_the_time_is_up() -> None:
    clock = Clock(0.0)
    questions = questions_on(FakeSource({0: []}), clock, give_up_s=30.0)

    def question(outcomes: list[Any]) -> Any:
        return questions.patiently("the ids", lambda _: read_after(clock, 10.0, outcomes))

    late: list[Any] = [TimeoutError("no answer"), TimeoutError("no answer"), {0: 7}]
    assert driven(question(late), questions.runtime) == {0: 7}
    never: list[Any] = [BrokerUnavailableError("no answer") for _ in range(9)]
    with pytest.raises(BrokerRefusedError, match="no answer, and not for 30 s"):
        driven(question(never), questions.runtime)


def test_a_partition_added_after_the_start_is_read_from_its_beginning() -> None:
    source = FakeSource({0: [], 1: []})
    questions = questions_on(source, start="latest")
    source.logs[2] = []
    assert questions.topic_now(count=True) == "topic-id"
    assert questions.partitions == 3
    assert [questions.start_of(partition) for partition in range(3)] == ["latest", "latest", "earliest"]


def test_a_state_is_bound_to_the_ids_of_its_cluster_and_topic() -> None:
    questions = questions_on(FakeSource({0: []}))
    assert driven(questions.binding(0), questions.runtime) == Binding("cluster", "topic-id", "group", "rows", 0)
    unanswered = Future[str | None]()
    unanswered.set_exception(TimeoutError("no answer"))
    assert driven(questions.binding(0, unanswered), questions.runtime).topic_id is None, "a checkpoint does not wait"


def test_a_claim_is_answered_with_the_ends_of_the_log_and_the_committed_offset() -> None:
    source = FakeSource({0: rows(5)})
    questions = questions_on(source)

    def answer(question: Any) -> Any:
        return driven(questions.answer(0, 0.0, question), questions.runtime)

    assert answer(AskLog()) == LogFacts(0, 5)
    assert answer(AskCommitted()) is None
    source.committed_offsets[0] = 3
    assert answer(AskCommitted()) == 3
    assert answer(AskOutputEpoch()) is None, "there is no output topic"
