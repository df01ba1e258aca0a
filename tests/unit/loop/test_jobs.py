"""Jobs: resumed when their answer is here, never after they were cancelled; procedures on a store that fails."""

# ruff: noqa: ARG002 - stores that fail whatever they are asked for

from __future__ import annotations

import threading
from concurrent.futures import Future
from typing import Any

import pytest

from sfd_stream.errors import StoreRefusedError, StoreUnavailableError
from sfd_stream.loop.jobs import STUCK_S, Job, Jobs, Wait, answer, procedure
from sfd_stream.loop.runtime import Runtime
from sfd_stream.state.protocol import Created, create
from sfd_stream.state.steps import Answer, GetMany, Steps, get_many
from sfd_stream.storage.memory import MemoryStore
from tests.support.watched import AtOnce, Clock
from tests.unit.state.chains import PREFIX, genesis
from tests.unit.storage.faults import FailBefore, FaultyStore
from tests.unit.worker.chains import driven


class Here(AtOnce):
    """On this thread; an error belongs to the future."""

    def submit(self, job: Any, /, *args: Any, **named: Any) -> Future[Any]:
        try:
            return super().submit(job, *args, **named)
        except Exception as error:  # noqa: BLE001 - kept
            failed: Future[Any] = Future()
            failed.set_exception(error)
            return failed


def runtime_on(store: Any = None, clock: Clock | None = None, **given: Any) -> Runtime:
    """On this thread; delays are without jitter."""
    return Runtime(store, clock=clock or Clock(), random=lambda: 1.0, **{"io": Here(), **given})


def told(job: Job[Any], notes: list[Any]) -> Job[None]:
    notes.append((yield from job))


def test_a_job_is_resumed_when_its_answer_is_here_and_not_before() -> None:
    jobs, asked, notes = Jobs[int](runtime_on()), Future[str](), list[str]()
    jobs.start(0, "claim", told(answer("it", asked), notes))
    assert [jobs.advance() for _ in range(3)] == [[], [], []]
    running = jobs.of(0)
    assert running is not None
    assert running.wait.what == "it"
    asked.set_result("yes")
    (finished,) = jobs.advance()
    assert (finished.key, finished.kind, finished.error, notes) == (0, "claim", None, ["yes"])
    assert not jobs


def test_a_job_that_does_not_progress_is_reported_again_and_again_until_it_takes_a_step() -> None:
    clock, first, second = Clock(), Future[str](), Future[str]()

    def job() -> Job[None]:
        yield from answer("first", first)
        yield from answer("second", second)

    jobs = Jobs[int](runtime_on(clock=clock))
    jobs.start(0, "claim", job())

    def stuck() -> list[tuple[str, float]]:
        jobs.advance()
        return [(running.wait.what, for_s) for running, for_s in jobs.stuck()]

    reported = []
    for _ in range(int(2.5 * STUCK_S)):
        clock.now += 1.0
        reported += stuck()
    assert [what for what, _ in reported] == ["first", "first"]
    first.set_result("yes")
    assert stuck() == []
    clock.now += STUCK_S
    assert stuck() == [("second", STUCK_S)]


def test_a_cancelled_job_is_closed_and_its_answer_reaches_nobody() -> None:
    jobs, asked, notes, closed = Jobs[int](runtime_on()), Future[str](), list[str](), list[str]()

    def job() -> Job[None]:
        try:
            yield from told(answer("it", asked), notes)
        finally:
            closed.append("closed")

    jobs.start(0, "claim", job())
    jobs.advance()
    running = jobs.of(0)
    assert running is not None
    jobs.cancel(0)
    asked.set_result("late")
    assert jobs.advance() == []
    assert (notes, closed, running.wait.cancelled) == ([], ["closed"], True)


def test_only_the_jobs_that_are_named_advance() -> None:
    jobs, notes = Jobs[int](runtime_on()), list[str]()
    for key in (0, 1):
        jobs.start(key, "claim", told(answer("it", AtOnce().submit(str, key)), notes))
    assert [finished.key for finished in jobs.advance(only=[1])] == [1]
    assert notes == ["1"]


def test_an_answer_that_is_overdue_is_a_time_out_and_dropped_when_it_comes() -> None:
    clock, asked, notes = Clock(), Future[str](), list[str]()
    jobs = Jobs[int](runtime_on(clock=clock))
    jobs.start(0, "claim", told(answer("the broker", asked, for_s=60.0), notes))
    jobs.advance()
    clock.now += 61
    (finished,) = jobs.advance()
    assert isinstance(finished.error, TimeoutError)
    assert "the broker" in str(finished.error)
    assert asked.cancelled()
    assert jobs.advance() == [] == notes


