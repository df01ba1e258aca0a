"""A producer that is faster than the worker for some minutes, then none: memory stays bounded, nothing is lost.

    python -m tests.torture.overload --minutes 10

One worker on a real Kafka with a wide sketch, so that its computations are the limit. The producer always sends more
than the worker has applied, so the lag grows all the time. Then it stops and the lag drains. What is in the states must
be exactly what the broker acknowledged.
"""

from __future__ import annotations

import argparse
import statistics
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import msgpack
import numpy as np
from confluent_kafka import KafkaError, Producer

from sfd_stream.cli.build import shape_of
from sfd_stream.tools.sizing import as_size, pod_bytes
from tests.support.kafka import Broker, start_broker
from tests.system.runs import Run
from tests.torture.load import NNZ, ROWS, rows_message
from tests.torture.load import D as COLUMNS
from tests.torture.scale import Observed

PARTITIONS = 4
D, ELL = 10_000, 50
FASTER, MORE = 1.3, 100
"""At each look the producer sends `FASTER` times what the worker has applied since the last look, plus `MORE`."""
LOOK_EVERY_S = 0.5
MESSAGES = 200
"""Different ones: the states are compared with how often each was acknowledged."""
GROWTH_MAX_BYTES, GROWTH_AFTER_S = 30 * 2**20, 240.0
"""From the second to the last quarter of an overload of at least this long: before, buffers and queues still fill."""
DRAINS_WITHIN_S = 1_200.0


@dataclass(frozen=True)
class Look:
    at_s: float
    lag: int
    rss_bytes: int


@dataclass
class Load:
    """Sends messages of a known set to all partitions in turn; counts what was acknowledged."""

    producer: Producer
    topic: str
    messages: list[bytes]
    acknowledged: list[Counter[int]] = field(default_factory=lambda: [Counter() for _ in range(PARTITIONS)])
    failures: list[KafkaError] = field(default_factory=list)
    sent: int = 0

    def send(self, count: int) -> None:
        for _ in range(count):
            partition, number = self.sent % PARTITIONS, self.sent // PARTITIONS % len(self.messages)
            while True:
                try:
                    self.producer.produce(
                        self.topic,
                        self.messages[number],
                        partition=partition,
                        on_delivery=lambda error, _, p=partition, n=number: self._delivered(error, p, n),
                    )
                    break
                except BufferError:
                    self.producer.poll(0.05)
            self.sent += 1
        self.producer.poll(0)

    def _delivered(self, error: KafkaError | None, partition: int, number: int) -> None:
        if error is not None:
            self.failures.append(error)
        else:
            self.acknowledged[partition][number] += 1


@dataclass
class Result:
    looks: list[Look]
    stopped_s: float
    """When the producer stopped."""
    drained_s: float
    messages: int
    limit_bytes: int
    idle_s: float
    violations: list[str] = field(default_factory=list)

    def lines(self) -> Iterator[tuple[str, str]]:
        yield "producer faster than the worker", f"{self.stopped_s / 60:.1f} minutes, {self.messages:,} messages"
        yield "lag when it stopped", f"{max(look.lag for look in self.looks):,} messages"
        yield "lag drained after", f"{self.drained_s - self.stopped_s:.0f} s"
        quarters = " / ".join(as_size(median) for median in self.memory())
        yield "memory, median of each quarter of the overload", quarters
        yield "peak memory / memory by `sfd-stream size`", f"{as_size(self.peak())} / {as_size(self.limit_bytes)}"
        yield "longest time between two turns of the loop", f"{self.idle_s:.1f} s"
        yield "violations", "; ".join(self.violations) or "none"

    def peak(self) -> int:
        return max(look.rss_bytes for look in self.looks)

    def memory(self) -> list[float]:
        """The median of each quarter of the overload."""
        during = [look.rss_bytes for look in self.looks if look.at_s <= self.stopped_s]
        size = len(during) // 4
        return [statistics.median(during[place * size : (place + 1) * size]) for place in range(4)]


def overloaded(broker: Broker, folder: Path, minutes: float) -> Result:
    topic, snapshots = broker.create_topic(partitions=PARTITIONS), broker.create_topic()
    changes = {
        "sketch": {"d": D, "ell": ELL, "buffer_max_bytes": 200_000},
        "checkpoint": {"every_s": 5.0, "every_rows": 1_000_000},
        "snapshot": {"topic": snapshots, "every_s": 10.0, "inline_max_bytes": 1_000},
        "worker": {"batch_records": 1_000},
        "log": {"level": "info"},
    }
    run = Run(broker, topic, folder, (folder / "store").as_uri(), changes=changes)
    rng = np.random.default_rng(29)
    load = Load(_producer(broker), topic, [rows_message(rng) for _ in range(MESSAGES)])
    try:
        observed = Observed(run.start())
        result = _run(run, observed, load, 60 * minutes)
        observed.end()
        result.violations += _violations(run, load, result)
    finally:
        run.close()
    return result


