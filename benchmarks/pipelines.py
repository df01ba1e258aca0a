"""Compares a worker with simple pipelines written by hand, on the same topics of a real Kafka, in turns in one run.

    python -m benchmarks.pipelines [--rounds 3] [--rows-share 1.0] [--paste]

- Packed rows of 10: a bare loop that consumes and reads error, value, partition and offset of each message is the most
  that any consumer in Python can do.
- Names, rows of 10: msgpack's `unpackb` and scikit-learn's FeatureHasher, then IncrementalPCA, gensim's LSI or a
  TruncatedSVD of each batch. These keep no offsets, no checkpoints and no bound.
- Two workers on a topic of four partitions against one, each pinned to a core of its own (on two cores the broker
  shares them: its CPU time is printed).

The clock runs from the first record to the last: for a worker to its last commit, for the others to the end of the last
update. Each figure is the best of the rounds. `--paste` writes the tables into docs/performance.md.
"""

from __future__ import annotations

import argparse
import gc
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import msgpack
import yaml
from confluent_kafka import Consumer, TopicPartition
from confluent_kafka.admin import AdminClient
from rich.console import Console
from threadpoolctl import threadpool_limits

from benchmarks.compare import NAMES_D, Bench, Line, _worker, run, say, spelled
from benchmarks.stream import CHUNK, ELL, D, fill
from benchmarks.tables import Table, paste
from tests.support.trees import HERE

PAGE = Path(__file__).parents[1] / "docs" / "performance.md"
BATCH, LSI_BATCH = 1_000, 5_000
PACKED_ROWS, NAMES_ROWS, SHARED_ROWS, PARTITIONS = 600_000, 200_000, 1_200_000, 4
SLOW_SHARE = 10
"""The pipelines by hand read this many times fewer rows: their rate does not depend on the number."""


# Pipelines written by hand: each takes batches of messages


def bare() -> Callable[[list[Any]], None]:
    gc.freeze()  # the collector does not visit what the benchmark has imported

    def take(messages: list[Any]) -> None:
        for message in messages:
            message.error(), message.value(), message.partition(), message.offset()

    return take


def _hashed() -> Callable[[list[Any]], Any]:
    from sklearn.feature_extraction import FeatureHasher

    hasher = FeatureHasher(n_features=NAMES_D, input_type="pair")

    def rows(messages: list[Any]) -> Any:
        found = [msgpack.unpackb(message.value()) for message in messages]
        return hasher.transform(zip(row["i"], row["v"], strict=True) for row in found)

    return rows


def incremental_pca() -> Callable[[list[Any]], None]:
    from sklearn.decomposition import IncrementalPCA

    rows, model = _hashed(), IncrementalPCA(n_components=ELL)

    def take(messages: list[Any]) -> None:
        model.partial_fit(rows(messages).toarray())

    return take


def gensim_lsi() -> Callable[[list[Any]], None]:
    from gensim.matutils import Sparse2Corpus
    from gensim.models import LsiModel

    rows = _hashed()
    model = LsiModel(id2word={c: str(c) for c in range(NAMES_D)}, num_topics=ELL, chunksize=LSI_BATCH)

    def take(messages: list[Any]) -> None:
        model.add_documents(Sparse2Corpus(rows(messages).tocsc(), documents_columns=False))

    return take


def truncated_svd() -> Callable[[list[Any]], None]:
    """A new SVD of each batch: it forgets all batches before."""
    from sklearn.decomposition import TruncatedSVD

    rows = _hashed()

    def take(messages: list[Any]) -> None:
        TruncatedSVD(n_components=ELL).fit(rows(messages))

    return take


BY_HAND: dict[str, Callable[[], Callable[[list[Any]], None]]] = {
    "IncrementalPCA": incremental_pca,
    "gensim LSI": gensim_lsi,
    "TruncatedSVD of each batch": truncated_svd,
}
LOOPS = {"bare loop": bare, **BY_HAND}


