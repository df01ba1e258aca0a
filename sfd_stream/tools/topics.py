"""The topics that the settings name, and their configuration: input, snapshots, merges, dead letters, scores."""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

from sfd_stream.kafka.topics import ensure_topic

if TYPE_CHECKING:
    from sfd_stream.config.model import Settings
    from sfd_stream.kafka.admin import Admin

_MESSAGE_MAX_BYTES: Final = 1_000_000  # librdkafka's default
SNAPSHOT_PARTITIONS: Final = 1
"""Partitions of a new topic of snapshots or merges. One is enough: readers read the whole topic, in order."""
ROOM_BYTES: Final = 65_536
"""Bytes of a message's key, headers and batch, in addition to its value."""


@dataclass(frozen=True, slots=True)
class WantedTopic:
    name: str
    partitions: int
    config: dict[str, str] = field(default_factory=dict)


def wanted_topics(settings: Settings, partitions: int) -> Iterator[WantedTopic]:
    """All topics that the settings name."""
    yield WantedTopic(settings.input.topic, partitions)
    if settings.snapshot.topic is not None:
        yield compacted_topic(settings.snapshot.topic, settings.snapshot.inline_max_bytes)
    if settings.dead_letters.topic is not None:
        size = settings.input.max_message_bytes + ROOM_BYTES  # a dead letter is a message with headers
        yield WantedTopic(settings.dead_letters.topic, partitions, {"max.message.bytes": str(size)})
    if settings.merge.topic is not None:
        yield merge_topic(settings.merge.topic, settings.kafka)
    yield from score_topics(settings, partitions)


def merge_topic(name: str, kafka: Mapping[str, Any]) -> WantedTopic:
    """A topic for merges. A merge is never a reference, so the largest message must fit."""
    return compacted_topic(name, int(kafka.get("message.max.bytes", _MESSAGE_MAX_BYTES)))


def score_topics(settings: Settings, partitions: int) -> Iterator[WantedTopic]:
    """Scores have as many partitions as the input. Their states are small and often replaced: compacted frequently."""
    if settings.score.topic is not None:
        yield WantedTopic(settings.score.topic, partitions)
        often = {"segment.ms": "600000", "segment.bytes": str(16 * 2**20), "min.cleanable.dirty.ratio": "0.1"}
        yield compacted_topic(settings.score_state_topic, 0, often)


def compacted_topic(name: str, value_bytes: int, more: Mapping[str, str] | None = None) -> WantedTopic:
    """A topic that keeps the newest message of each key, with values of at most this size."""
    size = max(value_bytes + ROOM_BYTES, 1_048_588)  # not below Kafka's default
    config = {"cleanup.policy": "compact", "max.message.bytes": str(size), **(more or {})}
    return WantedTopic(name, SNAPSHOT_PARTITIONS, config)


def create_missing(admin: Admin, topics: Iterable[WantedTopic], timeout_s: float | None = None) -> None:
    """Creates the topics that do not exist; others are not changed. `timeout_s` is for a broker's first answer."""
    for topic in topics:
        ensure_topic(
            admin,
            topic.name,
            None,
            sleep=time.sleep,
            new_partitions=topic.partitions,
            config=topic.config,
            timeout_s=timeout_s,
        )
