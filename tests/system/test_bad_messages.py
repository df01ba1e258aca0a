"""Many bad messages of many kinds through a whole worker: none stops it, and each arrives as it was sent."""

from __future__ import annotations

import os
import time
from pathlib import Path

import numpy as np
import pytest

from tests.support.kafka import Broker
from tests.system.conftest import MakeRun
from tests.system.runs import WorkerProcess
from tests.torture.load import rows_message, spoiled
from tests.torture.truth import records

pytestmark = pytest.mark.slow

MESSAGES = int(os.environ.get("SFD_TEST_BAD_MESSAGES", "10000"))
"""docs/reliability.md has the record of 100,000."""

GOOD_EVERY = 50
PEAK_MAX_KB = 400_000


def peak_kb(worker: WorkerProcess) -> int:
    """The most memory that the process had until it ended."""
    peak = 0
    while worker.alive:
        lines = _status(worker.pid).splitlines()
        peak = max([peak, *(int(line.split()[1]) for line in lines if line.startswith("VmHWM"))])
        time.sleep(0.1)
    return peak


def _status(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/status").read_text()
    except OSError:
        return ""


def test_every_bad_message_is_in_the_dead_letter_topic_exactly_as_sent(kafka: Broker, make_run: MakeRun) -> None:
    rng = np.random.default_rng(29)
    messages = [
        rows_message(rng) if number % GOOD_EVERY == 0 else spoiled(rng, rows_message(rng)) for number in range(MESSAGES)
    ]
    topic, letters = kafka.create_topic(), kafka.create_topic()
    kafka.produce(topic, messages)
    limits = {"topic": letters, "max_share": 1.0, "max_consecutive": MESSAGES}
    run = make_run(kafka, topic, changes={"dead_letters": limits, "log": {"level": "info"}})
    worker = run.start(until_end=True)
    peak = peak_kb(worker)
    assert worker.wait(600) == 0, worker.log()[-2_000:]
    assert peak < PEAK_MAX_KB
    found = {int(one.headers["sfd-offset"]): one.value for one in records(kafka.bootstrap, letters)}
    assert found == {number: value for number, value in enumerate(messages) if number % GOOD_EVERY}
    assert run.state(0).bad == len(found)
