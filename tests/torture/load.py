"""Continuous load: blocks of rows, bad messages and tombstones to every partition, each acknowledgement recorded."""

from __future__ import annotations

import threading
import time
import zlib
from dataclasses import dataclass
from typing import Any

import msgpack
import numpy as np
from confluent_kafka import KafkaError, Producer

D, ROWS, NNZ = 100, 20, 5
EVERY_S = 0.1
BURST = 150
KIND = "kind"
"""Name of the header that says what a message is: the checks need no decoder to know which messages are bad."""

GOOD, BAD, TOMBSTONE = b"rows", b"bad", b"tombstone"
BAD_SHARE, TOMBSTONE_SHARE, BURST_SHARE = 0.02, 0.01, 0.01
STALLED_AFTER_S = 60.0


@dataclass(frozen=True)
class Acknowledged:
    partition: int
    offset: int
    checksum: int


class Load(threading.Thread):
    """Sends a message to each partition every `EVERY_S`, now and then many at once. `partitions` may grow."""

    def __init__(self, bootstrap: str, topic: str, partitions: int, seed: int) -> None:
        super().__init__(daemon=True)
        self._brokers, self._topic = bootstrap, topic
        self.partitions = partitions
        self._rng = np.random.default_rng([seed, 1])
        self._stopped = threading.Event()
        self.acknowledged: list[Acknowledged] = []
        self.failures: list[str] = []
        self.replaced = 0

    def run(self) -> None:
        producer, known, alive_at = self._producer(), self.partitions, time.monotonic()
        seen = 0
        while not self._stopped.wait(EVERY_S):
            if known != self.partitions:  # an old client may not know a new partition for minutes
                producer.flush()
                producer, known = self._producer(), self.partitions
            if len(producer) < 5_000:
                for partition in range(known):
                    self._send(producer, partition)
            producer.poll(0)
            if len(self.acknowledged) != seen or not len(producer):
                seen, alive_at = len(self.acknowledged), time.monotonic()
            elif time.monotonic() - alive_at > STALLED_AFTER_S:  # librdkafka's issue 5301: it has lost its only broker
                producer, alive_at, self.replaced = self._producer(), time.monotonic(), self.replaced + 1
        if producer.flush(120):
            self.failures.append(f"{len(producer)} messages were not sent within 120 s of calm")

    def stop(self) -> None:
        self._stopped.set()
        self.join()

    def _producer(self) -> Producer:
        return Producer(
            {
                "bootstrap.servers": self._brokers,
                "enable.idempotence": True,
                # The first of two requests may be refused while the second is taken: then the first counts as repeated.
                "max.in.flight.requests.per.connection": 1,
                "message.timeout.ms": 0,
                "reconnect.backoff.max.ms": 500,
                "log_level": 0,
            }
        )

    def _send(self, producer: Producer, partition: int) -> None:
        for _ in range(BURST if self._rng.random() < BURST_SHARE else 1):
            kind, value = self._message()
            producer.produce(
                self._topic, value, partition=partition, headers=[(KIND, kind)], on_delivery=self._on_delivery
            )

    def _message(self) -> tuple[bytes, bytes | None]:
        chance = self._rng.random()
        if chance < TOMBSTONE_SHARE:
            return TOMBSTONE, None
        good = rows_message(self._rng)
        if chance < TOMBSTONE_SHARE + BAD_SHARE:
            return BAD, spoiled(self._rng, good)
        return GOOD, good

    def _on_delivery(self, error: KafkaError | None, message: Any) -> None:
        if error is not None or message.offset() is None or message.offset() < 0:
            self.failures.append(str(error or "acknowledged without an offset"))
            return
        self.acknowledged.append(
            Acknowledged(message.partition(), message.offset(), zlib.crc32(message.value() or b""))
        )


def rows_message(rng: np.random.Generator) -> bytes:
    """Rows in the packed form (docs/reference/formats.md). Values have few bits: their sums are exact in any order."""
    weights = 1 / np.arange(1, D + 1)
    columns = rng.choice(D, size=ROWS * NNZ, p=weights / weights.sum())
    values = rng.integers(1, 64, size=ROWS * NNZ) / 8.0
    fields = {
        "i": columns.astype("<u4").tobytes(),
        "v": values.astype("<f8").tobytes(),
        "p": (np.arange(ROWS + 1) * NNZ).astype("<u4").tobytes(),
    }
    packed: bytes = msgpack.packb(fields)
    return packed


def spoiled(rng: np.random.Generator, good: bytes) -> bytes:
    """A message that is not rows, in one of several ways."""
    fields = msgpack.unpackb(good)
    ways = [
        lambda: rng.bytes(40) + b"\xc1",  # 0xc1 is no msgpack
        lambda: good[: int(rng.integers(1, len(good)))],
        lambda: good + b"\x00",
        lambda: msgpack.packb({**fields, "i": np.full(ROWS * NNZ, D, "<u4").tobytes()}),
        lambda: msgpack.packb({**fields, "v": np.full(ROWS * NNZ, np.nan, "<f8").tobytes()}),
        lambda: msgpack.packb({**fields, "p": fields["p"][:-4]}),
        lambda: msgpack.packb({**fields, "x": 1}),
        lambda: msgpack.packb([1, 2, 3]),
        lambda: b"",
    ]
    value: bytes = ways[int(rng.integers(len(ways)))]()
    return value
