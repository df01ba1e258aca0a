"""Jobs driven without a worker, and a partition's chain of checkpoints to drive them on."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any, TypeVar

from sfd_stream.loop.jobs import Job, Jobs
from sfd_stream.loop.runtime import Runtime
from sfd_stream.state.steps import AskLog, LogFacts, Question
from sfd_stream.storage.contract import Store
from sfd_stream.worker.checkpoint_chain import CheckpointChain
from tests.system.fakes import plan_of

T = TypeVar("T")


def driven(job: Job[T], runtime: Runtime | None = None) -> T:
    """What a job returns, or what it raises."""
    found: list[T] = []

    def whole() -> Job[None]:
        found.append((yield from job))

    runtime = runtime or Runtime(None)  # type: ignore[arg-type]
    jobs: Jobs[str] = Jobs(runtime)
    jobs.start("test", "claim", whole())
    deadline = time.monotonic() + 60
    while jobs:
        for finished in jobs.advance():
            if finished.error is not None:
                raise finished.error
        assert time.monotonic() < deadline
        runtime.wait(0.005)
    return found[0]


def chain_on(store: Store, partition: int = 0, reach: Callable[[str], None] | None = None) -> CheckpointChain:
    """Delays after a failure are short."""
    runtime = Runtime(store, reach, wall_clock=lambda: 0.0, random=lambda: -0.99)
    return CheckpointChain(plan_of(), partition, runtime)


def answering(answer: Callable[[Question], Any]) -> Callable[[Question], Job[Any]]:
    """A broker that answers at once."""

    def ask(question: Question) -> Job[Any]:
        yield from ()
        return answer(question)

    return ask


def a_log(question: Question) -> Any:
    return LogFacts(0, 10**6) if isinstance(question, AskLog) else None
