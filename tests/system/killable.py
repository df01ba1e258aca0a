"""A worker as a process of its own, which can be told to die at the n-th passing of a named point of the protocol.

`start` forks it from a server that has everything imported: a process like any other, without a second of imports each.

SFD_TEST_DIE_AT=point:n:marker   kill -9 itself there, after making the file `marker`
SFD_TEST_STOP_AT=point:n:marker  SIGSTOP itself there: a zombie, until somebody sends it SIGCONT
SFD_TEST_SLOW_AT=point:seconds   sleep at each passing
SFD_TEST_SLOW_LOOP=seconds       sleep at every tenth poll, on the loop's own thread
SFD_TEST_PROGRAM=score           the scorer instead of a worker
"""

from __future__ import annotations

import itertools
import json
import os
import signal
import sys
import threading
import time
from collections.abc import Callable
from multiprocessing import get_context
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Any

import threadpoolctl  # noqa: F401 - as below

import sfd_stream.cli.build
import sfd_stream.score.consumer  # noqa: F401 - as above
from sfd_stream.cli import _report
from sfd_stream.cli.commands import score as scoring
from sfd_stream.cli.commands.run import work
from sfd_stream.config.model import Settings
from sfd_stream.kafka.producer import Sink
from sfd_stream.kafka.source import Source
from sfd_stream.observe.logs import configure

ONE_THREAD = dict.fromkeys(("OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "OMP_NUM_THREADS"), "1")

POINTS = (
    "before-List", "after-List", "before-Get", "after-Get", "before-GetMany", "after-GetMany",
    "before-CreateIfAbsent", "after-CreateIfAbsent", "before-Put", "after-Put", "before-Delete", "after-Delete",
    "after-claim", "after-letters", "before-blobs", "after-manifest",
    "before-publish", "after-publish", "before-commit", "after-commit",
)  # fmt: skip
SHOW_POINTS = ("before-publish", "before-transaction", "after-offsets", "before-end", "after-publish")
"""Passed only where snapshots are published."""
WITHIN_PUBLISH = "within-publish"
"""On the loop's own thread, directly before a message goes to the producer: who sleeps here publishes when it wakes,
before it can learn that the partition is another's."""
SCORE_POINTS = {
    "transactional": (
        "after-claim", "after-scores", "after-letters", "before-publish", "before-transaction", "after-offsets",
        "before-end", "after-publish",
    ),
    "at-least-once": (
        "after-claim", "after-scores", "after-letters", "before-publish", "after-publish", "before-commit",
        "after-commit",
    ),
}  # fmt: skip
"""The scorer's, by delivery."""


def signal_at(wanted: str, nth: int, marker: Path, number: signal.Signals) -> Callable[[str], None]:
    passings = itertools.count(1)
    lock = threading.Lock()

    def reach(point: str) -> None:
        if point != wanted:
            return
        with lock:
            if next(passings) == nth:
                marker.touch()
                os.kill(os.getpid(), number)

    return reach


def slow_at(wanted: str, seconds: float) -> Callable[[str], None]:
    return lambda point: time.sleep(seconds) if point == wanted else None


def slow_loop(seconds: float) -> None:
    """A named point blocks its job, not the loop; this blocks the loop."""
    poll, calls = Source.poll, itertools.count(1)

    def slow(self: Source, *args: Any) -> Any:
        if next(calls) % 10 == 0:
            time.sleep(seconds)
        return poll(self, *args)

    Source.poll = slow  # type: ignore[method-assign]


def reach_within_publish(reach: Callable[[str], None]) -> None:
    publish = Sink.publish

    def reaching(self: Sink, *message: Any, **named: Any) -> Any:
        reach(WITHIN_PUBLISH)
        return publish(self, *message, **named)

    Sink.publish = reaching  # type: ignore[method-assign]


def hooks() -> list[Callable[[str], None]]:
    found = []
    if given := os.environ.get("SFD_TEST_SLOW_AT"):
        point, seconds = given.split(":")
        found.append(slow_at(point, float(seconds)))
    for name, number in (("SFD_TEST_DIE_AT", signal.SIGKILL), ("SFD_TEST_STOP_AT", signal.SIGSTOP)):
        if given := os.environ.get(name):
            point, nth, marker = given.split(":", 2)
            assert point in (*POINTS, *SHOW_POINTS, WITHIN_PUBLISH, *sum(SCORE_POINTS.values(), ())), point
            found.append(signal_at(point, int(nth), Path(marker), number))
    return found


def main(settings_path: Path, *, until_end: bool) -> int:
    settings = Settings.model_validate(json.loads(settings_path.read_text()))
    configure(level=settings.log.level, form="json", secrets=settings.secret_values())
    reached = hooks()
    if given := os.environ.get("SFD_TEST_SLOW_LOOP"):
        slow_loop(float(given))

    def reach(point: str) -> None:
        for hook in reached:
            hook(point)

    reach_within_publish(reach)
    try:
        if os.environ.get("SFD_TEST_PROGRAM") == "score":
            scoring.serve(settings, until_end=until_end, reach=reach)
        else:
            work(settings, until_end=until_end, reach=reach)
    except Exception as error:  # noqa: BLE001 - as the command line does
        return _report(error, debug=True)
    return 0


def _begin(settings_path: Path, log_path: Path, environment: dict[str, str], until_end: bool) -> None:
    log = os.open(log_path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
    os.dup2(log, 1)
    os.dup2(log, 2)
    os.environ.update(environment)
    sys.exit(main(settings_path, until_end=until_end))


def start(settings_path: Path, log_path: Path, environment: dict[str, str], *, until_end: bool) -> BaseProcess:
    """`environment` is what stands in it besides. Its numbers of BLAS threads are the server's: one."""
    context = get_context("forkserver")
    context.set_forkserver_preload([__name__])
    log_path.touch()
    process = context.Process(target=_begin, args=(settings_path, log_path, environment, until_end))
    before = dict(os.environ)
    os.environ.update(ONE_THREAD)
    try:
        process.start()
    finally:
        os.environ.clear()
        os.environ.update(before)
    return process
