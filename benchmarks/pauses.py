"""Does a snapshot hold up the loop? How late the loop is, turn by turn, while snapshots are made, and without them.

    python -m benchmarks.pauses [--seconds N] [--paste]

One worker (ell = 50, d = 10,000) on a real Kafka, rows coming at a steady pace from another process. A turn's pause is
the time in which it does not wait for records: all of it outside the poll, and what the poll takes beyond its timeout;
less the time in which it only waited for a processor (by the kernel's schedstat), which is other processes' doing.
With snapshots, only turns count during which one was being made or published; they are asked for without a rest, so
that there are many. The two take turns, so that a machine that others use too is as slow for the one as for the other.

First comes what a busy machine blurs less: how long each step of a snapshot keeps the interpreter (benchmarks/held.py).
`--paste` writes the table into docs/experiments.md.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
from rich.console import Console
from threadpoolctl import threadpool_limits

from benchmarks.held import held_ms, queued, steps
from benchmarks.tables import Table, paste
from sfd_stream.cli.build import worker_of
from sfd_stream.config.model import Settings
from sfd_stream.observe import logs
from sfd_stream.worker.worker import Worker
from tests.support.kafka import Broker, start_broker

PAGE = Path(__file__).parents[1] / "docs" / "experiments.md"
ELL, D, NNZ = 50, 10_000, 50
ROWS_PER_S = 2_000
PENDING = 6_000
ROUNDS = 3
LIMIT_MS = 5.0
SNAPSHOT_EVERY_S = 0.05
WARM_UP_S = 3.0


class Stopwatch:
    """Stands in for a worker's poll, and sees when a snapshot is in the making."""

    def __init__(self, worker: Worker, source: Any) -> None:
        self.pauses: list[float] = []
        self.snapshots = 0
        self._making = 0
        self._touched = False
        self._left_s: float | None = None
        self._late_s = self._queued_s = self._waited_s = 0.0
        self._poll, source.poll = source.poll, self.poll
        self._wait = worker.runtime.wait
        object.__setattr__(worker.runtime, "wait", self.wait)
        self._checkpoint, worker._checkpoint = worker._checkpoint, self.checkpoint  # type: ignore[method-assign,assignment] # noqa: SLF001

    def poll(self, most: int, timeout_s: float) -> Any:
        entered_s, queued_s = time.perf_counter(), queued()
        touched, self._touched = self._touched or self._making > 0, False
        if self._left_s is not None:
            self._turned(entered_s - self._left_s - self._waited_s - (queued_s - self._queued_s), touched=touched)
        self._waited_s = 0.0
        found = self._poll(most, timeout_s)
        self._left_s, self._queued_s = time.perf_counter(), queued()
        self._late_s = max(self._left_s - entered_s - timeout_s - (self._queued_s - queued_s), 0.0)
        return found

    def _turned(self, outside_s: float, *, touched: bool) -> None:
        if touched or self.snapshots == 0:
            self.pauses.append(outside_s + self._late_s)

    def wait(self, seconds: float) -> None:
        """Time in which the loop waits for an answer is no pause."""
        began_s = time.perf_counter()
        self._wait(seconds)
        self._waited_s += min(time.perf_counter() - began_s, seconds)

    def checkpoint(self, *given: Any, publish: bool) -> Any:
        """One with a snapshot, from its beginning to its end."""
        if not publish:
            return (yield from self._checkpoint(*given, publish=False))
        self._making, self._touched = self._making + 1, True
        try:
            return (yield from self._checkpoint(*given, publish=True))
        finally:
            self._making, self._touched = self._making - 1, True
            self.snapshots += 1


def settings_of(broker: Broker, topic: str, folder: Path, *, snapshots: bool) -> Settings:
    given: dict[str, Any] = {
        "kafka": {"bootstrap.servers": broker.bootstrap, "group.id": f"pauses-{time.time_ns()}", "log_level": 3},
        "input": {"topic": topic, "start": "latest"},
        "sketch": {"d": D, "ell": ELL},
        "checkpoint": {"url": (folder / str(time.time_ns())).as_uri(), "every_s": 1.0},
    }
    if snapshots:
        given["snapshot"] = {"topic": broker.create_topic(), "every_s": SNAPSHOT_EVERY_S}
    return Settings.model_validate(given)


@contextmanager
def rows_flow(broker: Broker, topic: str) -> Iterator[None]:
    command = [sys.executable, "-m", "sfd_stream.cli", "produce", "--synthetic", f"10000000,{D},{NNZ}"]
    command += ["--topic", topic, "--broker", broker.bootstrap, "--rate", str(ROWS_PER_S)]
    with subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as producer:
        try:
            yield
        finally:
            producer.terminate()


def one_run(settings: Settings, seconds: float) -> Stopwatch:
    worker, source = worker_of(settings, until_end=False)
    watch = Stopwatch(worker, source)
    threading.Timer(WARM_UP_S, watch.pauses.clear).start()
    threading.Timer(WARM_UP_S + seconds, worker.stop).start()
    worker.run()
    return watch


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=10.0, help="of each of the runs")
    parser.add_argument("--paste", action="store_true", help="write the table into docs/experiments.md")
    given = parser.parse_args()
    logs.configure(level="warning")
    with threadpool_limits(1):
        held = {name: held_ms(step) for name, step in steps(ELL, D, NNZ, PENDING)}
        without, during, snapshots = runs(given.seconds)
    added = p99_ms(during) - p99_ms(without)
    made = table(held, without, during, snapshots, added)
    made.show(Console())
    if given.paste:
        paste([PAGE], [made])
    return int(max(added, *held.values()) > LIMIT_MS)


def runs(seconds: float) -> tuple[list[float], list[float], int]:
    """Pauses without snapshots and during them, in turns, and how many snapshots there were."""
    without, during, snapshots = list[float](), list[float](), 0
    with start_broker() as broker, tempfile.TemporaryDirectory() as folder:
        topic = broker.create_topic()
        with rows_flow(broker, topic):
            for _ in range(ROUNDS):
                plain = one_run(settings_of(broker, topic, Path(folder), snapshots=False), seconds)
                busy = one_run(settings_of(broker, topic, Path(folder), snapshots=True), seconds)
                without, during = without + plain.pauses, during + busy.pauses
                snapshots += busy.snapshots // 2  # one is marked when it is encoded and when it is shown
    return without, during, snapshots


def p99_ms(pauses: list[float]) -> float:
    return 1e3 * float(np.quantile(pauses, 0.99))


def table(held: dict[str, float], without: list[float], during: list[float], snapshots: int, added_ms: float) -> Table:
    rows = [[f"{name} keeps the interpreter, at most", f"{ms:.2f} ms", f"{LIMIT_MS:g} ms"] for name, ms in held.items()]
    for name, pauses in (("without snapshots", without), (f"during one of {snapshots:,} snapshots", during)):
        p50, worst = 1e3 * float(np.median(pauses)), 1e3 * max(pauses)
        measured = f"p50 {p50:.2f} ms, p99 {p99_ms(pauses):.2f} ms, most {worst:.1f} ms, of {len(pauses):,}"
        rows.append([f"pause of a turn, {name}", measured, ""])
    rows.append(["what a snapshot adds to the p99", f"{added_ms:.2f} ms", f"{LIMIT_MS:g} ms"])
    title = f"ell = {ELL}, d = {D:,}, {ROWS_PER_S:,} rows a second, {PENDING:,} rows pending"
    return Table("pauses", title, ["", "measured", "limit"], rows)


if __name__ == "__main__":
    sys.exit(main())