def test_a_job_that_waits_for_the_next_turn_is_resumed_once_a_turn_and_says_since_when_it_waits() -> None:
    clock, turns = Clock(), list[int]()
    jobs = Jobs[int](runtime_on(clock=clock))

    def job() -> Job[None]:
        while True:
            turns.append(1)
            yield Wait("delivery report")

    jobs.start(0, "publication", job())
    for _ in range(5):
        jobs.advance()
        clock.now += 1
    running = jobs.of(0)
    assert running is not None
    assert (len(turns), running.wait.since_s) == (5, 1000.0)


def test_a_pause_ends_by_the_clock() -> None:
    clock, notes = Clock(), list[str]()
    jobs = Jobs[int](runtime_on(clock=clock))

    def job() -> Job[None]:
        yield Wait("pause", for_s=2.0)
        notes.append("after it")

    jobs.start(0, "claim", job())
    for _ in range(3):
        jobs.advance()
        notes.append(f"{clock.now:g}")
        clock.now += 1
    assert notes == ["1000", "1001", "after it", "1002"]


def test_the_error_of_an_answer_is_raised_in_the_job_which_may_handle_it() -> None:
    asked = Future[str]()
    asked.set_exception(LookupError("no"))

    def job() -> Job[str]:
        try:
            return (yield from answer("it", asked))
        except LookupError as error:
            return f"handled {error}"

    assert driven(job()) == "handled no"


# Procedures


def run(store: Any, steps: Steps[Any], clock: Clock, failed: list[BaseException], give_up_s: float = 10.0) -> Any:
    notes: list[Any] = []
    jobs = Jobs[int](runtime_on(store, clock), lambda _, error: failed.append(error))
    jobs.start(0, "claim", told(procedure(jobs.runtime, steps, give_up_s=give_up_s), notes))
    while jobs:
        for finished in jobs.advance():
            if finished.error is not None:
                raise finished.error
        clock.now += 0.05
    return notes[0]


@pytest.mark.parametrize("call", [1, 2])
def test_a_request_that_failed_is_repeated_after_a_delay(call: int) -> None:
    store, clock, failed = (
        FaultyStore(MemoryStore(f"repeated {call}"), {call: FailBefore()}),
        Clock(),
        list[BaseException](),
    )
    assert run(store, create(PREFIX, genesis()), clock, failed) == Created(genesis())
    assert len(failed) == 1
    assert clock.now >= 1000.1


class Away(MemoryStore):
    def create_if_absent(self, key: str, data: bytes) -> None:
        raise StoreUnavailableError("no route")

    def get(self, key: str, *, max_bytes: int | None = None) -> bytes:
        raise StoreUnavailableError("no route")


def test_a_store_that_never_answers_is_given_up_and_delays_grow() -> None:
    clock, failed = Clock(), list[BaseException]()
    with pytest.raises(StoreUnavailableError, match="no route"):
        run(Away("away"), create(PREFIX, genesis()), clock, failed)
    assert 1010 <= clock.now < 1017
    assert 6 <= len(failed) <= 9, "0.1 s, doubled up to 5 s"


def test_a_refusal_is_not_repeated() -> None:
    class Locked(MemoryStore):
        def create_if_absent(self, key: str, data: bytes) -> None:
            raise StoreRefusedError("no right")

    failed = list[BaseException]()
    with pytest.raises(StoreRefusedError):
        run(Locked("locked"), create(PREFIX, genesis()), Clock(), failed)
    assert not failed


def test_many_blobs_are_read_side_by_side_and_resume_their_job_once() -> None:
    store = MemoryStore("many")
    for name in "abc":
        store.put(f"p/{name}", name.encode())
    found = run(store, get_many(("p/a", "p/x", "p/c")), Clock(), [])
    assert found == [b"a", Answer.MISSING, b"c"]


def test_a_blob_that_can_t_be_read_repeats_the_request() -> None:
    store = FaultyStore(MemoryStore("blobs"), {2: FailBefore()})
    store.put("p/a", b"a")
    failed = list[BaseException]()
    assert run(store, get_many(("p/a", "p/a")), Clock(), failed) == [b"a", b"a"]
    assert len(failed) == 1


def test_a_procedure_computes_and_asks_its_store_on_a_background_thread() -> None:
    threads: set[str] = set()

    class Noting(MemoryStore):
        def get(self, key: str, *, max_bytes: int | None = None) -> bytes:
            threads.add(threading.current_thread().name)
            return b""

    def steps() -> Steps[str]:
        threads.add(threading.current_thread().name)
        yield GetMany(("p/a", "p/b"))
        threads.add(threading.current_thread().name)
        return "done"

    runtime = Runtime(Noting("threads"))
    assert driven(procedure(runtime, steps(), give_up_s=1.0), runtime) == "done"
    assert threads
    assert all(name.startswith("io-") for name in threads)
