"""One measurement under the packages of one tree, for `benchmarks.compare`: prints one JSON object.

Started by its path with that tree on PYTHONPATH, so it imports of `sfd_stream` only what every version has: its public
names and its command line.

    compared.py sketch MATRIX.npz ELL      CPU seconds of one fit
    compared.py decode MESSAGES COLUMNS    CPU seconds of one decoding of all messages, in batches
    compared.py worker SETTINGS END        seconds from the first record to the commit of offset END, and from the
                                           last record; CPU seconds of all threads from the first one
"""

from __future__ import annotations

import gc
import json
import sys
import time
from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from typing import Any

import confluent_kafka
import msgpack
import scipy.sparse as sp
from threadpoolctl import threadpool_limits

BATCH = 1_000
TURN_S, RUNS_MIN = 0.4, 3
"""The best of at least three runs, in as much time: what the code costs, not what else the machine did."""


def best_cpu_s(job: Callable[[], Any]) -> float:
    gc.collect()
    gc.disable()  # as timeit does
    times: list[float] = []
    began = time.perf_counter()
    while len(times) < RUNS_MIN or time.perf_counter() - began < TURN_S:
        start = time.process_time()
        job()
        times.append(time.process_time() - start)
    return min(times)


def sketch(matrix: str, ell: str) -> dict[str, float]:
    from sfd_stream import SparseFrequentDirections

    A = sp.csr_array(sp.load_npz(matrix))
    return {"seconds": best_cpu_s(lambda: SparseFrequentDirections(int(ell)).fit(A).sketch())}


def decode(messages: str, columns: str) -> dict[str, float]:
    """Columns are grown and named by a first decoding: what a stream settles at."""
    import sfd_stream

    name, d = columns.split(":")
    values: list[bytes] = msgpack.unpackb(Path(messages).read_bytes())
    batches = [values[at : at + BATCH] for at in range(0, len(values), BATCH)]
    home = sfd_stream if hasattr(sfd_stream, name) else import_module("sfd_stream.wire.rows")  # as in 75b2d4e
    settled = getattr(home, name)(int(d))
    for batch in batches:
        settled = sfd_stream.decode(batch, settled).columns

    def all_batches() -> None:
        for batch in batches:
            if sfd_stream.decode(batch, settled).bad:
                raise RuntimeError("a message of the benchmark is not rows")

    return {"seconds": best_cpu_s(all_batches)}


class Clock:
    """When the first and the last record came, and when the offset after the last one was committed."""

    def __init__(self, end: int) -> None:
        self.end = end
        self.records = 0
        self.first_s = self.last_s = self.done_s = 0.0
        self._cpu_s = self._cpu_done_s = 0.0

    def consumed(self, count: int) -> None:
        if count and self.records < self.end:
            self.last_s = time.perf_counter()
            if not self.records:
                self.first_s, self._cpu_s = self.last_s, time.process_time()
            self.records += count

    def committed(self, error: Any, offsets: Any) -> None:
        reached = error is None and any(where.error is None and where.offset >= self.end for where in offsets)
        if reached and not self.done_s:
            self.done_s, self._cpu_done_s = time.perf_counter(), time.process_time()

    def report(self) -> dict[str, float]:
        if not self.done_s:
            raise RuntimeError(f"offset {self.end} was not committed")
        return {
            "seconds": self.done_s - self.first_s,
            "to_durable_s": self.done_s - self.last_s,
            "cpu_s": self._cpu_done_s - self._cpu_s,
        }


def observed(clock: Clock) -> type[Any]:
    """The client's consumer, observed at its own border: no version's inner parts are known here."""
    inner: Any = confluent_kafka.Consumer

    class Observed(inner):  # type: ignore[misc]
        def __init__(self, properties: dict[str, Any], **named: Any) -> None:
            self._reads_rows = "on_commit" in properties
            if self._reads_rows:
                properties = {**properties, "on_commit": _both(clock.committed, properties["on_commit"])}
            super().__init__(properties, **named)

        def consume(self, *args: Any, **named: Any) -> Any:
            messages = super().consume(*args, **named)
            if self._reads_rows:
                clock.consumed(len(messages))
            return messages

    return Observed


def _both(first: Callable[..., None], second: Callable[..., None]) -> Callable[..., None]:
    def call(*answer: Any) -> None:
        first(*answer)
        second(*answer)

    return call


def worker(settings: str, end: str) -> dict[str, float]:
    clock = Clock(int(end))
    setattr(confluent_kafka, "Consumer", observed(clock))  # noqa: B010 - a type checker takes it for a type
    from sfd_stream.cli import main

    code = main(["run", "--config", settings, "--until-end"])
    if code:
        raise SystemExit(code)
    return clock.report()


def measure(kind: str, *arguments: str) -> None:
    with threadpool_limits(1):
        found = {"sketch": sketch, "decode": decode, "worker": worker}[kind](*arguments)
    import sfd_stream

    print("\n" + json.dumps({**found, "tree": str(Path(sfd_stream.__file__).parents[1])}))


if __name__ == "__main__":
    measure(*sys.argv[1:])
