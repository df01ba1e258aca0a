"""Laws of the parts themselves: brokers that tests stand on."""

from __future__ import annotations

import contextlib
import json
import os
import select
import subprocess
from typing import TYPE_CHECKING

import pytest

from tests.support.kafka_keeper import shared_broker

if TYPE_CHECKING:
    from pathlib import Path

    from tests.support.kafka import Broker
    from tests.support.kafka_fixtures import PrivateBrokers


def test_every_topic_has_leaders_when_it_is_handed_out(broker: Broker) -> None:
    topic = broker.create_topic(partitions=2)
    assert broker.leaders_known(topic)
    broker.produce(topic, [b"a", b"b"])


@pytest.mark.slow
def test_a_private_broker_comes_back_with_what_it_had(private_broker: PrivateBrokers) -> None:
    broker = private_broker()
    topic = broker.create_topic(partitions=2)
    cluster = broker.admin.cluster_id(10)
    broker.kill()
    broker.restart()
    assert broker.leaders_known(topic, partitions=2)
    assert broker.admin.cluster_id(10) == cluster


@pytest.mark.real_kafka
@pytest.mark.skipif("SFD_TEST_BOOTSTRAP" in os.environ, reason="a broker that is given is not ours to end")
@pytest.mark.usefixtures("kafka")  # skips where there is none
def test_all_who_ask_get_one_broker_which_ends_with_the_run_even_by_kill(tmp_path: Path) -> None:
    folder = tmp_path / "run"
    with subprocess.Popen(["sleep", "600"]) as controller:
        try:
            first, second = shared_broker(folder, controller.pid), shared_broker(folder, controller.pid)
            assert first.bootstrap == second.bootstrap
            keeper = os.pidfd_open(json.loads((folder / "kafka.json").read_text())["keeper"])
        finally:
            controller.kill()
    with contextlib.closing(os.fdopen(keeper)):
        assert select.select([keeper], [], [], 60)[0], "the keeper outlives the run"
    assert not folder.exists()
