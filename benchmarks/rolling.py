"""A rolling update under load, on a real Kafka: how long does a partition stand still, and what is replayed?

    python -m benchmarks.rolling [--partitions 12] [--rate 2000] [--heartbeat-ms 3000 500] [--json FILE] [--paste]

Three worker processes share a topic that is written at a steady rate. One by one, a new worker is started and, when it
reads, an old one gets SIGTERM (maxSurge 1, maxUnavailable 0, as in the chart). Each worker notes when a partition's
offset moved. A pause is the time from the last move by one owner to the first by the next; what the load itself leaves
between two moves is measured before the update and shown beside it. Rows replayed are the rows that all workers took
less the rows in the checkpoints. --paste writes the table into docs/guides/deploying.md.
"""

from __future__ import annotations

import argparse
import itertools
import json
import os
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections import defaultdict
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.tables import Table, paste

PAGE = Path(__file__).parents[1] / "docs" / "guides" / "deploying.md"
WORKERS, D, ELL, Z = 3, 1_000, 50, 100
STEADY_S = 10.0
LIMIT_S = 120.0


def child(settings_file: Path, notes: Path) -> None:
    """One worker, which notes (time, partition, offset) whenever an offset moved, and at its end the rows it took."""
    from sfd_stream.cli.commands.run import within_quota, work
    from sfd_stream.config import load
    from sfd_stream.observe.logs import configure

    settings = within_quota(load(settings_file, environ={}).settings)
    configure(level="warning")
    seen: dict[int, int] = {}
    with notes.open("w", buffering=1) as out:

        def watch(worker: Any) -> None:
            for owned in worker.partitions:
                facts = None if owned.sketched is None else owned.sketched.facts
                if facts is not None and seen.get(owned.number) != facts.next_offset:
                    seen[owned.number] = facts.next_offset
                    out.write(f"{time.time():.4f} {owned.number} {facts.next_offset}\n")

        worker = work(settings, until_end=False, watch=watch)
        out.write(f"rows {worker.progress.rows}\n")


class Load(threading.Thread):
    """A steady rate of rows, spread evenly over the partitions."""

    def __init__(self, bootstrap: str, topic: str, partitions: int, rate: int) -> None:
        super().__init__(daemon=True)
        self._brokers, self._topic, self._partitions, self._rate = bootstrap, topic, partitions, rate
        self.stopped = threading.Event()
        self.sent = 0

    def run(self) -> None:
        from confluent_kafka import Producer

        from sfd_stream import paper_synthetic
        from sfd_stream.wire.rows.encode import encode_rows

        rows = list(encode_rows(paper_synthetic(1_000, D, Z, seed=0)))
        producer = Producer({"bootstrap.servers": self._brokers, "linger.ms": 5, "log_level": 0})
        began = time.monotonic()
        while not self.stopped.wait(0.02):
            due = int((time.monotonic() - began) * self._rate)
            for number in range(self.sent, due):
                producer.produce(self._topic, rows[number % len(rows)], partition=number % self._partitions)
            self.sent = max(self.sent, due)
            producer.poll(0)
        producer.flush(30)


class RestartPolicy:
    """Workers as processes of their own, with their notes."""

    def __init__(self, folder: Path, settings: dict[str, Any]) -> None:
        self._folder = folder
        self._settings = folder / "settings.yaml"
        self._settings.write_text(json.dumps(settings))
        self.notes: list[Path] = []
        self._all: list[subprocess.Popen[bytes]] = []

    def end(self) -> None:
        """Whatever is left of a benchmark that failed."""
        for process in self._all:
            if process.poll() is None:
                process.kill()
                process.wait()

    def start(self) -> tuple[subprocess.Popen[bytes], Path]:
        notes = self._folder / f"worker-{len(self.notes)}.txt"
        notes.touch()
        self.notes.append(notes)
        command = [sys.executable, "-m", "benchmarks.rolling", "--child", str(self._settings), str(notes)]
        self._all.append(subprocess.Popen(command, cwd=Path(__file__).parents[1]))
        return self._all[-1], notes


def wait_for(condition: Any, what: str) -> None:
    deadline = time.monotonic() + LIMIT_S
    while not condition():
        if time.monotonic() > deadline:
            raise TimeoutError(f"waited {LIMIT_S:.0f} s for {what}")
        time.sleep(0.05)


def roll(crew: RestartPolicy, load: Load, partitions: int) -> tuple[float, float]:
    """Start, go steadily, replace one by one; the update's beginning and end."""
    workers = [crew.start() for _ in range(WORKERS)]
    load.start()
    wait_for(lambda: len(moves(crew.notes)) == partitions, "all partitions to be read")
    wait_for(lambda: all(notes.stat().st_size for _, notes in workers), "all workers to have partitions")
    time.sleep(STEADY_S)
    began = time.time()
    for old, _ in tuple(workers):
        new, notes = crew.start()
        wait_for(lambda notes=notes: notes.stat().st_size > 0, "the new worker")
        old.send_signal(signal.SIGTERM)
        if old.wait(LIMIT_S) != 0:
            raise RuntimeError(f"a worker ended with {old.returncode}")
        workers = [*workers[1:], (new, notes)]
    time.sleep(2.0)
    ended = time.time()
    load.stopped.set()
    load.join()
    wait_for(lambda: sum(seen[-1][1] for seen in moves(crew.notes).values()) == load.sent, "the end")
    for worker, _ in workers:
        worker.send_signal(signal.SIGTERM)
    for worker, _ in workers:
        if worker.wait(LIMIT_S) != 0:
            raise RuntimeError(f"a worker ended with {worker.returncode}")
    return began, ended


