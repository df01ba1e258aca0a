"""A real Prometheus scrapes a real worker on a real Kafka: every query that is shipped answers, and faults are seen."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import signal
import subprocess
import time
import urllib.parse
import urllib.request
from collections.abc import Callable, Iterator, Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import yaml

from sfd_stream.cli.build import plan_of, shape_of, store_of
from sfd_stream.cli.commands.basis import pinned_bases_of
from sfd_stream.cli.commands.score import reader_of
from sfd_stream.loop.runtime import Runtime
from sfd_stream.state.manifest import Binding, Kind
from sfd_stream.state.partition import ENTRY_BYTES
from sfd_stream.wire.rows.encode import encode_row
from sfd_stream.worker.checkpoint_chain import CheckpointChain
from tests.deploy.shipped import ALERTS, RECORDING, panel_queries, rules
from tests.support.kafka import Broker
from tests.support.seaweed import free_ports
from tests.support.tools import need
from tests.system.checkpoints.conftest import Site
from tests.system.conftest import MakeRun, make_run
from tests.system.processes.test_processes import Program, program
from tests.system.runs import Run, WorkerProcess, wait_until
from tests.unit.score.scored import Scoring
from tests.unit.worker.chains import a_log, answering, driven

SCRAPE_S = 1
MakeProgram = Callable[..., Program]
__all__ = ["make_run", "program"]


@pytest.fixture
def live(tmp_path: Path, kafka: Broker) -> Site:
    """A topic with a partition for each of two workers."""
    return Site(tmp_path, topic=kafka.create_topic(partitions=2), bootstrap=kafka.bootstrap)


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
def scrape(tmp_path: Path) -> Iterator[Callable[..., Prometheus]]:
    """A server with the shipped rules, on workers' ports."""
    program = need("prometheus")
    started: list[subprocess.Popen[bytes]] = []

    def start(*targets: str) -> Prometheus:
        folder = tmp_path / "prometheus"
        folder.mkdir()
        for path in (ALERTS, RECORDING):
            shutil.copy(path, folder)
        config = {
            "global": {"scrape_interval": f"{SCRAPE_S}s", "evaluation_interval": f"{SCRAPE_S}s"},
            "rule_files": ["*.yaml"],
            "scrape_configs": [{"job_name": "sfd", "static_configs": [{"targets": list(targets)}]}],
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
    wait_until(lambda: worker.values("url"), "the worker's port")
    return str(urllib.parse.urlparse(worker.values("url")[0]).netloc)


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


def sketched(kafka: Broker, make_run: MakeRun, rng: np.random.Generator, **score: Any) -> Scoring:
    """A topic whose first rows are sketched and published, for scorers."""
    run = make_run(kafka, kafka.create_topic(partitions=2), changes=settings_of(kafka))
    scoring = Scoring.of(run, **score)
    produce(kafka, run, rng, 300)
    scoring.sketch()
    return scoring


def with_reference(scoring: Scoring, block_rows: int) -> WorkerProcess:
    """A scorer that compares rows with the sketch of now, as pinned."""
    settings = scoring.settings()
    with reader_of(settings, nullcontext) as reader:
        reference = pinned_bases_of(settings).pin(reader.merged(), time.time())
    return scoring.start(drift={"reference": reference, "block_rows": block_rows})


def until(condition: Callable[[], bool], what: Callable[[], str], deadline_s: float = 150.0) -> None:
    deadline = time.monotonic() + deadline_s
    while not condition():
        assert time.monotonic() < deadline, what()
        time.sleep(0.5)


@pytest.mark.slow
def test_every_panels_and_rules_query_answers(
    kafka: Broker, make_run: MakeRun, scrape: Callable[..., Prometheus]
) -> None:
    run = make_run(kafka, kafka.create_topic(partitions=2), changes=settings_of(kafka))
    rng = np.random.default_rng(1)
    produce(kafka, run, rng, 300)  # something to catch up with
    worker = run.start()
    scoring = sketched(kafka, make_run, rng, when={"residual_over_mean_min": 1.0})
    scorer = with_reference(scoring, block_rows=20)
    prometheus = scrape(port_of(worker), port_of(scorer))
    missing = dict(panel_queries()) | {rule["record"]: rule["record"] for rule in rules(RECORDING)}

    def all_answer() -> bool:
        for each in (run, scoring.run):
            produce(kafka, each, rng, 300)
        for name in [name for name, query in missing.items() if prometheus.ask(query)]:
            del missing[name]
        return not missing

    until(all_answer, lambda: f"no answer from {sorted(missing)}")
    fed = prometheus.values("sum(sfd_end_offset)")
    until(lambda: prometheus.values("sum(sfd_lag_messages)") == [0.0], lambda: "a lag that stays")
    assert prometheus.values("sum(sfd_applied_offset)") >= fed
    assert worker.alive
    assert scorer.alive


# Faults, each made for real in a group of its own, all at once and under one Prometheus

SIZES = {
    "> 10000": "> 10", "[15m]": "[60s]", "[30m]": "[90s]", "> 120": "> 30", "> 300": "> 3", "> 1800": "> 3",
    "> 60": "> 2", "[6h:1m]": "[5m:1s]",
}  # fmt: skip
"""The alerts' own times and sizes, cut down to a test's."""

COUNTED = {
    "SfdDeadLetterShare", "SfdFencedRepeatedly", "SfdRestarting", "SfdWorkerDown", "SfdErrorAbovePromise",
    "SfdRowsChanged",
}  # fmt: skip
"""Those that a slow machine alone can't cause."""

TINY_BUFFER_BYTES = 10 * ENTRY_BYTES


class Faults:
    """`make` what is wrong once more; by alert, `groups` has whose fault must be seen."""

    def __init__(self, kafka: Broker, make_run: MakeRun, program: MakeProgram, site: Site) -> None:
        small = kafka.create_topic(config={"max.message.bytes": "600"})
        self._kafka = kafka
        self._site = site
        self._rng = np.random.default_rng(1)
        self._well = self._run(make_run)
        self._storeless = self._run(make_run, slow_at="before-Put:600")
        self._stalled = self._run(make_run, slow_loop_s=5.0, snapshot={"topic": small, "every_s": 1.0})
        self._robbed = self._run(make_run)
        self._behind = sketched(kafka, make_run, self._rng)
        self._behind.start(slow_at="before-publish:600")
        self._changed = sketched(kafka, make_run, self._rng)
        with_reference(self._changed, block_rows=20)
        produce(kafka, self._changed.run, self._rng, 40 * 20)  # what later rows are compared with
        self._program = self._supervised(program)
        self._killed: set[int] = set()

    def _run(
        self, make_run: MakeRun, slow_at: str | None = None, slow_loop_s: float | None = None, **changes: Any
    ) -> Run:
        topic = self._kafka.create_topic(partitions=2)
        run = make_run(self._kafka, topic, changes={**settings_of(self._kafka), **changes})
        run.start(slow_at=slow_at, slow_loop_s=slow_loop_s)
        return run

    def _supervised(self, program: MakeProgram) -> Program:
        """A state sketched far too coarsely, taken up by workers whose ell promises more than it can keep."""
        self._kafka.produce(self._site.topic, [encode_row([k % 100], [1.0]) for k in range(2_000)])
        coarse = {"d": 100, "ell": 2, "buffer_max_bytes": TINY_BUFFER_BYTES}
        self._site.write(log={"format": "json"}, sketch=coarse)
        assert program("--until-end").ended() == 0
        self._site.write(log={"format": "json"}, sketch={"d": 100, "ell": 80})
        return program("--workers", "2")

    @property
    def targets(self) -> list[str]:
        runs = (self._well, self._storeless, self._stalled, self._robbed, self._behind.run, self._changed.run)
        wait_until(self._program.urls, "the supervisor's port")
        return [port_of(run.workers[0]) for run in runs] + [urllib.parse.urlparse(self._program.urls()[-1]).netloc]

    @property
    def groups(self) -> dict[str, str]:
        return {
            "SfdLagGrowing": self._storeless.group,
            "SfdPartitionStuck": self._storeless.group,
            "SfdCheckpointTooOld": self._storeless.group,
            "SfdDeadLetterShare": self._storeless.group,
            "SfdLoopNotTurning": self._stalled.group,
            "SfdSnapshotTooOld": self._stalled.group,
            "SfdFencedRepeatedly": self._robbed.group,
            "SfdRestarting": self._site.group,
            "SfdWorkerDown": self._site.group,
            "SfdPartitionsUnread": self._site.group,
            "SfdErrorAbovePromise": self._site.group,
            "SfdRowsChanged": self._changed.settings().score_group,
            "SfdScoreLagGrowing": self._behind.settings().score_group,
            "SfdNobodyWorks": self._well.group,
        }

    def make(self) -> None:
        for run in (self._well, self._stalled, self._robbed):
            self._rows(run, 20)
        for run in (self._storeless, self._behind.run):
            self._rows(run, 400)
        self._rows(self._changed.run, 20, of=10)
        self._kafka.produce(self._storeless.topic, [b"not rows"] * 40)
        newest = self._robbed.newest(0)
        if newest is not None and newest.kind is Kind.CHECKPOINT:  # it is the worker's again
            claim(self._robbed, newest.binding)
        pid = self._program.children()[1]
        if pid not in self._killed and up(self._program):
            self._killed.add(pid)
            os.kill(pid, signal.SIGKILL)

    def make_last(self) -> None:
        """The fault of one that had none: its only worker is gone."""
        self._well.workers[0].kill()

    def _rows(self, run: Run, rows: int, of: int = 100) -> None:
        """Rows of the first `of` columns."""
        for partition in (0, 1):
            columns = [np.sort(self._rng.choice(of, 8, replace=False)) for _ in range(rows)]
            values = [encode_row(row, self._rng.normal(size=8)) for row in columns]
            self._kafka.produce(run.topic, values, partition=partition)


def claim(run: Run, binding: Binding) -> None:
    """As another worker would that has the partition too: the former owner is fenced at its next step."""
    settings = run.settings()
    runtime = Runtime(store_of(settings))
    chain = CheckpointChain(plan_of(settings, until_end=False), 0, runtime)
    driven(chain.claim(binding, shape_of(settings, 0), "earliest", answering(a_log)))


def up(program: Program) -> bool:
    with contextlib.suppress(OSError), urllib.request.urlopen(program.urls()[-1] + "readyz", timeout=5) as answer:  # noqa: S310
        return bool(answer.status == 200)
    return False


@pytest.mark.slow
def test_every_alert_sees_its_fault(
    kafka: Broker, make_run: MakeRun, program: MakeProgram, live: Site, scrape: Callable[..., Prometheus]
) -> None:
    faults = Faults(kafka, make_run, program, live)
    prometheus = scrape(*faults.targets)
    queries = {rule["alert"]: cut(rule["expr"], SIZES) for rule in rules(ALERTS)}
    assert queries.keys() == faults.groups.keys()
    seen: dict[str, set[str]] = {name: set() for name in queries}

    def unseen() -> list[str]:
        return [name for name, group in faults.groups.items() if group not in seen[name]]

    def all_seen(but: Sequence[str] = ()) -> bool:
        faults.make()
        for name, query in queries.items():
            seen[name] |= {one["metric"]["group"] for one in prometheus.ask(query)}
        return set(unseen()) <= set(but)

    until(lambda: all_seen(but=["SfdNobodyWorks"]), lambda: f"not seen: {unseen()}")
    faults.make_last()
    until(all_seen, lambda: f"not seen: {unseen()}")
    assert {name: seen[name] for name in COUNTED} == {name: {faults.groups[name]} for name in COUNTED}


def cut(query: str, sizes: dict[str, str]) -> str:
    for large, small in sizes.items():
        query = query.replace(large, small)
    return query
