"""librdkafka's built-in broker, on loopback, for the demo and for fast tests.

It lives as long as the process (or the `with`) that holds it. Other processes on the machine can use it too. It keeps
nothing on disk, and about the last 5 MB of each partition. It creates a topic, with four partitions, when a client
first asks for it. It accepts transactions of zombies, so only a real Kafka can prove exactly-once.

    python -m sfd_stream.kafka.mock_broker     prints its address; serves until SIGTERM or its input pipe closes
"""

from __future__ import annotations

import contextlib
import os
import signal
import stat
import sys
from types import FrameType
from typing import Self

from confluent_kafka import KafkaException, Producer

from sfd_stream.errors import BrokerRefusedError

PARTITIONS = 4  # of each topic; librdkafka offers no way to ask for others
_SILENT = 0


class EmbeddedBroker:
    """`with EmbeddedBroker() as broker: use(broker.bootstrap)`. Close it after its clients: they need it."""

    def __init__(self, brokers: int = 1) -> None:
        self._brokers = brokers
        self._holder: Producer | None = None
        self._bootstrap = ""

    @property
    def bootstrap(self) -> str:
        assert self._holder is not None, "the broker serves only inside its `with`"
        return self._bootstrap

    def __enter__(self) -> Self:
        holder = Producer({"test.mock.num.brokers": self._brokers, "log_level": _SILENT})
        try:
            nodes = holder.list_topics(timeout=10).brokers.values()
        except KafkaException as error:
            raise BrokerRefusedError(f"the built-in broker does not start: {error}") from error
        self._bootstrap = ",".join(f"{node.host}:{node.port}" for node in nodes)
        self._holder = holder
        return self

    def __exit__(self, *_: object) -> None:
        self._holder = None  # the broker ends with the client that holds it


def _interrupt(_number: int, _frame: FrameType | None) -> None:
    raise KeyboardInterrupt


def main() -> None:
    signal.signal(signal.SIGTERM, _interrupt)
    with EmbeddedBroker() as broker, contextlib.suppress(KeyboardInterrupt):
        sys.stdout.write(broker.bootstrap + "\n")
        sys.stdout.flush()
        if stat.S_ISFIFO(os.fstat(0).st_mode):  # the process that started it holds the other end: both end together
            while sys.stdin.read(4096):
                pass
        else:  # a terminal would stop a process in the background that reads from it
            while True:
                signal.pause()


if __name__ == "__main__":
    main()