def moves(notes: list[Path]) -> dict[int, list[tuple[float, int, int]]]:
    """By partition, each time its offset went further than ever: when, to what, and by which worker."""
    found: dict[int, list[tuple[float, int, int]]] = defaultdict(list)
    for worker, file in enumerate(notes):
        for line in file.read_text().splitlines():
            words = line.split()
            if len(words) == 3:
                found[int(words[1])].append((float(words[0]), int(words[2]), worker))
    return {partition: _advances(sorted(seen)) for partition, seen in found.items()}


def _advances(seen: list[tuple[float, int, int]]) -> list[tuple[float, int, int]]:
    """Without what a new owner restored, which is no progress."""
    furthest = itertools.accumulate((offset for _, offset, _ in seen), max, initial=-1)
    return [note for note, before in zip(seen, furthest, strict=False) if note[1] > before]


def gaps(found: dict[int, list[tuple[float, int, int]]], began: float, ended: float, *, handed: bool) -> list[float]:
    """Times between two moves of a partition that end within the span: by two owners (`handed`), or by one."""
    return [
        later[0] - earlier[0]
        for seen in found.values()
        for earlier, later in itertools.pairwise(seen)
        if began <= later[0] <= ended and (earlier[2] != later[2]) == handed
    ]


def measure(partitions: int, rate: int, heartbeat_ms: int) -> dict[str, Any]:
    from sfd_stream.cli.build import shape_of, store_of
    from sfd_stream.config import load as load_settings
    from sfd_stream.tools.inspect import summarise
    from tests.support.kafka import start_broker

    load_before = os.getloadavg()[0]
    with start_broker(private=True) as broker, tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        topic = broker.create_topic(partitions=partitions)
        kafka = {"bootstrap.servers": broker.bootstrap, "group.id": "rolling", "heartbeat.interval.ms": heartbeat_ms}
        settings = {
            "kafka": {**kafka, "partition.assignment.strategy": "cooperative-sticky"},
            "input": {"topic": topic},
            "sketch": {"d": D, "ell": ELL},
            "checkpoint": {"url": (folder / "checkpoints").as_uri(), "every_s": 5},
            "http": {"port": 0},
        }
        crew, load = RestartPolicy(folder, settings), Load(broker.bootstrap, topic, partitions, rate)
        try:
            began, ended = roll(crew, load, partitions)
        finally:
            crew.end()
        given = load_settings(folder / "settings.yaml", environ={}).settings
        durable = summarise(store_of(given), given.group, topic, lambda p: shape_of(given, p))
        taken = sum(int(file.read_text().rsplit("rows ", 1)[1]) for file in crew.notes)
        seen = moves(crew.notes)
        pauses, steady = gaps(seen, began, ended, handed=True), gaps(seen, began - STEADY_S, began, handed=False)
        rows = sum(part.rows for part in durable.values())
        return {
            "partitions": partitions,
            "rows_per_s": rate,
            "heartbeat_ms": heartbeat_ms,
            "rows_sent": load.sent,
            "rows_durable": rows,
            "rows_replayed": taken - rows,
            "update_s": round(ended - began, 1),
            "handovers": len(pauses),
            "pause_p50_s": round(float(np.percentile(pauses, 50)), 3),
            "pause_p99_s": round(float(np.percentile(pauses, 99)), 3),
            "steady_gap_p50_s": round(float(np.percentile(steady, 50)), 3),
            "steady_gap_p99_s": round(float(np.percentile(steady, 99)), 3),
            "cores": os.cpu_count(),
            "load_before": round(load_before, 1),
        }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--partitions", type=int, default=12)
    parser.add_argument("--rate", type=int, default=2_000)
    parser.add_argument(
        "--heartbeat-ms", type=int, nargs="+", default=[3_000, 500], help="how soon members hear of a rebalance"
    )
    parser.add_argument("--paste", action="store_true", help="write the table into docs/guides/deploying.md")
    parser.add_argument("--json", type=Path)
    parser.add_argument("--child", nargs=2, type=Path, help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.child:
        child(*given.child)
        return
    runs = [measure(given.partitions, given.rate, heartbeat_ms) for heartbeat_ms in given.heartbeat_ms]
    if given.json:
        given.json.write_text(json.dumps(runs, indent=2) + "\n")
    for found in runs:
        print("\n".join(f"{name:18} {value}" for name, value in found.items()), end="\n\n")
        if found["rows_durable"] != found["rows_sent"]:
            raise SystemExit(f"{found['rows_sent']} rows were sent, {found['rows_durable']} counted")
    if given.paste:
        paste([PAGE], [table(runs)])


def table(runs: list[dict[str, Any]]) -> Table:
    columns = [
        "`heartbeat.interval.ms`", "handovers", "pause p50", "pause p99", "without handover p50 / p99", "rows replayed",
        "rows/s, partitions", "load average before, cores",
    ]  # fmt: skip
    rows = [
        [
            f"{run['heartbeat_ms']:,}",
            str(run["handovers"]),
            f"{run['pause_p50_s']:.2f} s",
            f"{run['pause_p99_s']:.2f} s",
            f"{run['steady_gap_p50_s']:.2f} s / {run['steady_gap_p99_s']:.2f} s",
            f"{run['rows_replayed']:,} of {run['rows_durable']:,}",
            f"{run['rows_per_s']:,}, {run['partitions']}",
            f"{run['load_before']:.1f}, {run['cores']}",
        ]
        for run in runs
    ]
    return Table("rolling", "A rolling update", columns, rows)


if __name__ == "__main__":
    main()