def _producer(broker: Broker) -> Producer:
    return Producer({"bootstrap.servers": broker.bootstrap, "enable.idempotence": True, "linger.ms": 20})


def _run(run: Run, observed: Observed, load: Load, length_s: float) -> Result:
    load.send(20 * MORE)
    while observed.first_row_s is None:
        assert observed.worker.alive, observed.worker.log()[-2_000:]
        time.sleep(0.1)
    began_s, applied, looks = time.monotonic(), 0, list[Look]()
    stopped_s: float | None = None
    while stopped_s is None or sum(one["committed"] or 0 for one in observed.partitions) < load.sent:
        time.sleep(LOOK_EVERY_S)
        assert observed.worker.alive, observed.worker.log()[-2_000:]
        now_s, before = time.monotonic() - began_s, applied
        applied = sum(one["applied"] or 0 for one in observed.partitions)
        looks.append(Look(now_s, load.sent - applied, _rss_bytes(observed.worker.pid)))
        if now_s < length_s:
            load.send(int(FASTER * (applied - before)) + MORE)
        elif stopped_s is None:
            stopped_s = now_s
            assert load.producer.flush(60) == 0
        assert now_s < length_s + DRAINS_WITHIN_S, f"lag {looks[-1].lag} after {DRAINS_WITHIN_S:.0f} s"
    limit = pod_bytes(shape_of(run.settings(), 0).memory_bytes(), PARTITIONS, 2)
    return Result(looks, stopped_s, time.monotonic() - began_s, load.sent, limit, observed.idle_s)


def _rss_bytes(pid: int) -> int:
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return int(fields[21]) * 4096


def _violations(run: Run, load: Load, result: Result) -> list[str]:
    found = [f"not delivered: {error}" for error in load.failures[:3]]
    lags = [look.lag for look in result.looks if look.at_s <= result.stopped_s]
    if lags[-1] < 2 * lags[len(lags) // 4]:
        found.append(f"the producer was not faster than the worker: lag {lags[len(lags) // 4]} and then {lags[-1]}")
    if result.peak() > result.limit_bytes:
        found.append(f"peak memory {as_size(result.peak())}, above {as_size(result.limit_bytes)}")
    _, second, _, last = result.memory()
    if result.stopped_s > GROWTH_AFTER_S and last > second + GROWTH_MAX_BYTES:
        found.append(f"memory grew from {as_size(second)} to {as_size(last)} during the overload")
    for partition, acknowledged in enumerate(load.acknowledged):
        found += _lost(run.state(partition), [load.messages[n] for n in acknowledged], list(acknowledged.values()))
    return found


def _lost(state: Any, messages: list[bytes], times: list[int]) -> list[str]:
    """Values have few bits, so their sums are exact in any order."""
    sums, squares, nnz = np.zeros(D), 0.0, 0
    for value, count in zip(messages, times, strict=True):
        fields = msgpack.unpackb(value)
        dense = np.zeros((ROWS, COLUMNS))
        rows = np.repeat(np.arange(ROWS), NNZ)
        np.add.at(dense, (rows, np.frombuffer(fields["i"], "<u4")), np.frombuffer(fields["v"], "<f8"))
        sums[:COLUMNS] += count * dense.sum(axis=0)
        squares += count * float(np.sum(dense**2))
        nnz += count * int(np.count_nonzero(dense))
    sketch = state.sketch()
    found, wanted = (sketch.rows, sketch.nnz, sketch.squared_frobenius), (ROWS * sum(times), nnz, squares)
    wrong = [] if found == wanted else [f"rows, non-zeros, squared norm {found}, not {wanted}"]
    return wrong if np.array_equal(sketch.column_sums, sums) else [*wrong, "column sums differ"]


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.torture.overload", description="Faster than the worker.")
    parser.add_argument("--minutes", type=float, default=10.0, help="How long the producer is faster.")
    given = parser.parse_args()
    with start_broker(private=True) as broker, tempfile.TemporaryDirectory() as folder:
        result = overloaded(broker, Path(folder), given.minutes)
    print("| | |\n|---|---|")
    for name, value in result.lines():
        print(f"| {name} | {value} |")
    return 1 if result.violations else 0


if __name__ == "__main__":
    sys.exit(main())
