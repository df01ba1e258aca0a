"""The topics that settings name, as they should be: rows in, snapshots and merges compacted, dead letters kept."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from sfd_stream.config.model import Settings

_MESSAGE_MAX_BYTES: Final = 1_000_000  # librdkafka's own
SNAPSHOT_PARTITIONS: Final = 1
"""Of a new topic of snapshots or merges. One is enough: readers read them all, and in order."""
ROOM_BYTES: Final = 65_536
"""For a message's key, headers and batch, beyond its value."""


@dataclass(frozen=True, slots=True)
class WantedTopic:
    name: str
    partitions: int
    config: dict[str, str] = field(default_factory=dict)


def wanted_topics(settings: Settings, partitions: int) -> Iterator[WantedTopic]:
    """All that the settings name."""
    yield WantedTopic(settings.input.topic, partitions)
    if settings.snapshot.topic is not None:
        config = compacted_topic_config(settings.snapshot.inline_max_bytes)
        yield WantedTopic(settings.snapshot.topic, SNAPSHOT_PARTITIONS, config)
    if settings.dead_letters.topic is not None:
        size = settings.input.max_message_bytes + ROOM_BYTES  # a dead letter is a message with headers
        yield WantedTopic(settings.dead_letters.topic, partitions, {"max.message.bytes": str(size)})
    if settings.merge.topic is not None:
        yield WantedTopic(settings.merge.topic, SNAPSHOT_PARTITIONS, merge_topic_config(settings.kafka))
    if settings.score.topic is not None:
        yield WantedTopic(settings.score.topic, partitions)
        yield WantedTopic(settings.score_state_topic, SNAPSHOT_PARTITIONS, score_state_config())


def merge_topic_config(kafka: Mapping[str, Any]) -> dict[str, str]:
    """A merge is never published as a reference: as large as a message may be, it must fit."""
    return compacted_topic_config(int(kafka.get("message.max.bytes", _MESSAGE_MAX_BYTES)))


def compacted_topic_config(value_bytes: int) -> dict[str, str]:
    """Settings of a new topic for snapshots of at most this size."""
    size = max(value_bytes + ROOM_BYTES, 1_048_588)  # never below Kafka's own default
    return {"cleanup.policy": "compact", "max.message.bytes": str(size)}


def score_state_config() -> dict[str, str]:
    """Of a new topic for the scorer's states: small messages, often replaced, so that it is compacted soon."""
    often = {"segment.ms": "600000", "segment.bytes": str(16 * 2**20), "min.cleanable.dirty.ratio": "0.1"}
    return {**compacted_topic_config(0), **often}
