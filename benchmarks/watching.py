"""Does watching slow a worker down? Rows a second of one worker on a real Kafka, alone and with 1,000 connections open.

    python -m benchmarks.watching [--rows N] [--paste]

The rows wait in the topic; the worker reads them to the end, once for each setting: nobody connected; 1,000 open
connections, of which a third never end their request, a third never read their answer and a third are idle; and the
same with a browser's worth of requests (20 a second for the status) beside. The pace is the worker's own, by its log,
and counts only if the kernel says that the connections were open. `--paste` writes the table into docs/experiments.md.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import selectors
import socket
import subprocess
import sys
import tempfile
import threading
import time
import urllib.parse
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import yaml
from rich.console import Console

from benchmarks.tables import Table, paste
from sfd_stream.wire.rows.encode import encode_row
from tests.support.kafka import Broker, start_broker

PAGE = Path(__file__).parents[1] / "docs" / "experiments.md"
CONNECTIONS = 1_000
OPEN_SHARE = 0.95
"""Of the connections, open at half of all looks: those that the worker has closed are opened again soon."""
COLUMNS, NNZ = 2_000, 30


def fill(broker: Broker, rows: int) -> str:
    topic, rng = broker.create_topic(partitions=2), np.random.default_rng(1)
    for partition in (0, 1):
        columns = np.sort(rng.integers(0, COLUMNS // NNZ, (rows // 2, NNZ)) + np.arange(NNZ) * (COLUMNS // NNZ), axis=1)
        values = rng.normal(size=(rows // 2, NNZ))
        broker.produce(topic, [encode_row(c, v) for c, v in zip(columns, values, strict=True)], partition=partition)
    return topic


def established(port: int) -> int:
    """Connections to a local port, open on both sides, as the kernel counts them."""
    lines = Path("/proc/net/tcp").read_text().splitlines()[1:]
    fields = [line.split()[1:4] for line in lines]
    return sum(state == "01" and int(local.split(":")[1], 16) == port for local, _, state in fields)


@contextlib.contextmanager
def connected(address: tuple[str, int], count: int) -> Iterator[list[int]]:
    """Connections that are opened again when the worker closes them; yields how many were open, look by look."""
    over = threading.Event()
    opened: list[socket.socket] = []
    looks: list[int] = []

    def open_one(number: int) -> socket.socket:
        client = socket.create_connection(address, timeout=5)
        if number % 3 == 1:
            client.sendall(b"GET /metrics HTTP/1.1\r\nHost: ")
        if number % 3 == 2:
            client.sendall(b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n" * 5)
        client.setblocking(False)
        return client

    def keep() -> None:
        # The worker has ended; if it was anything else, the looks are too few or tell.
        with selectors.DefaultSelector() as selector, contextlib.suppress(OSError):
            for number in range(count):
                opened.append(open_one(number))
                if number % 3 != 2:  # those that never read are not looked at
                    selector.register(opened[-1], selectors.EVENT_READ, number)
            while not over.wait(0.2):
                looks.append(established(address[1]))
                for key, _ in selector.select(0):
                    selector.unregister(key.fileobj)
                    opened[key.data].close()
                    opened[key.data] = open_one(key.data)
                    selector.register(opened[key.data], selectors.EVENT_READ, key.data)

    thread = threading.Thread(target=keep)
    thread.start()
    try:
        yield looks
    finally:
        over.set()
        thread.join()
        for client in opened:
            client.close()


@contextlib.contextmanager
def asking(url: str, per_s: float) -> Iterator[list[float]]:
    """Requests beside; yields how long each took."""
    over, took = threading.Event(), list[float]()

    def ask() -> None:
        while per_s and not over.wait(1 / per_s):
            began = time.monotonic()
            with contextlib.suppress(OSError), urllib.request.urlopen(f"{url}status.json", timeout=10) as answer:  # noqa: S310
                answer.read()
                took.append(time.monotonic() - began)

    thread = threading.Thread(target=ask)
    thread.start()
    try:
        yield took
    finally:
        over.set()
        thread.join()


def one_run(broker: Broker, topic: str, folder: Path, *, connections: int, per_s: float) -> dict[str, Any]:
    name = f"{connections}-{per_s:g}"
    settings = {
        "kafka": {"bootstrap.servers": broker.bootstrap, "group.id": f"bench-{time.time_ns()}"},
        "input": {"topic": topic},
        "sketch": {"d": COLUMNS, "ell": 50},
        "checkpoint": {"url": (folder / name).as_uri()},
        "http": {"port": 0},
        "log": {"format": "json"},
    }
    path = folder / f"{name}.yaml"
    path.write_text(yaml.safe_dump(settings))
    command = [sys.executable, "-m", "sfd_stream.cli", "run", "--config", str(path), "--until-end", "--json"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as worker:
        if worker.stderr is None or worker.stdout is None:
            raise SystemExit("no pipes")  # for the type checker: both were asked for
        url = next(json.loads(line)["url"] for line in worker.stderr if '"url"' in line)
        where = urllib.parse.urlparse(url)
        silent = threading.Thread(target=worker.stderr.read)
        silent.start()
        address = str(where.hostname), int(where.port or 0)
        with connected(address, connections) as looks, asking(url, per_s) as took:
            report = json.loads(worker.stdout.read())
        silent.join()
    found = int(np.median(looks)) if looks else 0
    if found < OPEN_SHARE * connections:
        raise SystemExit(f"only {found:,} of {connections:,} connections were open: raise ulimit -n, or --rows")
    median_ms = float(np.median(took)) * 1e3 if took else None
    total = report["total"]
    return {"rows": total["rows"], "rows_per_s": total["rows_per_s"], "open": found, "answer_ms": median_ms}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, default=800_000)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--paste", action="store_true", help="write the table into docs/experiments.md")
    given = parser.parse_args()
    rows = []
    with start_broker() as broker, tempfile.TemporaryDirectory() as folder:
        topic = fill(broker, given.rows)
        for words, connections, per_s in (
            ("nobody connected", 0, 0.0),
            (f"{CONNECTIONS:,} connections", CONNECTIONS, 0.0),
            (f"{CONNECTIONS:,} connections, 20 requests a second", CONNECTIONS, 20.0),
        ):
            runs = []
            for repeat in range(given.repeats):
                place = Path(folder, str(repeat))
                place.mkdir(exist_ok=True)
                runs.append(one_run(broker, topic, place, connections=connections, per_s=per_s))
            best = max(runs, key=lambda run: float(run["rows_per_s"]))
            if any(run["rows"] != given.rows for run in runs):
                raise SystemExit("rows were lost or doubled")
            answer = f"{best['answer_ms']:.0f} ms" if best["answer_ms"] is not None else ""
            rows.append([words, f"{best['open']:,}", f"{best['rows_per_s']:,.0f}", answer])
    title = f"{given.rows:,} rows of {NNZ} non-zeros in {COLUMNS:,} columns, best of {given.repeats}"
    made = Table("watching", title, ["", "open, as counted", "rows / s", "the status in"], rows)
    made.show(Console())
    if given.paste:
        paste([PAGE], [made])


if __name__ == "__main__":
    main()
