"""What a run has put onto its output topic, read as plain records; and settings that show often."""

from __future__ import annotations

import itertools
import time
import uuid
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from confluent_kafka.admin import (  # type: ignore[attr-defined]
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    ResourceType,
)

from sfd_stream.cli.build import store_of
from sfd_stream.errors import BrokerRefusedError, NoSnapshotError
from sfd_stream.kafka.records import Record
from sfd_stream.kafka.topic_reader import Tail
from sfd_stream.reader.reader import SnapshotReader
from sfd_stream.wire.snapshot_ids import SnapshotId
from sfd_stream.wire.snapshots import Reference, Snapshot, decode_message, resolve
from tests.support.kafka import Broker
from tests.system.runs import Run

SELDOM = {"every_s": 3600.0}


def output_topic() -> str:
    """A name of its own; the worker makes the topic."""
    return f"shown-{uuid.uuid4().hex[:12]}"


@dataclass(frozen=True)
class Shown:
    """One message of the output topic."""

    id: SnapshotId
    record: Record

    @property
    def order(self) -> tuple[int, int]:
        return self.id.order

    @property
    def value(self) -> bytes:
        assert self.record.value is not None
        return self.record.value


def all_shown(broker: Broker, topic: str, partition: int | None = None, **properties: Any) -> list[Shown]:
    """Every message in the order of the log, as one who reads only what is committed sees it."""
    tail = Tail({"bootstrap.servers": broker.bootstrap, "log_level": 0, **properties}, topic)
    try:
        records = [record for batch in tail.catch_up(30) for record in batch]
    finally:
        tail.close()
    found = []
    for record in records:
        if record.value is None:
            continue
        told = SnapshotId.from_headers(record.headers)
        assert told is not None
        if partition is None or told.partition == partition:
            found.append(Shown(told, record))
    return found


def latest(run: Run, topic: str) -> list[Snapshot]:
    """What a cold reader sees."""
    told = {"group": run.group, "trusted_stores": [run.url], "store_options": run.options}
    with SnapshotReader(run.broker.bootstrap, topic, log_level=0, **told) as reader:
        return reader.latest()


def blob_bytes(run: Run, shown: Shown) -> bytes:
    """The very bytes in the checkpoint store that a message shows or refers to."""
    store = store_of(run.settings())
    keys = [m.due.blob.key for m in run.manifests(shown.id.partition) if m.due and order_of(m.due.id) == shown.order]
    return store.get(keys[0])


def order_of(state_id: Any) -> tuple[int, int]:
    return state_id.epoch, state_id.number


def snapshot_in(run: Run, shown: Shown) -> Snapshot:
    found = decode_message(shown.value)
    return resolve(found, blob_bytes(run, shown)) if isinstance(found, Reference) else found


def parts_of(messages: list[bytes], count: int) -> list[list[bytes]]:
    """The messages in `count` runs of about the same length."""
    cuts = [len(messages) * part // count for part in range(count + 1)]
    return [messages[low:high] for low, high in itertools.pairwise(cuts)]


def shown_rows(run: Run, topic: str) -> dict[int, int]:
    """By partition; none while there is no snapshot, or the worker has not made the topic yet."""
    try:
        return {snapshot.id.partition: snapshot.sketch.rows for snapshot in latest(run, topic)}
    except (NoSnapshotError, BrokerRefusedError):
        return {}


COMPACTED_SOON = {"segment.ms": "100", "min.cleanable.dirty.ratio": "0.001", "max.compaction.lag.ms": "100"}


def compact(broker: Broker, topic: str) -> None:
    """Makes the broker compact what is there. It leaves the segment that is written to alone, so that one is closed: by
    a message, of a key that nobody has, which finds it older than `segment.ms`.
    """
    last = all_shown(broker, topic)[-1].record
    time.sleep(0.2)
    broker.produce(topic, [None], partition=last.partition, key=b"nobody")


def set_config(broker: Broker, topic: str, config: Mapping[str, str]) -> None:
    entries = [ConfigEntry(k, v, incremental_operation=AlterConfigOpType.SET) for k, v in config.items()]
    resource = ConfigResource(ResourceType.TOPIC, topic, incremental_configs=entries)
    broker.admin.incremental_alter_configs([resource])[resource].result(30)
