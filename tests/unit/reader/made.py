"""Snapshots for tests: rows of known matrices, sketched and published as a worker would."""

from __future__ import annotations

import time
from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import scipy.sparse as sp
from confluent_kafka import Producer

from sfd_stream import FrequentDirections, Sketch
from sfd_stream.kafka.producer import Sink
from sfd_stream.kafka.topic_reader import Tail
from sfd_stream.wire.snapshot_ids import SnapshotId
from sfd_stream.wire.snapshots import Message, Snapshot, encode_snapshot, message_of
from tests.support.kafka import Broker

COMPACTED = {"cleanup.policy": "compact"}
CLEANED_SOON = COMPACTED | {"segment.ms": "200", "min.cleanable.dirty.ratio": "0.01", "delete.retention.ms": "0"}


def rows_of(seed: int, n: int = 40, d: int = 12) -> Any:
    """Integers, so that all counters are exact."""
    rng = np.random.default_rng(seed)
    return sp.csr_array(rng.integers(-3, 4, (n, d)) * (rng.random((n, d)) < 0.5), dtype=np.float64)


def sketch_of(A: Any, ell: int = 6) -> Sketch:
    return FrequentDirections(ell).partial_fit(A).sketch()


def snapshot(sketch: Sketch, partition: int = 0, **changes: Any) -> Snapshot:
    id_names = ("cluster", "group", "topic", "epoch", "number", "window")
    ids: dict[str, Any] = {"cluster": "c", "group": "g", "topic": "rows", "epoch": 1, "number": 1, "window": None}
    ids |= {name: changes.pop(name) for name in id_names if name in changes}
    made = Snapshot(
        id=SnapshotId(partition=partition, **ids),
        partitions=changes.pop("partitions", 1),
        next_offset=changes.pop("next_offset", sketch.rows),
        made_at_s=changes.pop("made_at_s", 1000.0),
        sketch=sketch,
        columns=changes.pop("columns", "fixed"),
    )
    return replace(made, **changes)


def message(of: Snapshot) -> Message:
    return message_of(encode_snapshot(of))


def publish(broker: Broker, topic: str, messages: Iterable[Message]) -> None:
    """By the sink that workers use, in order; every one is in the topic when this returns."""
    sink = Sink({"bootstrap.servers": broker.bootstrap})
    tickets = []
    for one in messages:
        while (ticket := sink.publish(topic, one.key, one.value, one.headers)) is None:
            sink.poll(0.1)
        tickets.append(ticket)
    assert sink.close(60)
    assert all(ticket.delivered for ticket in tickets), [t for t in tickets if not t.delivered][:3]


def publish_quickly(kafka: Broker, topic: str, messages: Iterable[Message]) -> None:
    producer = Producer({"bootstrap.servers": kafka.bootstrap, "linger.ms": 100, "log_level": 0})
    for one in messages:
        producer.produce(topic, one.value, one.key, headers=list(one.headers))
        producer.poll(0)
    assert producer.flush(60) == 0


def records_in(kafka: Broker, topic: str) -> int:
    tail = Tail({"bootstrap.servers": kafka.bootstrap}, topic)
    try:
        return sum(len(records) for records in tail.catch_up(30))
    finally:
        tail.close()


def spectral_error(matrices: Sequence[Any], sketch: Sketch) -> tuple[float, float]:
    """Least and greatest eigenvalue of A'A - B'B for the stacked matrices, narrower ones padded."""
    gram = -(sketch.matrix.T @ sketch.matrix)
    for A in matrices:
        dense = A.toarray()
        gram[: A.shape[1], : A.shape[1]] += dense.T @ dense
    values = np.linalg.eigvalsh(gram)
    return float(values[0]), float(values[-1])


def holds(matrices: Sequence[Any], sketch: Sketch) -> bool:
    """The guarantee (G), and the exact counters."""
    low, high = spectral_error(matrices, sketch)
    dust = 1e-9 * max(sketch.squared_frobenius, 1.0)
    sums = np.zeros(sketch.d)
    for A in matrices:
        sums[: A.shape[1]] += np.asarray(A.sum(axis=0)).ravel()
    return (
        low >= -sketch.rounding - dust
        and high <= sketch.delta + dust
        and sketch.rows == sum(A.shape[0] for A in matrices)
        and sketch.nnz == sum(A.count_nonzero() for A in matrices)
        and sketch.squared_frobenius == sum(float((A.multiply(A)).sum()) for A in matrices)
        and bool(np.array_equal(np.asarray(sketch.column_sums), sums))
    )


def now() -> float:
    return time.time()
