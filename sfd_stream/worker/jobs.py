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
from sfd_stream.state.perform import StoreOutage, get, no_broker, perform
from sfd_stream.state.steps import Answer, GetMany, Question, Steps
from sfd_stream.worker.runtime import Runtime

T = TypeVar("T")
K = TypeVar("K")


@dataclass(eq=False)
class Wait:
    """What a job waits for: an answer, or a time, or, with neither, the next turn."""

    what: str
    answer: Future[Any] | None = None
    for_s: float | None = None  # an answer that takes longer is a TimeoutError; without an answer the job goes on then
    since_s: float | None = None
    """Since when the job is at this step. Steps that are repeated keep the time of the first."""
    failure: str = ""  # why the step was repeated last
    cancelled: bool = False
    """Nobody waits any more: a background thread that works for it stops before its next request."""
    started_s: float = 0.0

    def is_over(self, now_s: float) -> bool:
        if self.answer is None:
            return now_s - self.started_s >= (self.for_s or 0.0)
        return self.answer.done() or (self.for_s is not None and now_s - self.started_s >= self.for_s)


Job: TypeAlias = Generator[Wait, Any, T]


def answer(what: str, future: Future[T], *, for_s: float | None = None) -> Job[T]:
    """Typed, where a bare `yield` gives Any."""
    found: T = yield Wait(what, future, for_s)
    return found


def reached(runtime: Runtime, point: str) -> Job[None]:
    """A named point of a job, for tests. What blocks there blocks its job, not the loop."""
    if runtime.reach is not None:
        yield Wait(point, runtime.io.submit(runtime.reach, point))


@dataclass(eq=False)
class Running(Generic[K]):
    """A job, and what it waits for."""

    key: K
    kind: str  # A claim goes on as a publication, and both end as retention
    job: Job[Any]
    wait: Wait
    error: BaseException | None = None  # what ended it before its time


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

    def start(self, key: K, kind: str, job: Job[Any]) -> None:
        """It runs up to its first wait in the next `advance`."""
        assert key not in self._running, "one job at a time"
        self._running[key] = Running(key, kind, job, Wait("start", since_s=self._runtime.clock()))

    def continue_as(self, key: K, kind: str) -> None:
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
        """A job that waits for a time or the next turn is resumed once a turn."""
        clock = self._runtime.clock
        while running.wait.is_over(clock()):
            before = running.wait
            try:
                wait = running.wait = _resume(running.job, before)
            except StopIteration:
                return True
            except BaseException as error:  # noqa: BLE001 - the loop decides what becomes of it
                running.error = error
                return True
            wait.started_s = clock()
            if wait.since_s is None:
                wait.since_s = before.since_s if wait.what == before.what else wait.started_s
            if wait.answer is None:
                break
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


def procedure(
    runtime: Runtime,
    steps: Steps[T],
    *,
    give_up_s: float,
    failed: Callable[[StoreUnavailableError], None],
    ask: Callable[[Question], Job[Any]] = no_broker,
) -> Job[T]:
    """The outcome of `steps`. Raises StoreUnavailableError once the store did not answer for `give_up_s`.

    Requests to the store are made one after the other on one background thread, which returns to the loop for
    everything else: questions to the broker, many blobs at once, and the delay after a failed request.
    """
    outage, sent = StoreOutage(give_up_s), None
    while True:
        wait = Wait("store", since_s=outage.since_s, failure=outage.reason)
        wait.answer = runtime.io.submit(_requests, runtime, steps, sent, wait, outage)
        try:
            request, outcome = yield wait
            if request is None:
                found: T = outcome
                return found
            sent = yield from (_get_many(runtime, request) if isinstance(request, GetMany) else ask(request))
        except StoreUnavailableError as error:
            delay_s = outage.failed(error, runtime.clock(), runtime.jitter())
            failed(error)
            yield Wait(wait.what, for_s=delay_s, since_s=outage.since_s, failure=outage.reason)
            sent = Answer.UNKNOWN


def _requests(runtime: Runtime, steps: Steps[Any], sent: Any, wait: Wait, outage: StoreOutage) -> tuple[Any, Any]:
    """On a background thread: requests until one is for the loop, which is returned; or None and the outcome."""
    reach = runtime.reach or (lambda _: None)
    while True:
        with runtime.computing():
            try:
                request: Any = steps.send(sent)
            except StopIteration as stop:
                return None, stop.value
        if wait.cancelled:
            raise CancelledError("the partition was released")
        if isinstance(request, Question | GetMany):
            return request, None
        wait.what = type(request).__name__
        if outage.since_s is None:
            wait.since_s, wait.failure = runtime.clock(), ""
        reach(f"before-{wait.what}")
        sent = perform(request, runtime.store)
        outage.answered()
        reach(f"after-{wait.what}")


def _get_many(runtime: Runtime, request: GetMany) -> Job[list[bytes | Answer]]:
    """The blobs of a state, read side by side."""
    yield from reached(runtime, "before-GetMany")
    reading = [runtime.io.submit(get, runtime.store, key) for key in request.keys]
    found = []
    for each in reading:
        found.append((yield from answer("GetMany", each)))  # noqa: PERF401 - a comprehension cannot yield
    yield from reached(runtime, "after-GetMany")
    return found
