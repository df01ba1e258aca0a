"""How soon has a row its score? `python -m benchmarks.score_latency [--seconds N] [--delivery D] [--paste]`

One `sfd-stream score` on a real Kafka, one row a message, every score written, in transactions unless told otherwise. A
backlog gives the rate at which it scores; then rows come at half that rate for N seconds, and each row's latency is the
time from its timestamp, set by the producer, until a reader of committed records has its score. All of it shares this
machine: producer, broker, scorer, reader. `--paste` writes the table into docs/experiments.md.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import yaml
from confluent_kafka import Consumer, Producer
from rich.console import Console

from benchmarks.stream import fill
from benchmarks.tables import Table, paste
from sfd_stream import encode_rows, paper_synthetic
from tests.support.kafka import Broker, start_broker

PAGE = Path(__file__).parents[1] / "docs" / "experiments.md"
D, NNZ, ELL, SKETCHED, BACKLOG = 10_000, 30, 50, 2_000, 40_000
LIMIT_S = 1.0
PATIENCE_S = 120.0


def settings_of(broker: Broker, topic: str, folder: Path, delivery: str) -> dict[str, Any]:
    return {
        "kafka": {"bootstrap.servers": broker.bootstrap, "group.id": topic},
        "input": {"topic": topic},
        "sketch": {"d": D, "ell": ELL},
        "checkpoint": {"url": (folder / "checkpoints").as_uri()},
        "snapshot": {"topic": f"{topic}-sketches"},
        "score": {"topic": f"{topic}-scores", "delivery": delivery},
        "http": {"port": 0},
    }


class Scores:
    """A reader of the score topic: when each score arrived, and the timestamp of its row."""

    def __init__(self, broker: Broker, topic: str) -> None:
        given = {"bootstrap.servers": broker.bootstrap, "group.id": f"{topic}-reader", "fetch.wait.max.ms": 10}
        self._consumer = Consumer({**given, "auto.offset.reset": "earliest", "isolation.level": "read_committed"})
        self._consumer.subscribe([topic])
        self.arrived_s: list[float] = []
        self.latencies_s: list[float] = []

    def read(self) -> None:
        """What is there by now."""
        for message in self._consumer.consume(1_000, 0.0):
            if message.error() is None:
                now_s = time.time()
                self.arrived_s.append(now_s)
                self.latencies_s.append(now_s - message.timestamp()[1] / 1e3)

    def await_(self, rows: int) -> None:
        deadline = time.monotonic() + PATIENCE_S
        while len(self.arrived_s) < rows:
            self.read()
            time.sleep(0.001)
            if time.monotonic() > deadline:
                raise SystemExit(f"only {len(self.arrived_s):,} of {rows:,} scores within {PATIENCE_S:.0f} s")

    def close(self) -> None:
        self._consumer.close()


@contextmanager
def scorer(path: Path) -> Iterator[None]:
    command = [sys.executable, "-m", "sfd_stream.cli", "score", "--config", str(path)]
    with subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as process:
        try:
            yield
        finally:
            process.terminate()


def measured(broker: Broker, folder: Path, delivery: str, seconds: float) -> list[str]:
    topic = broker.create_topic(partitions=1)
    path = folder / "settings.yaml"
    path.write_text(yaml.safe_dump(settings_of(broker, topic, folder, delivery)), encoding="utf-8")
    messages = list(encode_rows(paper_synthetic(10_000, D, NNZ, seed=0)))
    fill(broker.bootstrap, topic, messages[:SKETCHED], 1)
    subprocess.run([sys.executable, "-m", "sfd_stream.cli", "run", "--until-end", "--config", str(path)], check=True)
    fill(broker.bootstrap, topic, messages, BACKLOG // len(messages))
    scores = Scores(broker, f"{topic}-scores")
    try:
        with scorer(path):
            scores.await_(SKETCHED + BACKLOG)
            rate = (len(scores.arrived_s) - 1) / (scores.arrived_s[-1] - scores.arrived_s[0])
            scores.latencies_s.clear()
            sent = paced(broker, topic, messages, rate / 2, seconds, scores)
            scores.await_(SKETCHED + BACKLOG + sent)
    finally:
        scores.close()
    p50, p99, most = np.quantile(scores.latencies_s, [0.5, 0.99, 1.0])
    load = os.getloadavg()[0]
    return [delivery, f"{rate:,.0f}", f"{rate / 2:,.0f}", f"{p50:.2f}", f"{p99:.2f}", f"{most:.2f}", f"{load:.0f}"]


def paced(broker: Broker, topic: str, messages: Sequence[bytes], rate: float, seconds: float, scores: Scores) -> int:
    """Sends rows at this rate, and reads scores meanwhile. How many were sent."""
    producer = Producer({"bootstrap.servers": broker.bootstrap, "linger.ms": 5})
    began_s, sent = time.monotonic(), 0
    while (passed_s := time.monotonic() - began_s) < seconds:
        while sent < passed_s * rate:
            producer.produce(topic, messages[sent % len(messages)], partition=0)
            sent += 1
        producer.poll(0)
        scores.read()
        time.sleep(0.001)
    if producer.flush(60):
        raise SystemExit("the broker did not take all rows within a minute")
    return sent


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=60.0, help="at half load")
    parser.add_argument("--delivery", choices=["transactional", "at-least-once"], default="transactional")
    parser.add_argument("--paste", action="store_true", help="write the table into docs/experiments.md")
    given = parser.parse_args()
    with start_broker() as broker, tempfile.TemporaryDirectory() as folder:
        row = measured(broker, Path(folder), given.delivery, given.seconds)
    columns = [
        "delivery",
        "rows / s, backlog",
        "rows / s, half load",
        "p50, s",
        "p99, s",
        "most, s",
        "load of the machine",
    ]
    made = Table("scores-latency", "From a row to its score", columns, [row])
    made.show(Console(width=140))
    if given.paste:
        paste([PAGE], [made])
    return int(float(row[4]) > LIMIT_S)


if __name__ == "__main__":
    sys.exit(main())
