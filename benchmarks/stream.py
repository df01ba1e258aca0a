"""How much of the in-memory rate survives the way from a topic to a checkpointed sketch? On a real Kafka, in one run.

    python -m benchmarks.stream [--rows 2400000] [--long] [--json FILE]

The yardstick is `SparseFrequentDirections.partial_fit` on the same rows, in the same run, on the same cores. Each way
of writing rows (packed, blocks of 100, friendly lists) is read by one worker process with disk checkpoints; its clock
runs from the first record to the last commit. Then the same with a store that takes 200 ms for every call, and with
--long ten million short rows, to see that memory stays flat. With --json the figures are added to that file, and
`python -m benchmarks.sketch --json FILE --no-run --figures` pastes them.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import yaml
from confluent_kafka import Producer

from sfd_stream import SparseFrequentDirections, paper_synthetic
from sfd_stream.wire.rows.encode import encode_rows
from tests.support.kafka import start_broker

D, ELL, Z = 1_000, 50, 100
GOALS = {"packed": (0.6, 0.8), "blocks": (0.9, 0.9), "list": (0.3, 0.3)}
CHUNK = 10_000
LATENCY_MS = 200
LONG_ROWS, LONG_Z, LONG_BLOCK = 10_000_000, 10, 1_000
GROWTH_MAX = 1.1

Run = dict[str, Any]


def in_memory_rate(rows: int) -> float:
    """Rows a second by partial_fit alone, one BLAS thread, in chunks as a poll would bring them."""
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


def fill(bootstrap: str, topic: str, messages: list[bytes], times: int, partition: int = 0) -> None:
    """The same rows again and again: encoding is not what is measured."""
    producer = Producer({"bootstrap.servers": bootstrap, "linger.ms": 50, "queue.buffering.max.kbytes": 200_000})
    for _ in range(times):
        for message in messages:
            while True:
                try:
                    producer.produce(topic, message, partition=partition)
                    break
                except BufferError:
                    producer.poll(0.05)
        producer.poll(0)
    if producer.flush(300):
        raise SystemExit("the broker did not take all rows within five minutes")


def messages_of(form: str, z: int = Z, block: int = 100) -> list[bytes]:
    chunk = paper_synthetic(CHUNK, D, z, seed=0)
    return list(encode_rows(chunk, packed=form != "list", rows_per_message=block if form == "blocks" else None))


def streamed(bootstrap: str, topic: str, latency_ms: int = 0) -> Run:
    """One worker in a process and a group of its own, to the end of the topic."""
    with tempfile.TemporaryDirectory() as folder:
        settings = {
            "kafka": {"bootstrap.servers": bootstrap, "group.id": Path(folder).name},
            "input": {"topic": topic},
            "sketch": {"d": D, "ell": ELL},
            "checkpoint": {"url": Path(folder, "checkpoints").as_uri()},
            "http": {"port": 0},
        }
        path = Path(folder, "settings.yaml")
        path.write_text(yaml.safe_dump(settings), encoding="utf-8")
        run: Run = json.loads(child("-m", "benchmarks.stream_worker", str(path), str(latency_ms)).splitlines()[-1])
    return {**run, "rate": run["rows"] / run["seconds"]}


def child(*arguments: str) -> str:
    environment = {**os.environ, "OPENBLAS_NUM_THREADS": "1"}
    done = subprocess.run([sys.executable, *arguments], capture_output=True, text=True, check=False, env=environment)
    if done.returncode:
        raise SystemExit(done.stderr[-4000:])
    return done.stdout


def rates(broker: Any, rows: int, rounds: int) -> dict[str, Any]:
    """The best of some turns: in memory, each way of writing rows, and packed rows with a slow store."""
    found: dict[str, Any] = {}
    topics = {form: broker.create_topic(partitions=1) for form in GOALS}
    for form, topic in topics.items():
        fill(broker.bootstrap, topic, messages_of(form), (rows if form != "list" else rows // 4) // CHUNK)
    memory = []
    for _ in range(rounds):
        code = f"from benchmarks.stream import in_memory_rate; print(in_memory_rate({rows}))"
        memory.append(float(child("-c", code)))
        runs = {form: streamed(broker.bootstrap, topic) for form, topic in topics.items()}
        runs["slow store"] = streamed(broker.bootstrap, topics["packed"], LATENCY_MS)
        for name, run in runs.items():
            found[name] = max(run, found.get(name, run), key=lambda one: one["rate"])
    return {"in_memory": max(memory), **found}


def long_run(broker: Any) -> Run:
    topic = broker.create_topic(partitions=1)
    fill(broker.bootstrap, topic, messages_of("blocks", LONG_Z, LONG_BLOCK), LONG_ROWS // CHUNK)
    return streamed(broker.bootstrap, topic)


def show(found: dict[str, Any]) -> None:
    best = found["in_memory"]
    print(f"in memory: {best:,.0f} rows/s ({1e6 / best:.2f} us a row); rows of {Z} of {D:,} columns, ell = {ELL}")
    for form, (floor, goal) in GOALS.items():
        share = found[form]["rate"] / best
        word = "goal reached" if share >= goal else "floor reached" if share >= floor else "below the floor"
        print(f"{form:7} {found[form]['rate']:9,.0f} rows/s = {share:.2f} of it (floor {floor}, goal {goal}: {word})")
        for name, spent in sorted(found[form]["us_per_row"].items(), key=lambda item: -item[1]):
            print(f"          {spent:6.2f} us a row  {name}")
    slow, fast = found["slow store"], found["packed"]
    print(
        f"a store of {LATENCY_MS} ms a call: {slow['rate'] / fast['rate']:.2f} of the rate without; "
        f"the loop's turns p99 {slow['turn_ms']['p99']:.0f} ms, longest {slow['turn_ms']['longest']:.0f} ms "
        f"(without: {fast['turn_ms']['p99']:.0f} and {fast['turn_ms']['longest']:.0f} ms)"
    )
    if "long" in found:
        early, late = found["long"]["largest_kib"].values()
        word = "flat" if late <= GROWTH_MAX * early else "NOT flat"
        print(
            f"{found['long']['rows']:,} rows of {LONG_Z} non-zeros: {found['long']['rate']:,.0f} rows/s; the process "
            f"had {early / 1024:.0f} MB after a tenth and {late / 1024:.0f} MB at the end: {word}"
        )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, default=2_400_000)
    parser.add_argument("--rounds", type=int, default=2)
    parser.add_argument(
        "--long", action="store_true", help="also ten million rows (some 1.3 GB in the broker's folder)"
    )
    parser.add_argument("--json", type=Path)
    given = parser.parse_args()
    with start_broker() as broker:
        found = rates(broker, given.rows, given.rounds)
        if given.long:
            found["long"] = long_run(broker)
    show(found)
    if given.json:
        known = json.loads(given.json.read_text(encoding="utf-8")) if given.json.exists() else {}
        known["stream"] = found
        given.json.write_text(json.dumps(known, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
