"""Claims and checkpoints are jobs: generators that the loop's thread drives and that yield what they wait for.

A job reads from top to bottom. It yields a `Wait`: for an answer (a future), for a time, or for the next turn of the
loop. No thread waits for another thread. A cancelled job is never resumed: an answer that arrives late is dropped.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Generator, Iterator
from concurrent.futures import CancelledError, Future
from dataclasses import dataclass, field
from typing import Any, Generic, TypeAlias, TypeVar

from sfd_stream.errors import StoreUnavailableError
from sfd_stream.loop.runtime import Runtime
from sfd_stream.state.perform import StoreOutage, get, no_broker, perform
from sfd_stream.state.steps import Answer, GetMany, Question, Steps

T = TypeVar("T")
K = TypeVar("K")

STUCK_S = 30.0  # a job that has been at one step for longer is logged, and again after each further STUCK_S


@dataclass(eq=False)
class Wait:
    """What a job waits for: an answer, a time, or, if neither is set, the next turn."""

    what: str
    answer: Future[Any] | None = None
    for_s: float | None = None  # time limit of the answer (TimeoutError); without an answer, the time to wait
    since_s: float | None = None  # when the job came to this step; a repeated step keeps the time of its first attempt
    failure: str = ""  # why the last attempt at this step failed
    failed: BaseException | None = None  # the error of an attempt that failed just now
    cancelled: bool = False  # the job was cancelled: its background thread stops before the next request
    started_s: float = 0.0

    def is_over(self, now_s: float) -> bool:
        if self.answer is None:
            return now_s - self.started_s >= (self.for_s or 0.0)
        return self.answer.done() or (self.for_s is not None and now_s - self.started_s >= self.for_s)


Job: TypeAlias = Generator[Wait, Any, T]
Ask: TypeAlias = Callable[[Question], Job[Any]]  # answers a procedure's question to the broker


def answer(what: str, future: Future[T], *, for_s: float | None = None) -> Job[T]:
    """Waits for the future. Typed: a bare `yield` gives Any."""
    found: T = yield Wait(what, future, for_s)
    return found


def reached(runtime: Runtime, point: str) -> Job[None]:
    """A named point of a job, for tests. A test that blocks there blocks the job, not the loop."""
    if runtime.reach is not None:
        yield Wait(point, runtime.io.submit(runtime.reach, point))


@dataclass(eq=False)
class Running(Generic[K]):
    """A job, and what it waits for."""

    key: K
    kind: str  # a claim continues as "publication"; claims and checkpoints end as "retention"
    job: Job[Any]
    wait: Wait
    error: BaseException | None = None  # the error that ended it
    logged_s: float = 0.0  # when it was last logged because it did not progress


@dataclass(eq=False)
class Jobs(Generic[K]):
    """The running jobs, at most one for each key. Only the loop's thread calls it."""

    runtime: Runtime
    on_failure: Callable[[Running[K], BaseException], None] = lambda _, __: None  # an attempt that will be repeated
    _running: dict[K, Running[K]] = field(default_factory=dict)

    def __len__(self) -> int:
        return len(self._running)

    def __iter__(self) -> Iterator[Running[K]]:
        return iter(list(self._running.values()))

    def of(self, key: K) -> Running[K] | None:
        return self._running.get(key)

    def start(self, key: K, kind: str, job: Job[Any]) -> None:
        """The next `advance` runs the job up to its first wait."""
        assert key not in self._running, "one job at a time"
        self._running[key] = Running(key, kind, job, Wait("start", since_s=self.runtime.clock()))

    def continue_as(self, key: K, kind: str) -> None:
        """Changes the kind under which the job is counted and reported."""
        self._running[key].kind = kind

    def advance(self, only: Collection[K] | None = None) -> list[Running[K]]:
        """Resumes every job whose wait is over, until it must wait again. Returns the jobs that ended."""
        ended = []
        for running in self:
            chosen = (only is None or running.key in only) and self._running.get(running.key) is running
            if chosen and self._ends(running):
                del self._running[running.key]
                ended.append(running)
        return ended

    def stuck(self) -> Iterator[tuple[Running[K], float]]:
        """The jobs to log now because they do not progress, each with the time that it has been at its step."""
        now_s = self.runtime.clock()
        for running in self:
            since_s = running.wait.since_s
            if since_s is not None and now_s - max(since_s, running.logged_s) >= STUCK_S:
                running.logged_s = now_s
                yield running, round(now_s - since_s)

    def cancel(self, key: K) -> None:
        """Closes the job. A request that is under way may still take effect; no other one follows."""
        running = self._running.pop(key, None)
        if running is not None:
            running.wait.cancelled = True
            running.job.close()

    def _ends(self, running: Running[K]) -> bool:
        """Resumes the job; True if it ended. A job that waits for a time or the next turn is resumed once a turn."""
        clock = self.runtime.clock
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
            if wait.failed is not None:
                self.on_failure(running, wait.failed)
            if wait.since_s is None:
                wait.since_s = before.since_s if wait.what == before.what else wait.started_s
            if wait.answer is None:
                break
            wait.answer.add_done_callback(self.runtime.wake)
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


def procedure(runtime: Runtime, steps: Steps[T], *, give_up_s: float, ask: Ask = no_broker) -> Job[T]:
    """The outcome of `steps`. Raises StoreUnavailableError if the store does not answer for `give_up_s`.

    One background thread makes the requests to the store, one after the other. It returns to the loop for everything
    else: questions to the broker, many blobs at once, and the delay after a failed request.
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
            yield Wait(wait.what, for_s=delay_s, since_s=outage.since_s, failure=outage.reason, failed=error)
            sent = Answer.UNKNOWN


def _requests(runtime: Runtime, steps: Steps[Any], sent: Any, wait: Wait, outage: StoreOutage) -> tuple[Any, Any]:
    """On a background thread: performs requests. Returns the first one that the loop must answer, or the outcome."""
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
    """Reads the blobs of a state, several at a time."""
    yield from reached(runtime, "before-GetMany")
    reading = [runtime.io.submit(get, runtime.store, key) for key in request.keys]
    found = []
    for each in reading:
        found.append((yield from answer("GetMany", each)))  # noqa: PERF401 - a comprehension cannot yield
    yield from reached(runtime, "after-GetMany")
    return found
