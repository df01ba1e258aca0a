"""`sfd-stream run`: memory is checked first, one signal stops gracefully, the summary is what is stored."""

from __future__ import annotations

import json
import os
import signal
import threading
import uuid
from collections.abc import Iterator
from types import SimpleNamespace

import pytest
from structlog.testing import capture_logs

from sfd_stream.cli.build import shape_of
from sfd_stream.cli.commands.run import STOPPING, print_summary, stop_on_signals, within_quota
from sfd_stream.config import load
from sfd_stream.config.model import Settings
from sfd_stream.errors import SettingsError
from sfd_stream.storage.memory import shared_memory_store
from tests.support.watched import settings_of
from tests.system.fakes import rows, worker_on
from tests.unit.config.test_container_limits import OVERRIDES


def with_columns(**sketch: object) -> Settings:
    given = [f"sketch.{name}={value}" for name, value in sketch.items()]
    return load(None, environ={}, overrides=[*OVERRIDES, "worker.memory_max_bytes=2GiB", *given]).settings


def test_a_sketch_that_cannot_fit_into_memory_is_refused_at_the_start() -> None:
    with pytest.raises(SettingsError, match=r"2147483647 columns needs at least .* worker\.memory_max_bytes is 2GiB"):
        within_quota(with_columns(d=2**31 - 1))


def test_a_sketch_that_may_not_fit_into_memory_is_warned_of_at_the_start() -> None:
    with capture_logs() as logs:
        within_quota(with_columns(d=2**20))
        within_quota(with_columns(d=1000))
    (line,) = [line["event"] for line in logs if "memory_max_bytes" in line["event"]]
    assert line.startswith("a partition may need up to 2.89 GB, but worker.memory_max_bytes is 2GiB")


@pytest.fixture
def handlers() -> Iterator[None]:
    """Those of the tests come back."""
    before = {number: signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGINT)}
    yield
    for number, handler in before.items():
        signal.signal(number, handler)


@pytest.mark.usefixtures("handlers")
def test_the_first_signal_stops_gracefully_and_the_second_exits_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    stopped, logged, ended = list[str](), threading.Event(), list[int]()
    monkeypatch.setattr(os, "_exit", ended.append)
    log = SimpleNamespace(info=lambda event, **_: logged.set() if event == STOPPING else None)
    stop_on_signals(lambda: stopped.append("stopped"), log)
    signal.raise_signal(signal.SIGTERM)
    assert logged.wait(30)
    assert (stopped, ended) == (["stopped"], [])
    signal.raise_signal(signal.SIGINT)
    assert (stopped, ended) == (["stopped"], [128 + signal.SIGINT])


def test_the_summary_counts_the_rows_in_the_store(capsys: pytest.CaptureFixture[str]) -> None:
    name = uuid.uuid4().hex
    given = settings_of("sketch.d=20", "sketch.ell=4", f"checkpoint.url=memory://{name}")
    worker, _, _ = worker_on(
        {0: rows(120), 1: rows(30)}, store=shared_memory_store(name), shape=lambda number: shape_of(given, number)
    )
    worker.run()
    print_summary(given, 50.0, as_json=True)
    found = json.loads(capsys.readouterr().out)
    assert {number: part["rows"] for number, part in found["partitions"].items()} == {"0": 120, "1": 30}
    assert (found["total"]["rows"], found["total"]["rows_per_s"]) == (150, 50.0)
    print_summary(given, 50.0, as_json=False)
    assert "rows_per_s of this run: 50" in capsys.readouterr().out
