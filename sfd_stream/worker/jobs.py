"""Claims and checkpoints as jobs: generators that the loop's thread drives and that yield what they wait for.

A job is a line of code that reads from top to bottom. It yields a `Wait`: an answer (a future), a time, or the next
turn of the loop. No thread waits for another thread, and a job that was cancelled is never resumed: a late answer
reaches nobody.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Generator, Iterator
from concurrent.futures import CancelledError, Future
from dataclasses import dataclass
from typing import Any, Generic, TypeAlias, TypeVar

from sfd_stream.errors import StoreUnavailableError
from sfd_stream.observe.facts import JobKind
from sfd_stream.state.perform import ANSWERS_AGAIN, DISBELIEVED, delay_s, get, perform
from sfd_stream.state.steps import Answer, AskLog, GetMany, Question, Steps
from sfd_stream.worker.runtime import Runtime

T = TypeVar("T")
K = TypeVar("K")


@dataclass(eq=False)
class Wait:
    """What a job waits for: an answer, or a time, or, with neither, the next turn."""

    what: str
    answer: Future[Any] | None = None
    for_s: float | None = None
    """An answer that takes longer is a TimeoutError; without an answer the job goes on then."""
    since_s: float | None = None
    """Since when the job is at this step. Steps that are repeated keep the time of the first."""
    failure: str = ""
    """Why the step was repeated last."""
    cancelled: bool = False
    """Nobody waits any more: a background thread that works for it stops before its next request."""
    started_s: float = 0.0

    @property
    def for_next_turn(self) -> bool:
        return self.answer is None and self.for_s is None

    def is_over(self, now_s: float) -> bool:
        if self.answer is not None and self.answer.done():
            return True
        return self.for_next_turn or (self.for_s is not None and now_s - self.started_s >= self.for_s)


Job: TypeAlias = Generator[Wait, Any, T]


def answer(what: str, future: Future[T], *, for_s: float | None = None) -> Job[T]:
    """Typed, where a bare `yield` gives Any."""
    found: T = yield Wait(what, future, for_s)
    return found


@dataclass(eq=False)
class Running(Generic[K]):
    """A job, and what it waits for."""

    key: K
    kind: JobKind
    """A claim goes on as a publication, and both end as retention."""
    job: Job[Any]
    wait: Wait
    error: BaseException | None = None
    """How it ended, where it did not end well."""


class Jobs(Generic[K]):
    """The running jobs, at most one for each key. The loop's thread alone calls it."""

    def __init__(self, runtime: Runtime) -> None:
        self._runtime = runtime
        self._running: dict[K, Running[K]] = {}

    def __len__(self) -> int:
        return len(self._running)

    def __iter__(self) -> Iterator[Running[K]]:
        return iter(list(self._running.values()))

    def of(self, key: K) -> Running[K] | None:
        return self._running.get(key)

    def start(self, key: K, kind: JobKind, job: Job[Any]) -> None:
        """It runs up to its first wait in the next `advance`."""
        assert key not in self._running, "one job at a time"
        self._running[key] = Running(key, kind, job, Wait("start", since_s=self._runtime.clock()))

    def continue_as(self, key: K, kind: JobKind) -> None:
        """What is counted and reported from here on."""
        self._running[key].kind = kind

    def advance(self, only: Collection[K] | None = None) -> list[Running[K]]:
        """Resumes every job whose wait is over, as far as it gets; returns those that ended."""
        ended = []
        for running in self:
            chosen = (only is None or running.key in only) and self._running.get(running.key) is running
            if chosen and self._ends(running):
                del self._running[running.key]
                ended.append(running)
        return ended

    def cancel(self, key: K) -> None:
        """Nothing more of it happens but the one request that is under way."""
        running = self._running.pop(key, None)
        if running is not None:
            running.wait.cancelled = True
            running.job.close()

    def _ends(self, running: Running[K]) -> bool:
        clock = self._runtime.clock
        while running.wait.is_over(clock()):
            try:
                wait = _resume(running.job, running.wait)
            except StopIteration:
                return True
            except BaseException as error:  # noqa: BLE001 - the loop decides what becomes of it
                running.error = error
                return True
            wait.started_s = clock()
            if wait.for_next_turn and wait.what == running.wait.what:
                wait.since_s = running.wait.since_s
            wait.since_s = wait.started_s if wait.since_s is None else wait.since_s
            running.wait = wait
            if wait.for_next_turn:
                break
            if wait.answer is not None:
                wait.answer.add_done_callback(self._runtime.wake)
        return False


def _resume(job: Job[Any], wait: Wait) -> Wait:
    if wait.answer is None:
        return next(job)
    if not wait.answer.done():
        wait.cancelled = True
        wait.answer.cancel()
        return job.throw(TimeoutError(f"{wait.what}: no answer within {wait.for_s:g} s"))
    try:
        found = wait.answer.result()
    except BaseException as error:  # noqa: BLE001 - it belongs to the job
        return job.throw(error)
    return job.send(found)


# Procedures of `state/`


@dataclass(frozen=True)
class Point:
    """A named point within a procedure, where nothing is asked of the store."""

    name: str


