"""Many partitions on one worker, on a real Kafka: how long a start and a rebalance take, and what memory they need.

    python -m tests.torture.scale --partitions 200 1000

For each number of partitions a worker starts fresh, reads rows of every partition, publishes and commits, and is
terminated. It starts again with more rows in the topic; a second worker joins the group and leaves. The first row and
all times are counted from the start of a process (or from its SIGTERM). `max.poll.interval.ms` is 10 s: a worker whose
poll is blocked for longer loses its partitions.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import signal
import sys
import tempfile
import threading
import time
import urllib.request
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from sfd_stream.cli.build import shape_of
from sfd_stream.tools.sizing import as_size, pod_bytes
from tests.support.kafka import Broker, start_broker
from tests.system.runs import Rows, Run, WorkerProcess

POLL_INTERVAL_S = 10.0
MESSAGES, ROWS_PER_MESSAGE = 10, 20
"""Per partition and start."""
D = 200
WITHIN_S = 300.0


@dataclass
class Observed:
    """A worker, by its status five times a second."""

    worker: WorkerProcess
    began_s: float = field(default_factory=time.monotonic)
    first_row_s: float | None = None
    idle_s: float = 0.0
    """The longest time between two turns of its loop."""
    status: dict[str, Any] = field(default_factory=dict)
    peak_bytes: int = 0

    def __post_init__(self) -> None:
        self._over = threading.Event()
        threading.Thread(target=self._look, daemon=True).start()

    def _look(self) -> None:
        while not self._over.wait(0.2) and not (urls := self.worker.values("url")):
            pass
        while not self._over.wait(0.2):
            with contextlib.suppress(OSError, ValueError):
                with urllib.request.urlopen(f"{urls[0]}status.json", timeout=60) as answer:  # noqa: S310 - ours
                    self.status = json.load(answer)["workers"][0]
                if self.first_row_s is None and self.status["rows"]:
                    self.first_row_s = time.monotonic() - self.began_s
                self.idle_s = max(self.idle_s, self.status["loop_idle_s"])
                self.peak_bytes = max(self.peak_bytes, _peak_bytes(self.worker.pid))

    @property
    def partitions(self) -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = self.status.get("partitions", [])
        return found

    @property
    def reading(self) -> int:
        return sum(one["state"] == "reading" for one in self.partitions)

    def end(self) -> float:
        """Terminates it; how long that took."""
        began_s = time.monotonic()
        self.worker.signal(signal.SIGTERM)
        code = self.worker.wait(WITHIN_S)
        self._over.set()
        assert code == 0, self.worker.log()[-3_000:]
        return time.monotonic() - began_s


def _peak_bytes(pid: int) -> int:
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    peaks = [int(line.split()[1]) * 1024 for line in lines if line.startswith("VmHWM")]
    return peaks[0] if peaks else 0  # a process that has ended, and was not waited for yet, has none


@dataclass(frozen=True)
class Result:
    partitions: int
    seconds: dict[str, float]
    idle_s: float
    peak_bytes: int
    estimated_bytes: int
    removed: int
    """How often a worker was outside its group, because of a poll that came too late or any other reason."""

    def lines(self) -> Iterator[tuple[str, str]]:
        for name, value in self.seconds.items():
            yield name, f"{value:.1f} s"
        yield "longest time between two turns of the loop", f"{self.idle_s:.1f} s"
        yield "peak memory", as_size(self.peak_bytes)
        yield "memory by `sfd-stream size`", as_size(self.estimated_bytes)
        yield "removed from the group", f"{self.removed}"


def measured(broker: Broker, count: int, folder: Path, protocol: str = "cooperative") -> Result:
    rows = Rows.random(MESSAGES * ROWS_PER_MESSAGE * 4, partitions=4, d=D, nnz=10, rows_per_message=ROWS_PER_MESSAGE)
    topic, snapshots = broker.create_topic(partitions=count), broker.create_topic(config={"cleanup.policy": "compact"})
    run = Run(
        broker, topic, folder, (folder / "store").as_uri(), protocol=protocol,
        changes={
            "kafka": {"max.poll.interval.ms": int(1000 * POLL_INTERVAL_S)} | _session(protocol),
            "sketch": {"d": D},
            "snapshot": {"topic": snapshots, "every_s": 30.0},
            "checkpoint": {"every_s": 5.0, "every_rows": 1_000_000, "revoke_budget_s": 5.0},
            "worker": {"batch_records": 1_000},
            "log": {"level": "info"},
        },
    )  # fmt: skip
    seconds: dict[str, float] = {}
    try:
        everyone = _phases(run, rows, count, seconds)
    finally:
        run.close()
    settings = run.settings()
    return Result(
        count, seconds, max(one.idle_s for one in everyone), max(one.peak_bytes for one in everyone),
        pod_bytes(shape_of(settings, 0).memory_bytes(), count, 2),
        sum(len(one.worker.events("partitions lost")) for one in everyone),
    )  # fmt: skip


def _session(protocol: str) -> dict[str, Any]:
    return {"session.timeout.ms": 6_000, "heartbeat.interval.ms": 500} if protocol != "kip-848" else {}


def _phases(run: Run, rows: Rows, count: int, seconds: dict[str, float]) -> list[Observed]:
    produce(run, rows, count)
    fresh = _begun(run, "fresh", count, MESSAGES, seconds)
    seconds["SIGTERM to exit"] = fresh.end()
    produce(run, rows, count)
    restored = _begun(run, "restored", count, 2 * MESSAGES, seconds)
    second = Observed(run.start())
    seconds["a second worker joins: both read"] = _until(
        lambda: second.reading + restored.reading == count and abs(second.reading - restored.reading) <= 1,
        [restored, second],
    )
    second_ends_s = second.end()
    seconds["it leaves: the first reads all"] = second_ends_s + _until(lambda: restored.reading == count, [restored])
    restored.end()
    for partition in (0, count // 2, count - 1):
        assert run.state(partition).rows == 2 * MESSAGES * ROWS_PER_MESSAGE
    return [fresh, restored, second]


def produce(run: Run, rows: Rows, count: int) -> None:
    producer = run.broker.producer
    for partition in range(count):
        for value in rows.messages(partition % 4):
            while True:
                try:
                    producer.produce(run.topic, value, partition=partition)
                    break
                except BufferError:
                    producer.poll(0.1)
    assert producer.flush(120) == 0


def _begun(run: Run, name: str, count: int, end: int, seconds: dict[str, float]) -> Observed:
    one = Observed(run.start())
    seconds[f"{name}: all partitions read"] = _until(lambda: one.reading == count, [one])
    seconds[f"{name}: all rows durable, published, committed"] = seconds[f"{name}: all partitions read"] + _until(
        lambda: len(one.partitions) == count and all(each["committed"] == end for each in one.partitions), [one]
    )
    assert one.first_row_s is not None
    seconds[f"{name}: first row"] = one.first_row_s
    return one


def _until(condition: Callable[[], bool], workers: list[Observed]) -> float:
    began_s = time.monotonic()
    while not condition():
        late, ended = time.monotonic() - began_s > WITHIN_S, [one for one in workers if not one.worker.alive]
        assert not late, f"{workers[-1].status.get('doing')}: {workers[-1].worker.log()[-3_000:]}"
        assert not ended, ended[0].worker.log()[-3_000:]
        time.sleep(0.05)
    return time.monotonic() - began_s


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.torture.scale", description="Many partitions on one worker.")
    parser.add_argument("--partitions", type=int, nargs="+", default=[200, 1_000])
    parser.add_argument("--protocol", choices=("cooperative", "kip-848"), default="cooperative")
    given = parser.parse_args()
    results = []
    for count in given.partitions:
        with start_broker(private=True) as broker, tempfile.TemporaryDirectory() as folder:
            results.append(measured(broker, count, Path(folder), given.protocol))
    print("| | " + " | ".join(f"{one.partitions:,} partitions" for one in results) + " |")
    print("|---|" + "---|" * len(results))
    for cells in zip(*(one.lines() for one in results), strict=True):
        print(f"| {cells[0][0]} | " + " | ".join(value for _, value in cells) + " |")
    return 0


if __name__ == "__main__":
    sys.exit(main())
