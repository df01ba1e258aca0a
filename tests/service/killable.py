"""A worker as a process of its own, which can be told to die at the n-th passing of a named point of the protocol.

    python -m tests.service.killable SETTINGS.json [--until-end]

SFD_TEST_DIE_AT=point:n:marker   kill -9 itself there, after making the file `marker`
SFD_TEST_STOP_AT=point:n:marker  SIGSTOP itself there: a zombie, until somebody sends it SIGCONT
SFD_TEST_SLOW_AT=point:seconds   sleep at each passing
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
from pathlib import Path

from sfd_stream.cli import _report
from sfd_stream.cli.run import work
from sfd_stream.config.model import Settings
from sfd_stream.service.logs import configure

POINTS = (
    "before-List", "after-List", "before-Get", "after-Get", "before-GetMany", "after-GetMany",
    "before-CreateIfAbsent", "after-CreateIfAbsent", "before-Put", "after-Put", "before-Delete", "after-Delete",
    "after-claim", "after-letters", "before-blobs", "after-manifest",
    "before-publish", "after-publish", "before-commit", "after-commit",
)  # fmt: skip
SHOW_POINTS = ("before-publish", "before-transaction", "after-offsets", "before-end", "after-publish")
"""Passed only where snapshots are published."""


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


def hooks() -> list[Callable[[str], None]]:
    found = []
    if given := os.environ.get("SFD_TEST_SLOW_AT"):
        point, seconds = given.split(":")
        found.append(slow_at(point, float(seconds)))
    for name, number in (("SFD_TEST_DIE_AT", signal.SIGKILL), ("SFD_TEST_STOP_AT", signal.SIGSTOP)):
        if given := os.environ.get(name):
            point, nth, marker = given.split(":", 2)
            assert point in POINTS + SHOW_POINTS, point
            found.append(signal_at(point, int(nth), Path(marker), number))
    return found


def main() -> int:
    settings = Settings.model_validate(json.loads(Path(sys.argv[1]).read_text()))
    configure(level=settings.log.level, form="json", secrets=settings.secret_values())
    reached = hooks()

    def reach(point: str) -> None:
        for hook in reached:
            hook(point)

    try:
        work(settings, until_end="--until-end" in sys.argv, reach=reach)
    except Exception as error:  # noqa: BLE001 - as the command line does
        return _report(error, debug=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
