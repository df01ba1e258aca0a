"""Checks the topics: existence, replication, retention, message sizes, and whether the records become rows."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from sfd_stream.config.container_limits import fitted
from sfd_stream.doctor.check import Check, Finding, failed, good, skipped, warning
from sfd_stream.doctor.context import Patient, Topic, newest_manifests
from sfd_stream.doctor.permissions import checks as right_checks
from sfd_stream.errors import RefusedStateError, StoreError
from sfd_stream.kafka.admin import Admin
from sfd_stream.tools.inspect import places_in
from sfd_stream.tools.sizing import as_size, snapshot_bytes
from sfd_stream.tools.topics import ROOM_BYTES

_WORRY: Final = 0.5
"""Share of the retention time. An older checkpoint with unread rows after it gives a warning."""
_MAKE: Final = '"sfd-stream topics --partitions N" creates all that the settings name'
_NOT_READABLE: Final = "its settings can't be read: grant DESCRIBE_CONFIGS on it for this check"


def exists(patient: Patient) -> Finding:
    topic = patient.settings.input.topic
    if patient.topic(topic) is None:
        return failed(f"input.topic {topic} does not exist", f"{_MAKE}, or correct input.topic")
    dead = patient.settings.dead_letters.topic
    if dead is not None and patient.topic(dead) is None:
        return failed(f"dead_letters.topic {dead} does not exist: the first bad message would stop the worker", _MAKE)
    return good(f"topic {topic} exists")


def partitions(patient: Patient) -> Finding:
    """The number of partitions fits the checkpoints and the memory, and every written topic has enough replicas."""
    found = patient.topic(patient.settings.input.topic)
    assert found is not None, "checked before"
    count = len(found.partitions)
    gone = [p for p in _partitions_stored(patient) if p >= count]
    if gone:
        return failed(
            f"topic {found.name} has {count} partitions, and there are checkpoints of partition {gone[-1]}:"
            " it was deleted and created again, or is another topic",
            f'correct input.topic, or "sfd-stream checkpoint reset {found.name}/P --to earliest" for each partition P',
            RefusedStateError,
        )
    for name in patient.topics_written():
        other = patient.topic(name)
        if other is not None and (lacking := _lacks_replicas(other)):
            return failed(lacking, "bring the missing brokers back, or lower the topic's min.insync.replicas")
    fit = max(fitted(patient.settings, patient.quota).worker.memory_max_bytes // patient.shape.memory_bytes(), 1)
    if fit < count:
        return warning(
            f"one worker has memory for {fit} of {count} partitions; the others are not read until more workers run",
            f"run at least {math.ceil(count / fit)} workers, or raise worker.memory_max_bytes and the memory limit",
        )
    return good(f"{count} partitions: up to {count} workers can share the work")


def _partitions_stored(patient: Patient) -> list[int]:
    try:
        places = places_in(patient.store, patient.settings.group, patient.settings.input.topic)
    except StoreError:
        return []  # another check reports the store
    return [place.partition for place in places]


def _lacks_replicas(topic: Topic) -> str | None:
    wanted = int((topic.config or {}).get("min.insync.replicas", "1"))
    least = min(len(partition.isr) for partition in topic.partitions)
    if least >= wanted:
        return None
    return (
        f"topic {topic.name} accepts writes only with {wanted} replicas in sync, and one of its partitions has {least}"
    )


def message_size(patient: Patient) -> Finding:
    snapshot = patient.settings.snapshot
    topic = None if snapshot.topic is None else patient.topic(snapshot.topic)
    if topic is None:
        return skipped("no topic of snapshots yet" if snapshot.topic else "no snapshot.topic")
    if topic.config is None:
        return skipped(f"topic {topic.name}: {_NOT_READABLE}")
    ell, d = patient.settings.sketch.ell, patient.shape.d_most
    sums = {"column_sums": snapshot.column_sums, "column_squares": patient.settings.sketch.column_squares}
    whole = snapshot_bytes(ell, d, dtype=snapshot.dtype, **sums)
    given = patient.settings.input
    named = given.columns == "hashed" and given.keep_names and snapshot.column_names
    # A snapshot that is too large now was small enough while the sketch had few rows; and names have any length.
    most = snapshot.inline_max_bytes if named else min(whole, snapshot.inline_max_bytes)
    message = most + ROOM_BYTES
    size = f"{as_size(whole)}{' and its names' * named}"
    taken = int(topic.config["max.message.bytes"])
    if message > taken:
        return warning(
            f"a snapshot of {size} may need a message of {message:,} bytes, but topic {topic.name} accepts {taken:,}:"
            " it would not be published",
            f"raise its max.message.bytes to {message:,}, or lower snapshot.inline_max_bytes",
        )
    how = "in the message" if whole <= snapshot.inline_max_bytes else "by reference to the checkpoint store"
    return good(f"a snapshot of {size} goes {how}; topic {topic.name} accepts {as_size(taken)}")


def compaction(patient: Patient) -> Finding:
    name = patient.settings.snapshot.topic
    if name is None:
        return skipped("no snapshot.topic")
    return compacted(patient, name, made_by="run", holds="snapshot")


def compacted(patient: Patient, name: str, *, made_by: str, holds: str) -> Finding:
    """Whether a topic keeps the newest message of each key. It `holds` one message for each input partition."""
    topic = patient.topic(name)
    if topic is None:
        return skipped(f"sfd-stream {made_by} creates it compacted")
    if topic.config is None:
        return skipped(f"topic {name}: {_NOT_READABLE}")
    policy = topic.config["cleanup.policy"]
    if "compact" not in policy.split(","):
        return warning(
            f"topic {name} has cleanup.policy={policy}: it grows, or loses the newest {holds} of an idle partition",
            f"kafka-configs.sh --alter --topic {name} --add-config cleanup.policy=compact",
        )
    return good(f"topic {name} is compacted")


def retention(patient: Patient) -> Finding:
    """The log still has all rows after the checkpoints, and would have them after the longest outage of a worker."""
    topic = patient.topic(patient.settings.input.topic)
    assert topic is not None, "checked before"
    unread = _unread(patient, topic)
    if lost := next((each for each in unread if each.next_offset < each.low), None):
        return failed(
            f"offsets {lost.next_offset} to {lost.low - 1} of {lost.place} were removed before they were read",
            f'"sfd-stream checkpoint reset {lost.place} --to earliest --keep-sketch" accepts the loss',
            RefusedStateError,
        )
    if topic.config is None:
        return skipped(f"topic {topic.name}: {_NOT_READABLE}")
    kept_ms = int(topic.config["retention.ms"])
    oldest = max(unread, key=lambda each: each.age_s, default=None)
    if oldest is not None and kept_ms >= 0 and oldest.age_s > _WORRY * kept_ms / 1000:
        return warning(
            f"the newest checkpoint of {oldest.place} is {oldest.age_s / 3600:,.1f} h old and there are rows after it;"
            f" the topic keeps them for {kept_ms / 3_600_000:,.1f} h",
            "start the workers, or raise the topic's retention.ms first",
        )
    checkpoint = patient.settings.checkpoint
    needed_s = checkpoint.every_s + checkpoint.give_up_s
    if "delete" in topic.config["cleanup.policy"] and 0 <= kept_ms < 1000 * needed_s:
        return warning(
            f"topic {topic.name} keeps records for {kept_ms / 1000:g} s; a worker may wait for its store for"
            f" {needed_s:g} s (checkpoint.every_s and give_up_s), and the records may be removed by then",
            "raise the topic's retention.ms to days, or lower checkpoint.give_up_s",
        )
    if "compact" in topic.config["cleanup.policy"].split(","):
        return warning(
            f"topic {topic.name} is compacted: rows with the same key as a later one are lost before they are read",
            "set its cleanup.policy=delete",
        )
    kept = "for ever" if kept_ms < 0 else f"for {kept_ms / 3_600_000:,.1f} h"
    return good(f"all records after the checkpoints still exist; topic {topic.name} keeps records {kept}")


@dataclass(frozen=True, slots=True)
class _Unread:
    """A partition whose log has rows after its newest checkpoint, or no longer reaches back to it."""

    place: str
    next_offset: int
    low: int
    age_s: float


def _unread(patient: Patient, topic: Topic) -> list[_Unread]:
    admin, found = Admin(patient.properties, patient.hooks), []
    for partition, manifest in newest_manifests(patient).items():
        if partition >= len(topic.partitions):
            continue
        low, high = admin.watermarks(topic.name, partition, patient.timeout_s)
        if manifest.next_offset < max(low, high):
            age_s = patient.wall_clock() - manifest.written_at_s
            found.append(_Unread(f"{topic.name}/{partition}", manifest.next_offset, low, age_s))
    return found


_SEE_FEATURES = '"sfd-stream features" shows what becomes of each field'


def features(patient: Patient) -> Finding:
    if patient.settings.input.format == "msgpack":
        return skipped("input.format is msgpack: rows have their columns already")
    assert patient.preview is not None, "given with the other parts"
    found = patient.preview()
    if not found.messages:
        return skipped("the topic has no messages yet")
    if lines := found.warnings():
        return warning("; ".join(lines), _SEE_FEATURES)
    return good(f"{found.rows} rows of {found.messages} messages have {found.features:,} features")


def checks() -> Iterator[Check]:
    yield Check("topic", exists, "grant DESCRIBE on it, or correct input.topic", after=("broker",))
    yield Check("partitions", partitions, "check the topic's leaders and replicas", after=("topic",))
    yield from right_checks()
    yield Check("message size", message_size, "", after=("right to write",))
    yield Check("compaction", compaction, "", after=("right to write",))
    yield Check("retention", retention, "check the topic's leaders", after=("topic",))
    yield Check("features", features, _SEE_FEATURES, after=("topic", "right to read"))
