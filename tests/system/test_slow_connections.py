"""A thousand slow connections to the status port: the worker's loop goes on turning, and every row is counted."""

from __future__ import annotations

import re
import statistics
import time
import urllib.request
from urllib.parse import urlparse

import pytest

from benchmarks.watching import connected
from tests.support.kafka import Broker
from tests.system.conftest import MakeRun
from tests.system.runs import Rows, WorkerProcess, wait_until

pytestmark = pytest.mark.slow

CONNECTIONS = 1_000
IDLE_MAX_S = 5.0
"""Far above what a loaded machine needs (some 0.1 s), far below what health calls stuck (60 s)."""


def url_of(worker: WorkerProcess) -> str:
    wait_until(lambda: worker.values("url"), "status page")
    found: str = worker.values("url")[0]
    return found


def idle_s(url: str) -> float:
    with urllib.request.urlopen(f"{url}metrics", timeout=30) as answer:  # noqa: S310 - our own worker
        found = re.search(rb"^sfd_loop_idle_seconds(?:{.*})? (\S+)$", answer.read(), re.MULTILINE)
    assert found is not None
    return float(found[1])


def test_a_thousand_slow_connections_do_not_stop_the_loop(kafka: Broker, make_run: MakeRun) -> None:
    rows, topic = Rows.random(40_000, partitions=2), kafka.create_topic(partitions=2)
    run = make_run(kafka, topic)
    worker = run.start()
    url, idle = url_of(worker), list[float]()
    where = urlparse(url)
    with connected((str(where.hostname), int(where.port or 0)), CONNECTIONS) as looks:
        wait_until(lambda: looks and looks[-1] >= 0.95 * CONNECTIONS, f"{CONNECTIONS} open connections")
        rows.produce(kafka, topic)
        ends = rows.ends()
        deadline = time.monotonic() + 120
        while [run.durable_offset(partition) for partition in (0, 1)] != ends:
            assert time.monotonic() < deadline, worker.log()[-2_000:]
            idle.append(idle_s(url))
            time.sleep(0.1)
        idle.append(idle_s(url))
        assert statistics.median(looks[-5:]) >= 0.95 * CONNECTIONS
    assert max(idle) < IDLE_MAX_S
    assert [run.state(partition).rows for partition in (0, 1)] == [20_000, 20_000]
