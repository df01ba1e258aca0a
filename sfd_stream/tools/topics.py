"""The topics that settings name, as they should be made: rows in, snapshots and merges compacted, dead letters kept."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

from confluent_kafka import KafkaError, KafkaException
from confluent_kafka.admin import NewTopic  # type: ignore[attr-defined]

from sfd_stream.errors import BrokerRefusedError
from sfd_stream.kafka.errors import is_away
from sfd_stream.kafka.outage import SLICE_S
from sfd_stream.kafka.topics import unavailable

if TYPE_CHECKING:
    from sfd_stream.config.model import Settings

_BROKER_DEFAULT: Final = -1
_TIMEOUT_S: Final = 30.0
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


def make_topic(admin: Any, topic: WantedTopic, replication_factor: int | None) -> bool:
    """Make it and say True, or say False where it is there already; nothing is changed about one that is."""
    try:
        admin.ask(lambda left_s: admin.list_topics(timeout=min(left_s, SLICE_S)), _TIMEOUT_S)
    except TimeoutError as error:
        raise unavailable(admin, str(error)) from None
    new = NewTopic(topic.name, topic.partitions, replication_factor or _BROKER_DEFAULT, config=topic.config)
    try:
        admin.create_topics([new], operation_timeout=_TIMEOUT_S, request_timeout=_TIMEOUT_S)[topic.name].result()
    except KafkaException as error:
        cause = error.args[0]
        if cause.code() == KafkaError.TOPIC_ALREADY_EXISTS:
            return False
        if is_away(cause):
            words = f"topic {topic.name} was not created within {_TIMEOUT_S:.0f} s ({cause.name()})"
            raise unavailable(admin, words) from None
        raise BrokerRefusedError(
            f"topic {topic.name} can't be made ({cause.name()}: {cause.str()}); grant CREATE on it, or make it with"
            f" {topic.partitions} partitions and {topic.config or 'no settings of its own'}"
        ) from error
    return True
