"""How much of the in-memory rate survives the way from a topic to a checkpointed sketch? On a real Kafka, in one run.

    python -m benchmarks.stream [--rows 400000] [--json FILE]

The yardstick is `SparseFrequentDirections.partial_fit` on the same rows, in the same run, on the same cores. Each way
of writing rows (packed, blocks of 100, friendly lists) is read by one worker process with disk checkpoints; its clock
runs from the first record to the last commit. With --json the figures are added to that file, and
`python -m benchmarks.sketch --json FILE --no-run --figures` pastes them.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import threading
import time
from collections import defaultdict
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

D, ELL, Z = 1_000, 50, 100
GOALS = {"packed": (0.6, 0.8), "blocks": (0.9, 0.9), "list": (0.3, 0.3)}
CHUNK = 10_000


def in_memory_rate(rows: int) -> float:
    """Rows a second by partial_fit alone, one BLAS thread, in chunks as a poll would bring them."""
    from sfd_stream import SparseFrequentDirections, paper_synthetic

    chunk = paper_synthetic(CHUNK, D, Z, seed=0)
    pieces = [chunk[i : i + 1_000] for i in range(0, CHUNK, 1_000)]
    sketcher = SparseFrequentDirections(ELL)
    for piece in pieces:
        sketcher.partial_fit(piece)
    began = time.perf_counter()
    for _ in range(max(rows // CHUNK, 1)):
        for piece in pieces:
            sketcher.partial_fit(piece)
    return max(rows // CHUNK, 1) * CHUNK / (time.perf_counter() - began)


def fill(bootstrap: str, topic: str, form: str, rows: int) -> None:
    """The same rows again and again: encoding is not what is measured."""
    from confluent_kafka import Producer

    from sfd_stream import paper_synthetic
    from sfd_stream.wire.rows import encode_rows

    chunk = paper_synthetic(CHUNK, D, Z, seed=0)
    per_message = 100 if form == "blocks" else None
    messages = list(encode_rows(chunk, packed=form != "list", rows_per_message=per_message))
    producer = Producer({"bootstrap.servers": bootstrap, "linger.ms": 50, "queue.buffering.max.messages": 1_000_000})
    for _ in range(rows // CHUNK):
        for message in messages:
            while True:
                try:
                    producer.produce(topic, message, partition=0)
                    break
                except BufferError:
                    producer.poll(0.05)
        producer.poll(0)
    if producer.flush(120):
        raise SystemExit("the broker did not take all rows within two minutes")


class Timers:
    """Seconds by name, over all calls and threads."""

    def __init__(self) -> None:
        self.seconds: defaultdict[str, float] = defaultdict(float)

    def wrap(self, owner: Any, name: str, label: str) -> None:
        inner: Callable[..., Any] = getattr(owner, name)

        def timed(*args: Any, **kwargs: Any) -> Any:
            began = time.perf_counter()
            try:
                return inner(*args, **kwargs)
            finally:
                self.seconds[label] += time.perf_counter() - began

        setattr(owner, name, timed)


def child(settings_path: str) -> None:
    """One worker to the end of the topic; prints what it took."""
    from threadpoolctl import threadpool_limits

    from sfd_stream.cli.wiring import worker_of
    from sfd_stream.config import load
    from sfd_stream.kafka.source import Source
    from sfd_stream.service import intake, keeper, worker
    from sfd_stream.state.partition import PartitionState

    timers = Timers()
    timers.wrap(Source, "poll", "poll (the broker's wait in it)")
    timers.wrap(intake, "decode", "decode")
    timers.wrap(worker.Worker, "_keep_pace", "wait for the sketch")
    timers.wrap(PartitionState, "apply", "sketch (its own thread)")
    timers.wrap(keeper.Keeper, "make_durable", "checkpoint (beside)")
    settings = load(Path(settings_path), environ={}).settings
    began: list[float] = []
    take = worker.Worker._take  # noqa: SLF001 - the clock starts with the first record

    def first(self: Any, batch: Any) -> None:
        if not began:
            began.append(time.perf_counter())
        take(self, batch)

    worker.Worker._take = first  # type: ignore[method-assign]  # noqa: SLF001
    with threadpool_limits(settings.worker.blas_threads):
        made, source = worker_of(settings, until_end=True)
        watcher = _committed_at(made, source)
        made.run(source)
    seconds = watcher.done_at - began[0]
    per_row = {name: spent / made.progress.rows * 1e6 for name, spent in timers.seconds.items()}
    print(json.dumps({"rows": made.progress.rows, "seconds": seconds, "us_per_row": per_row}))


class _committed_at:  # noqa: N801 - a helper, not a name for others
    """When the last offset was committed: leaving the group afterwards is not the rows' time."""

    def __init__(self, made: Any, source: Any) -> None:
        self.done_at = 0.0
        self._made, self._source = made, source
        threading.Thread(target=self._watch, daemon=True).start()

    def _watch(self) -> None:
        while True:
            time.sleep(0.005)
            ends = self._made.progress.ends
            if ends and all(self._source.last_committed.get(p, -1) >= end for p, end in ends.items() if end):
                self.done_at = time.perf_counter()
                return


