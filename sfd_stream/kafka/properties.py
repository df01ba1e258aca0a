"""librdkafka properties: the user's pass through, the protocol's are refused with a reason.

One `kafka:` section serves all clients: each takes the properties that concern it and leaves the others.
Pure functions; no secret reaches a message.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from sfd_stream.errors import SettingsError

if TYPE_CHECKING:
    from collections.abc import Mapping

# What the protocol owns, and why. The keys are refused whatever their value.
_OWNED = {
    "enable.auto.commit": "offsets are committed after the checkpoint that holds them, never by a timer",
    "auto.commit.interval.ms": "offsets are committed after the checkpoint that holds them, never by a timer",
    "enable.auto.offset.store": "offsets are committed after the checkpoint that holds them",
    "auto.offset.reset": "a lost position stops the worker; set input.start for a new partition",
    "enable.partition.eof": "the end of a partition is seen by its position",
    "enable.idempotence": "dead letters and snapshots must not be doubled by retries",
    "acks": "an acknowledged message must survive a broker",
    "request.required.acks": "an acknowledged message must survive a broker",
    "transactional.id": "set snapshot.delivery: transactional instead",
    "delivery.report.only.error": "every delivery report counts",
}
# Callbacks of the Python client, which are not properties.
_CALLBACKS = (
    "error_cb",
    "stats_cb",
    "throttle_cb",
    "oauth_cb",
    "on_commit",
    "on_delivery",
    "logger",
    "log_cb",
)
# KIP-848 leaves these to the broker, and librdkafka refuses them.
_CLASSIC_ONLY = {
    "session.timeout.ms": "the group's consumer.session.timeout.ms on the broker",
    "heartbeat.interval.ms": "the group's consumer.heartbeat.interval.ms on the broker",
    "partition.assignment.strategy": "group.remote.assignor",
    "group.protocol.type": "nothing",
}
_CONSUMER_ONLY = (
    "group.", "session.timeout.ms", "heartbeat.interval.ms", "max.poll.interval.ms", "enable.auto.",
    "auto.commit.",
    "auto.offset.reset", "queued.", "fetch.", "max.partition.fetch.bytes", "partition.assignment.strategy",
    "coordinator.query.interval.ms", "offset.store.", "consume.", "enable.partition.eof", "check.crcs",
    "isolation.level", "client.rack", "allow.auto.create.topics",
)  # fmt: skip
_PRODUCER_ONLY = (
    "transaction", "enable.idempotence", "enable.gapless.guarantee", "queue.buffering.", "linger.ms",
    "message.send.max.retries", "retries", "batch.", "compression.", "sticky.partitioning.linger.ms",
    "delivery.", "acks", "request.required.acks", "request.timeout.ms", "message.timeout.ms", "partitioner",
    "queuing.strategy", "dr_",
)  # fmt: skip
_SECRET_ENDINGS = (
    "password",
    "secret",
    "token",
    "key",
    "pem",
    "sasl.jaas.config",
    "username",
    "oauthbearer.config",
)

_CLIENT = {
    "client.id": "sfd-stream",
    "socket.keepalive.enable": True,
    "allow.auto.create.topics": False,  # a mistyped input topic must not come into being
}
_CONSUMER = {
    "enable.auto.commit": False,
    "enable.auto.offset.store": False,
    "auto.offset.reset": "error",
    "enable.partition.eof": False,
}
_CONSUMER_DEFAULTS = {
    # Prefetched messages are the client's memory: both bounds hold, whichever is met first.
    "queued.max.messages.kbytes": 65_536,
    "queued.min.messages": 100_000,
    # With librdkafka's 1,000 ms a full queue runs dry before the next fetch.
    "fetch.queue.backoff.ms": 20,
    # New partitions are seen within this time (librdkafka: five minutes).
    "topic.metadata.refresh.interval.ms": 30_000,
}
_PRODUCER = {"enable.idempotence": True, "acks": "all"}
COOPERATIVE = "cooperative-sticky"


def consumer_properties(user: Mapping[str, Any]) -> dict[str, Any]:
    """What the consumer is made of. SettingsError names what is refused, why, and what to set instead."""
    _check(user)
    if not user.get("group.id"):
        raise SettingsError("kafka: group.id is not set; it names the consumer group, and the checkpoints with it")
    properties = {**_CLIENT, **_CONSUMER_DEFAULTS, **_without(user, _PRODUCER_ONLY), **_CONSUMER}
    if uses_new_protocol(user):
        for key, instead in _CLASSIC_ONLY.items():
            if key in user:
                raise SettingsError(f"kafka: {key} can't be set with group.protocol=consumer; set {instead}")
    else:
        properties.setdefault("partition.assignment.strategy", COOPERATIVE)
    return properties


def producer_properties(user: Mapping[str, Any]) -> dict[str, Any]:
    """What the producer is made of: idempotent, acknowledged by all in-sync replicas."""
    _check(user)
    return {**_without(_CLIENT, _CONSUMER_ONLY), **_without(user, _CONSUMER_ONLY), **_PRODUCER}


def admin_properties(user: Mapping[str, Any]) -> dict[str, Any]:
    """What is left without a consumer's and a producer's own properties: addresses and security."""
    _check(user)
    return _without(_without({**_CLIENT, **user}, _CONSUMER_ONLY), _PRODUCER_ONLY)


def uses_new_protocol(properties: Mapping[str, Any]) -> bool:
    """KIP-848: the broker assigns, step by step."""
    return str(properties.get("group.protocol", "classic")).lower() == "consumer"


def assigns_incrementally(properties: Mapping[str, Any]) -> bool:
    """Whether partitions come and go one by one (cooperative, KIP-848) or all at once (eager)."""
    return uses_new_protocol(properties) or properties.get("partition.assignment.strategy") == COOPERATIVE


def redacted(text: str, properties: Mapping[str, Any]) -> str:
    """The text without any value that could be a secret."""
    for key, value in properties.items():
        if key.endswith(_SECRET_ENDINGS) and str(value):
            text = text.replace(str(value), "***")
    return text


def _check(user: Mapping[str, Any]) -> None:
    if not user.get("bootstrap.servers") and not user.get("metadata.broker.list"):
        raise SettingsError("kafka: bootstrap.servers is not set; it is the address of the brokers, host:port")
    for key in user:
        if key in _OWNED:
            raise SettingsError(f"kafka: {key} can't be set: {_OWNED[key]}")
        if key in _CALLBACKS:
            raise SettingsError(f"kafka: {key} is not a librdkafka property")


def _without(properties: Mapping[str, Any], prefixes: tuple[str, ...]) -> dict[str, Any]:
    return {key: value for key, value in properties.items() if not key.startswith(prefixes)}
