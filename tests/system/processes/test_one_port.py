"""`run --workers N` on a real broker: one port answers for all processes, each labelled, whatever becomes of them."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import urllib.error
import urllib.request
from collections.abc import Callable
from pathlib import Path

import pytest
import yaml
from prometheus_client.parser import text_string_to_metric_families

from tests.support.kafka import Broker
from tests.support.slow import smoke_first
from tests.system.checkpoints.conftest import Site, messages
from tests.system.processes.test_processes import Program, program

__all__ = ["program"]

PROTOCOLS = ("cooperative", "kip-848")


@pytest.fixture
def live(request: pytest.FixtureRequest, tmp_path: Path, kafka: Broker) -> Site:
    """One partition: of two workers one has nothing to do."""
    site = Site(tmp_path, topic=kafka.create_topic(), bootstrap=kafka.bootstrap)
    site.write(log={"format": "json"}, checkpoint={"every_s": 0.5})
    if request.param == "kip-848":
        tree = yaml.safe_load(site.file.read_text())
        login = {"bootstrap.servers": kafka.bootstrap, "group.id": site.group}
        site.file.write_text(yaml.safe_dump({**tree, "kafka": {**login, "group.protocol": "consumer"}}))
        kafka.set_group(site.group, {"consumer.session.timeout.ms": "1500"})
    kafka.produce(site.topic, messages(0, 50))
    return site


def get(run: Program, path: str) -> tuple[int, bytes]:
    try:
        with urllib.request.urlopen(run.urls()[0] + path, timeout=10) as answer:  # noqa: S310 - our own
            return answer.status, answer.read()
    except urllib.error.HTTPError as error:
        with contextlib.closing(error):
            return error.code, error.read()


def series(run: Program, name: str) -> dict[str, float]:
    """By worker, added up."""
    found: dict[str, float] = {}
    for family in text_string_to_metric_families(get(run, "metrics")[1].decode()):
        for sample in family.samples:
            if sample.name == name:
                worker = sample.labels["worker"]
                found[worker] = found.get(worker, 0.0) + sample.value
    return found


@pytest.mark.slow
@pytest.mark.parametrize("live", smoke_first(PROTOCOLS), indirect=True)
def test_one_port_answers_for_all_and_tells_who_is_down(program: Callable[..., Program], live: Site) -> None:
    run = program("--workers", "2")
    run.await_(lambda: bool(run.urls()), "the port")
    run.await_(lambda: get(run, "readyz")[0] == 200, "readiness: one with nothing to do is ready too")
    run.await_(lambda: sum(series(run, "sfd_rows_total").values()) == 50, "all rows")
    assert series(run, "sfd_worker_up") == {"1": 1, "2": 1}
    assert get(run, "healthz") == (200, b"ok\n")
    status = json.loads(get(run, "status.json")[1])
    workers = {one["worker"]: one for one in status["workers"]}
    assert (set(workers), status["down"]) == ({"1", "2"}, [])
    assert sorted(len(one["partitions"]) for one in workers.values()) == [0, 1]
    pid = run.children()[1]
    os.kill(pid, signal.SIGSTOP)
    run.await_(lambda: series(run, "sfd_worker_up") == {"1": 0, "2": 1}, "that one is down")
    assert get(run, "readyz") == (503, b"worker 1 is down\n")
    status = json.loads(get(run, "status.json")[1])
    assert ([one["worker"] for one in status["workers"]], status["down"]) == (["2"], ["1"])
    os.kill(pid, signal.SIGKILL)
    run.await_(lambda: run.children()[1] != pid, "a restart")
    run.await_(lambda: get(run, "readyz")[0] == 200, "readiness again")
    assert series(run, "sfd_worker_up") == {"1": 1, "2": 1}
    run.process.send_signal(signal.SIGTERM)
    assert run.ended() == 0, run.log.read_text()