def streamed(bootstrap: str, topic: str, group: str) -> dict[str, Any]:
    import yaml

    with tempfile.TemporaryDirectory() as folder:
        settings = {
            "kafka": {"bootstrap.servers": bootstrap, "group.id": group},
            "input": {"topic": topic},
            "sketch": {"d": D, "ell": ELL},
            "checkpoint": {"url": Path(folder, "checkpoints").as_uri()},
            "http": {"port": 0},
        }
        path = Path(folder, "settings.yaml")
        path.write_text(yaml.safe_dump(settings))
        command = [sys.executable, "-m", "benchmarks.stream", "--child", str(path)]
        done = subprocess.run(command, capture_output=True, text=True, check=False, env=one_thread())
        if done.returncode:
            raise SystemExit(done.stderr[-4000:])
        found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
        return found


def one_thread() -> dict[str, str]:
    return {**os.environ, "OPENBLAS_NUM_THREADS": "1"}


@contextmanager
def broker() -> Iterator[Any]:
    from tests.parts.kafka import start_broker

    with start_broker() as started:
        yield started


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, default=400_000)
    parser.add_argument("--rounds", type=int, default=2)
    parser.add_argument("--json", type=Path)
    parser.add_argument("--child", help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.child:
        child(given.child)
        return
    results: dict[str, Any] = {}
    with broker() as started:
        topics = {form: started.create_topic(partitions=1) for form in GOALS}
        for form, topic in topics.items():
            fill(started.bootstrap, topic, form, given.rows if form != "list" else given.rows // 4)
        memory = []
        for round_number in range(given.rounds):
            memory.append(_rate_in_a_child(given.rows))
            for form, topic in topics.items():
                run = streamed(started.bootstrap, topic, f"{form}-{round_number}")
                run["rate"] = run["rows"] / run["seconds"]
                if run["rate"] > results.get(form, {"rate": 0})["rate"]:
                    results[form] = run
    best = max(memory)
    print(f"in memory: {best:,.0f} rows/s ({1e6 / best:.2f} us a row); rows of {Z} of {D:,} columns, ell = {ELL}")
    for form, (floor, goal) in GOALS.items():
        share = results[form]["rate"] / best
        word = "goal reached" if share >= goal else "floor reached" if share >= floor else "below the floor"
        print(f"{form:7} {results[form]['rate']:9,.0f} rows/s = {share:.2f} of it (floor {floor}, goal {goal}: {word})")
        for name, spent in sorted(results[form]["us_per_row"].items(), key=lambda item: -item[1]):
            print(f"          {spent:6.2f} us a row  {name}")
    if given.json:
        known = json.loads(given.json.read_text(encoding="utf-8")) if given.json.exists() else {}
        known["stream"] = {"in_memory": best, **results}
        given.json.write_text(json.dumps(known, indent=1) + "\n", encoding="utf-8")


def _rate_in_a_child(rows: int) -> float:
    code = f"from benchmarks.stream import in_memory_rate; print(in_memory_rate({rows}))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, env=one_thread())
    return float(done.stdout)


if __name__ == "__main__":
    main()
