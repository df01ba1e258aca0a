"""What scoring costs a consumer: `python -m benchmarks.score_rate [--rows N] [--paste]`

Rows of a real Kafka topic, one a message. The bare loop consumes, decodes and projects them on k directions; the others
score them, with intervals, or are whole scorers (`sfd-stream score`), with state, offsets and transactions. Rates are
rows per second of CPU time of this process, with the threads of its Kafka clients; medians of some turns. `--paste`
writes the table into docs/experiments.md.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import tempfile
import time
import uuid
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import yaml
from confluent_kafka import Consumer, TopicPartition
from rich.console import Console
from threadpoolctl import threadpool_limits

from benchmarks.score_latency import ELL, NNZ, PAGE, SKETCHED, D, settings_of
from benchmarks.stream import fill
from benchmarks.tables import Table, paste
from sfd_stream import FixedColumns, SparseFrequentDirections, decode, encode_rows, paper_synthetic
from sfd_stream.cli.commands.score import consumer_of
from sfd_stream.config.model import Settings
from sfd_stream.sketch.rows import RowBlock
from tests.support.kafka import Broker, start_broker

TURNS = 3
POLL = 1_000
FLOORS = {"scored": 0.7, "scored, centred": 0.4}


def looped(broker: Broker, topic: str, rows: int, use: Callable[[RowBlock], Any]) -> float:
    """CPU seconds to consume and decode all rows, and to use them."""
    given = {"bootstrap.servers": broker.bootstrap, "group.id": uuid.uuid4().hex, "enable.auto.commit": False}
    consumer, columns, done = Consumer({**given, "log_level": 2}), FixedColumns(D), 0
    consumer.assign([TopicPartition(topic, 0, 0)])
    began = time.process_time()
    while done < rows:
        values = [message.value() or b"" for message in consumer.consume(POLL, 1.0)]
        done += len(values)
        if values:
            use(decode(values, columns).block)
    took = time.process_time() - began
    consumer.close()
    return took


def served(given: dict[str, Any], **score: Any) -> float:
    """CPU seconds of a scorer over the whole topic, in a new group."""
    name = uuid.uuid4().hex[:8]
    settings = Settings.model_validate({**given, "score": {**given["score"], "group": name, "topic": name, **score}})
    began = time.process_time()
    consumer_of(settings, until_end=True).run()
    return time.process_time() - began


def measured(broker: Broker, folder: Path, rows: int) -> list[str]:
    topic = broker.create_topic(partitions=1)
    given = settings_of(broker, topic, folder, "transactional")
    path = folder / "settings.yaml"
    path.write_text(yaml.safe_dump(given), encoding="utf-8")
    X = paper_synthetic(10_000, D, NNZ, seed=0)
    messages = list(encode_rows(X))
    fill(broker.bootstrap, topic, messages[:SKETCHED], 1)
    run = [sys.executable, "-m", "sfd_stream.cli", "run", "--until-end", "--config", str(path)]
    subprocess.run(run, check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    fill(broker.bootstrap, topic, messages, (rows - SKETCHED) // len(messages))
    rows = SKETCHED + (rows - SKETCHED) // len(messages) * len(messages)
    sketch = SparseFrequentDirections(ell=ELL).fit(X[:SKETCHED]).sketch()
    around_zero, around_mean = sketch.scorer(centred=False), sketch.scorer()
    V, rare = np.ascontiguousarray(around_zero.components.T), {"residual_over_mean_min": 1e9}
    variants: dict[str, Callable[[], float]] = {
        "project": lambda: looped(broker, topic, rows, lambda block: block.csr() @ V),
        "scored": lambda: looped(broker, topic, rows, around_zero.score),
        "scored, centred": lambda: looped(broker, topic, rows, around_mean.score),
        "scorer, extreme rows only": lambda: served(given, when=rare, centred=False),
        "scorer, extreme rows only, centred": lambda: served(given, when=rare),
        "scorer, every row written": lambda: served(given),
    }
    took: dict[str, list[float]] = {name: [] for name in variants}
    with threadpool_limits(1):
        for _ in range(TURNS):
            for name, once in variants.items():
                took[name].append(once())
    rates = {name: rows / float(np.median(seconds)) for name, seconds in took.items()}
    bare = rates.pop("project")
    return [f"{bare:,.0f}", *(f"{rate / bare:.2f}" for rate in rates.values())]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, default=122_000)
    parser.add_argument("--paste", action="store_true", help="write the table into docs/experiments.md")
    given = parser.parse_args()
    with start_broker() as broker, tempfile.TemporaryDirectory() as folder:
        row = measured(broker, Path(folder), given.rows)
    columns = [
        "consume, decode, project, rows / CPU s",
        *FLOORS,
        "scorer, extreme rows only",
        "scorer, extreme rows only, centred",
        "scorer, every row written",
    ]
    made = Table("scores-consumer", "Rate of a scorer, as a share of a bare loop", columns, [row])
    made.show(Console(width=160))
    if given.paste:
        paste([PAGE], [made])
    return int(any(float(share) < floor for share, floor in zip(row[1:], FLOORS.values(), strict=False)))


if __name__ == "__main__":
    sys.exit(main())