def consumed(bootstrap: str, topic: str, end: int, size: int) -> Iterator[list[Any]]:
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": "by-hand", "enable.auto.commit": False})
    consumer.assign([TopicPartition(topic, 0, 0)])
    records = 0
    while records < end:
        messages = consumer.consume(min(size, end - records), 1.0)
        records += len(messages)
        if messages:
            yield messages
    consumer.close()


def loop(name: str, bootstrap: str, topic: str, end: str) -> None:
    """In a process of its own: prints the seconds from the first record to the end of the last update."""
    take = LOOPS[name]()
    began = 0.0
    with threadpool_limits(1):
        for messages in consumed(bootstrap, topic, int(end), LSI_BATCH if name == "gensim LSI" else BATCH):
            began = began or time.perf_counter()
            take(messages)
    print(json.dumps(time.perf_counter() - began))


# Runs


def rate_of_loop(name: str, spelling: str, rows: int, bench: Bench) -> float:
    topic, end = bench.topic(spelling, 10, rows)
    command = [sys.executable, "-m", "benchmarks.pipelines", "--loop", name, bench.broker.bootstrap, topic, str(end)]
    done = subprocess.run(command, capture_output=True, text=True, check=False, cwd=HERE)
    if done.returncode:
        raise SystemExit(done.stderr[-3000:])
    return end / float(done.stdout.splitlines()[-1])


def rate_of_worker(spelling: str, rows: int, bench: Bench) -> float:
    _, end = bench.topic(spelling, 10, rows)
    return end / run(Line("worker", partial(_worker, spelling, 10, rows)), HERE, bench).seconds