@dataclass(frozen=True)
class _Stop:
    """Where a run of requests stopped: at its end, at a request for the loop, or because the store is unavailable."""

    request: Any = None
    outcome: Any = None
    error: StoreUnavailableError | None = None
    answers: int = 0
    """How many requests of this run the store has answered."""


def procedure(
    runtime: Runtime,
    steps: Steps[T],
    *,
    give_up_s: float,
    failed: Callable[[StoreUnavailableError], None],
    ask: Callable[[Question], Job[Any]] | None = None,
) -> Job[T]:
    """The outcome of `steps`. Raises StoreUnavailableError once the store did not answer for `give_up_s`.

    Requests to the store are made one after the other on one background thread, which returns to the loop for
    everything else: questions to the broker, many blobs at once, and the delay after a failed request.
    """
    sent: Any = None
    failing_since_s: float | None = None
    failures, answers, failure = 0, 0, ""
    while True:
        wait = Wait("store", since_s=failing_since_s, failure=failure)
        wait.answer = runtime.io.submit(_requests, runtime, steps, sent, wait)
        stop: _Stop = yield wait
        answers += stop.answers
        if answers >= ANSWERS_AGAIN:
            failing_since_s, failures, failure = None, 0, ""
        error = stop.error
        if isinstance(stop.request, Question):
            assert ask is not None, f"asked {stop.request} without a broker"
            if isinstance(stop.request, AskLog) and stop.request.again:
                yield Wait(type(stop.request).__name__, for_s=delay_s(DISBELIEVED, _jitter(runtime)))
            sent = yield from ask(stop.request)
        elif isinstance(stop.request, GetMany):
            sent = yield from _get_many(runtime, stop.request)
            error = sent if isinstance(sent, StoreUnavailableError) else None
        elif error is None:
            outcome: T = stop.outcome
            return outcome
        if error is not None:
            now_s = runtime.clock()
            failing_since_s = now_s if failing_since_s is None else failing_since_s
            if now_s - failing_since_s >= give_up_s:
                raise error
            failure = str(error)
            failed(error)
            yield Wait(wait.what, for_s=delay_s(failures, _jitter(runtime)), since_s=failing_since_s, failure=failure)
            failures, answers = failures + 1, 0
            sent = Answer.UNKNOWN


def _jitter(runtime: Runtime) -> float:
    return 0.5 + runtime.random() / 2


def _requests(runtime: Runtime, steps: Steps[Any], sent: Any, wait: Wait) -> _Stop:
    """On a background thread: requests until the procedure ends, needs the loop, or is cancelled."""
    reach, answers = runtime.reach or _nothing, 0
    while True:
        with runtime.computing():
            try:
                request: Any = steps.send(sent)
            except StopIteration as stop:
                return _Stop(outcome=stop.value, answers=answers)
        if wait.cancelled:
            raise CancelledError("the partition was released")
        if isinstance(request, Point):
            reach(request.name)
            sent = None
            continue
        if isinstance(request, Question | GetMany):
            return _Stop(request, answers=answers)
        wait.what = type(request).__name__
        if answers >= ANSWERS_AGAIN or not wait.failure:
            wait.since_s, wait.failure = runtime.clock(), ""
        reach(f"before-{wait.what}")
        try:
            sent = perform(request, runtime.store)
        except StoreUnavailableError as error:
            return _Stop(error=error, answers=answers)
        reach(f"after-{wait.what}")
        answers += 1


def _get_many(runtime: Runtime, request: GetMany) -> Job[Any]:
    """The blobs of a state, read side by side; or the error of the first one that the store did not give."""
    yield from reached(runtime, "before-GetMany")
    reading = [runtime.io.submit(get, runtime.store, key) for key in request.keys]
    found: list[bytes | Answer] = []
    for each in reading:
        try:
            found.append((yield from answer("GetMany", each)))
        except StoreUnavailableError as error:
            return error
    yield from reached(runtime, "after-GetMany")
    return found


def reached(runtime: Runtime, point: str) -> Job[None]:
    """A named point of a job, for tests. What blocks there blocks its job, not the loop."""
    if runtime.reach is not None:
        yield Wait(point, runtime.io.submit(runtime.reach, point))


def _nothing(_: str) -> None:
    """The named points are for tests."""


class Background(Generic[T]):
    """One question at a time, asked in the background at most every `every_s`. For what no partition's job needs."""

    def __init__(self, runtime: Runtime, every_s: float) -> None:
        self._runtime = runtime
        self._every_s = every_s
        self._next_s = 0.0
        self._asking: Future[T] | None = None

    @property
    def is_due(self) -> bool:
        return self._asking is None and self._runtime.clock() >= self._next_s

    def ask(self, question: Callable[..., T], *args: Any) -> None:
        self._next_s = self._runtime.clock() + self._every_s
        self._asking = self._runtime.io.submit(question, *args)

    def take(self) -> Future[T] | None:
        """The answered question, once; None while there is no answer."""
        if self._asking is None or not self._asking.done():
            return None
        found, self._asking = self._asking, None
        return found
