"""A run of workers on a real broker with a store on disk or in S3."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.support.kafka import Broker
from tests.support.seaweed import SeaweedServer
from tests.system.runs import Run

MakeRun = Callable[..., Run]

S3 = [pytest.mark.real_s3, pytest.mark.xdist_group("s3")]
on_disk_and_s3 = pytest.mark.parametrize("store", ["disk", pytest.param("s3", marks=S3)])
disk_or_s3_by_protocol = pytest.mark.parametrize(
    ("store", "protocol"),
    [
        pytest.param("disk", "cooperative", id="disk-cooperative", marks=pytest.mark.slow),
        pytest.param("s3", "kip-848", id="s3-kip848", marks=S3),
    ],
)
"""Each of both kinds once: a store and a group protocol have nothing to say to each other."""


@pytest.fixture
def make_run(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[MakeRun]:
    """`make_run(broker, topic, store="disk" or "s3", **fields of Run)`; its workers end with the test."""
    runs: list[Run] = []

    def make(broker: Broker, topic: str, *, store: str = "disk", **given: Any) -> Run:
        if store == "s3":
            server: SeaweedServer = request.getfixturevalue("s3_server")
            given = {"url": server.new_url(), "options": server.options(timeout_s="5", retry_s="2"), **given}
        else:
            given = {"url": (tmp_path / f"store-{len(runs)}").as_uri(), **given}
        runs.append(Run(broker, topic, tmp_path, **given))
        if runs[-1].protocol == "kip-848":
            broker.set_group(runs[-1].group, {"consumer.session.timeout.ms": "1500"})
        return runs[-1]

    yield make
    for run in runs:
        run.close()