def rates(bench: Bench, rounds: int) -> dict[str, float]:
    ways: dict[str, Callable[[], float]] = {
        "packed: bare loop": partial(rate_of_loop, "bare loop", "packed", PACKED_ROWS, bench),
        "packed: worker": partial(rate_of_worker, "packed", PACKED_ROWS, bench),
        "names: worker": partial(rate_of_worker, "names", NAMES_ROWS, bench),
    }
    for name in BY_HAND:
        ways[f"names: {name}"] = partial(rate_of_loop, name, "names", NAMES_ROWS // SLOW_SHARE, bench)
    best = dict.fromkeys(ways, 0.0)
    for number in range(rounds):
        for name, way in ways.items():
            best[name] = max(best[name], way())
            say(f"round {number + 1} of {rounds}: {name}: {best[name]:,.0f} rows a second at best")
    return best


# Two workers against one


def group_seconds(bench: Bench, workers: int, rows: int) -> tuple[float, float]:
    """Seconds from the first record to the last commit, and the broker's CPU seconds in that time.

    The workers join while the topic is empty, and are stopped (SIGSTOP) while it is filled: neither the rebalance nor
    the producer is measured.
    """
    bootstrap, topic = bench.broker.bootstrap, bench.broker.create_topic(partitions=PARTITIONS)
    with TemporaryDirectory(dir=bench.folder) as folder:
        settings = {
            "kafka": {"bootstrap.servers": bootstrap, "group.id": topic, "log_level": 3},
            "input": {"topic": topic},
            "sketch": {"d": D, "ell": ELL},
            "checkpoint": {"url": Path(folder, "checkpoints").as_uri(), "every_s": 1},
            "http": {"port": 0},
            "log": {"level": "warning"},
        }
        path = Path(folder, "settings.yaml")
        path.write_text(yaml.safe_dump(settings), encoding="utf-8")
        command = [sys.executable, "-m", "sfd_stream", "run", "--config", str(path)]
        started = [subprocess.Popen(["taskset", "-c", str(core), *command], cwd=HERE) for core in range(workers)]
        try:
            _await(lambda: _shares(bootstrap, topic) == [PARTITIONS // workers] * workers, "every worker has its share")
            for process in started:
                process.send_signal(signal.SIGSTOP)
            for partition in range(PARTITIONS):
                fill(bootstrap, topic, spelled("packed", 100), rows // PARTITIONS // CHUNK, partition=partition)
            for process in started:
                process.send_signal(signal.SIGCONT)
            began_s, cpu_s = time.perf_counter(), cpu_of(bench.broker.pid)
            _await(lambda: _committed(bootstrap, topic) >= rows, "all rows are committed")
            return time.perf_counter() - began_s, cpu_of(bench.broker.pid) - cpu_s
        finally:
            for process in started:
                process.terminate()
            for process in started:
                process.wait(60)


def _await(done: Callable[[], bool], what: str) -> None:
    deadline = time.monotonic() + 300
    while not done():
        if time.monotonic() > deadline:
            raise SystemExit(f"not within five minutes: {what}")
        time.sleep(0.05)


def _shares(bootstrap: str, group: str) -> list[int]:
    """How many partitions each member of the group has."""
    admin = AdminClient({"bootstrap.servers": bootstrap})  # it has to live until the answer is there
    found = admin.describe_consumer_groups([group], request_timeout=10)[group].result(20)
    return [len(member.assignment.topic_partitions) for member in found.members]


def _committed(bootstrap: str, topic: str) -> int:
    asker = Consumer({"bootstrap.servers": bootstrap, "group.id": topic})
    found = asker.committed([TopicPartition(topic, number) for number in range(PARTITIONS)], timeout=30)
    asker.close()
    return sum(max(position.offset, 0) for position in found)


def two_over_one(bench: Bench, rounds: int) -> tuple[float, float]:
    """How many times as fast two workers are as one, and the share of a core that the broker took beside the two."""
    rows = int(SHARED_ROWS * bench.rows_share) // (PARTITIONS * CHUNK) * PARTITIONS * CHUNK
    best, broker_share = {1: float("inf"), 2: float("inf")}, 0.0
    for _ in range(rounds):
        for workers in (1, 2):
            taken, broker_cpu_s = group_seconds(bench, workers, rows)
            broker_share = broker_cpu_s / taken
            best[workers] = min(best[workers], taken)
            say(f"{workers} workers: {rows / best[workers]:,.0f} rows a second at best")
    return best[1] / best[2], broker_share


def cpu_of(pid: int) -> float:
    """Seconds of CPU time that a process has used."""
    fields = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8").rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


# Tables


def tables(best: dict[str, float], two_over_one: float, broker_share: float) -> list[Table]:
    hand = max(BY_HAND, key=lambda name: best[f"names: {name}"])
    packed = best["packed: worker"] / best["packed: bare loop"]
    names = best["names: worker"] / best[f"names: {hand}"]
    two = f"packed, rows of 100: two workers over one, each on its core, the broker on {broker_share:.2f} cores"
    rows = [[name, f"{rate:,.0f}"] for name, rate in best.items()]
    ratios = [
        ["packed, rows of 10: worker over the bare loop", f"**{packed:.2f}**", "0.4 / 0.6"],
        [f"names, rows of 10: worker over {hand}, the fastest by hand", f"**{names:.1f}**", "5 / 15"],
        [two, f"**{two_over_one:.2f}**", "1.4 / 1.8"],
    ]
    return [
        Table("pipelines", "rows a second", ["", "rows a second"], rows),
        Table("pipeline-ratios", "ratios of one run", ["", "ratio", "floor / goal"], ratios),
    ]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--rows-share", type=float, default=1.0)
    parser.add_argument("--paste", action="store_true", help="write the tables into docs/performance.md")
    parser.add_argument("--loop", nargs=4, help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.loop:
        loop(*given.loop)
        return
    with ExitStack() as stack:
        folder = Path(stack.enter_context(TemporaryDirectory(prefix="sfd-pipelines-")))
        bench = Bench(folder, stack, given.rows_share)
        made = tables(rates(bench, given.rounds), *two_over_one(bench, given.rounds))
    for table in made:
        table.show(Console(width=None if sys.stdout.isatty() else 150))
    print(f"{os.cpu_count()} cores; load average {os.getloadavg()[0]:.1f} at the end")
    if given.paste:
        paste([PAGE], made)


if __name__ == "__main__":
    main()
