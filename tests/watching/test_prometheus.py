"""A real Prometheus scrapes a real worker on a real Kafka: every query that is shipped answers, and faults are seen."""

from __future__ import annotations

import json
import shutil
import subprocess
import time
import urllib.parse
import urllib.request
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import yaml

from sfd_stream.wire.rows import encode_row
from tests.parts.kafka import Broker
from tests.parts.seaweed import free_ports
from tests.parts.tools import need
from tests.service.conftest import MakeRun, make_run, s3_server
from tests.service.runs import Run, WorkerProcess, wait_until
from tests.watching.shipped import ALERTS, RECORDING, panel_queries, rules

SCRAPE_S = 1
__all__ = ["make_run", "s3_server"]


@dataclass
class Prometheus:
    url: str

    def ask(self, query: str) -> list[dict[str, Any]]:
        asked = f"{self.url}/api/v1/query?{urllib.parse.urlencode({'query': query})}"
        with urllib.request.urlopen(asked, timeout=10) as answer:  # noqa: S310 - our own
            found: list[dict[str, Any]] = json.load(answer)["data"]["result"]
        return found

    def values(self, query: str) -> list[float]:
        return [float(one["value"][1]) for one in self.ask(query)]


def ready(url: str) -> bool:
    try:
        with urllib.request.urlopen(f"{url}/-/ready", timeout=2) as answer:  # noqa: S310 - our own
            return bool(answer.status == 200)
    except OSError:
        return False


@pytest.fixture
def scrape(tmp_path: Path) -> Iterator[Callable[[str], Prometheus]]:
    """A server with the shipped rules, on a worker's port."""
    program = need("prometheus")
    started: list[subprocess.Popen[bytes]] = []

    def start(target: str) -> Prometheus:
        folder = tmp_path / "prometheus"
        folder.mkdir()
        for path in (ALERTS, RECORDING):
            shutil.copy(path, folder)
        config = {
            "global": {"scrape_interval": f"{SCRAPE_S}s", "evaluation_interval": f"{SCRAPE_S}s"},
            "rule_files": ["*.yaml"],
            "scrape_configs": [{"job_name": "sfd", "static_configs": [{"targets": [target]}]}],
        }
        (folder / "prometheus.yml").write_text(yaml.safe_dump(config))
        [port] = free_ports(1)
        command = [program, f"--config.file={folder}/prometheus.yml", f"--storage.tsdb.path={folder}/data"]
        with (folder / "log").open("wb") as log:
            command += [f"--web.listen-address=127.0.0.1:{port}", "--log.level=warn"]
            started.append(subprocess.Popen(command, stdout=log, stderr=log))
        wait_until(lambda: ready(f"http://127.0.0.1:{port}"), "Prometheus")
        return Prometheus(f"http://127.0.0.1:{port}")

    yield start
    for process in started:
        process.kill()
        process.wait()


def port_of(worker: WorkerProcess) -> str:
    wait_until(lambda: worker.events("watch it"), "the worker's port")
    return str(urllib.parse.urlparse(worker.events("watch it")[0]["url"]).netloc)


def produce(kafka: Broker, run: Run, rng: np.random.Generator, rows: int) -> None:
    for partition in (0, 1):
        columns = [np.sort(rng.choice(100, 8, replace=False)) for _ in range(rows)]
        values = [encode_row(row, rng.normal(size=8)) for row in columns]
        kafka.produce(run.topic, [*values, None, b"not rows"], partition=partition)


def settings_of(kafka: Broker) -> dict[str, dict[str, Any]]:
    return {
        "snapshot": {"topic": kafka.create_topic(), "every_s": 1.0},
        "dead_letters": {"topic": kafka.create_topic(), "max_share": 0.9},
    }


def until(condition: Callable[[], bool], what: Callable[[], str], deadline_s: float = 150.0) -> None:
    deadline = time.monotonic() + deadline_s
    while not condition():
        assert time.monotonic() < deadline, what()
        time.sleep(0.5)


def test_every_panels_and_rules_query_answers(
    kafka: Broker, make_run: MakeRun, scrape: Callable[[str], Prometheus]
) -> None:
    run = make_run(kafka, kafka.create_topic(partitions=2), changes=settings_of(kafka))
    rng = np.random.default_rng(1)
    produce(kafka, run, rng, 300)  # something to catch up with
    worker = run.start()
    prometheus = scrape(port_of(worker))
    missing = dict(panel_queries()) | {rule["record"]: rule["record"] for rule in rules(RECORDING)}

    def all_answer() -> bool:
        produce(kafka, run, rng, 300)
        for name in [name for name, query in missing.items() if prometheus.ask(query)]:
            del missing[name]
        return not missing

    until(all_answer, lambda: f"no answer from {sorted(missing)}")
    fed = prometheus.values("sum(sfd_end_offset)")
    until(lambda: prometheus.values("sum(sfd_lag_messages)") == [0.0], lambda: "a lag that stays")
    assert prometheus.values("sum(sfd_applied_offset)") >= fed
    assert worker.alive


def test_alerts_see_a_store_that_does_not_answer_and_messages_that_are_not_rows(
    kafka: Broker, make_run: MakeRun, scrape: Callable[[str], Prometheus]
) -> None:
    """The alerts' own queries, with their times and sizes cut down to a test's."""
    run = make_run(kafka, kafka.create_topic(partitions=2), changes=settings_of(kafka))
    worker, rng = run.start(slow_at="before-Put:600"), np.random.default_rng(1)
    prometheus = scrape(port_of(worker))
    sizes = {"> 10000": "> 10", "[15m]": "[20s]", "> 120": "> 30", "> 300": "> 3"}
    faults = ("SfdLagGrowing", "SfdPartitionStuck", "SfdCheckpointTooOld", "SfdDeadLetterShare")
    queries = {rule["alert"]: cut(rule["expr"], sizes) for rule in rules(ALERTS)}
    unseen = set(faults)

    def all_seen() -> bool:
        produce(kafka, run, rng, 400)
        unseen.difference_update([name for name in unseen if prometheus.ask(queries[name])])
        return not unseen

    until(all_seen, lambda: f"not seen: {unseen}")
    for name in queries.keys() - set(faults):
        assert not prometheus.ask(queries[name]), name


def cut(query: str, sizes: dict[str, str]) -> str:
    for large, small in sizes.items():
        query = query.replace(large, small)
    return query
