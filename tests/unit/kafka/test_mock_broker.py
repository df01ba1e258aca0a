"""The built-in broker, as the demo uses it."""

from __future__ import annotations

import signal
import subprocess
import sys

import pytest
from confluent_kafka import Producer

from sfd_stream.kafka.mock_broker import PARTITIONS, EmbeddedBroker


def serve() -> subprocess.Popen[str]:
    command = [sys.executable, "-m", "sfd_stream.kafka.mock_broker"]
    return subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)


@pytest.mark.parametrize("how", ["closed input", "SIGTERM"])
def test_it_serves_other_processes_until_it_is_told_to_end(how: str) -> None:
    with serve() as server:
        assert server.stdin is not None
        assert server.stdout is not None
        bootstrap = server.stdout.readline().strip()
        producer = Producer({"bootstrap.servers": bootstrap, "log_level": 0})
        producer.produce("rows", b"x")
        assert producer.flush(30) == 0
        assert len(producer.list_topics("rows", timeout=10).topics["rows"].partitions) == PARTITIONS
        if how == "SIGTERM":
            server.send_signal(signal.SIGTERM)
        else:
            server.stdin.close()
        assert server.wait(30) == 0


def test_it_serves_in_the_background_without_an_input() -> None:
    """As by `python -m sfd_stream.kafka.mock_broker &` in a script: there its standard input is /dev/null."""
    command = [sys.executable, "-m", "sfd_stream.kafka.mock_broker"]
    with subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, text=True) as server:
        assert server.stdout is not None
        bootstrap = server.stdout.readline().strip()
        with pytest.raises(subprocess.TimeoutExpired):
            server.wait(1)
        producer = Producer({"bootstrap.servers": bootstrap, "log_level": 0})
        producer.produce("rows", b"x")
        assert producer.flush(30) == 0
        server.send_signal(signal.SIGTERM)
        assert server.wait(30) == 0


def test_its_address_is_known_only_while_it_serves() -> None:
    broker = EmbeddedBroker()
    with broker:
        assert broker.bootstrap.startswith("127.0.0.1:")
    with pytest.raises(AssertionError):
        _ = broker.bootstrap
