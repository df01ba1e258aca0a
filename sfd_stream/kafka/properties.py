"""librdkafka properties: the user's are passed on; those that the protocol needs are refused, with a reason.

One `kafka:` section serves all clients: each takes the properties that concern it and ignores the others. Pure
functions; no secret reaches a message.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from sfd_stream.errors import SettingsError

_COMMIT: Final = "offsets are committed only after a checkpoint is durable"
_START: Final = "a partition starts where its checkpoint says; for a new one set input.start"
_REPORTS: Final = "a snapshot counts as published only when every replica has it"
_CALLBACK: Final = "it takes a function or an object, which a setting can't be"

OWNED: Final[Mapping[str, str]] = {
    "enable.auto.commit": _COMMIT,
    "auto.commit.enable": _COMMIT,
    "auto.commit.interval.ms": _COMMIT,
    "enable.auto.offset.store": _COMMIT,
    "offset.store.method": _COMMIT,
    "offset.store.path": _COMMIT,
    "offset.store.sync.interval.ms": _COMMIT,
    "auto.offset.reset": _START,
    "enable.partition.eof": "the worker asks the broker for the end offsets itself",
    "enable.idempotence": "snapshots need the idempotent producer; choose by snapshot.delivery",
    "enable.gapless.guarantee": "the worker decides what follows a failed delivery",
    "transactional.id": "it is made from the group and the worker; choose by snapshot.delivery",
    "acks": _REPORTS,
    "request.required.acks": _REPORTS,
    "delivery.report.only.error": _REPORTS,
    "log.queue": "librdkafka's log lines go into ours",
    "metadata.broker.list": "it is another name of bootstrap.servers; set that instead",
    "test.mock.num.brokers": "it would start a broker in every client; set bootstrap.servers instead",
    "default_topic_conf": "topic properties stand directly under kafka",
    "default.topic.config": "topic properties stand directly under kafka",
    **dict.fromkeys(("logger", "opaque", "interceptors", "on_commit", "on_delivery", "msg_order_cmp"), _CALLBACK),
    **dict.fromkeys(("ssl_key", "ssl_certificate", "ssl_ca", "ssl_engine_callback_data"), _CALLBACK),
}

CONSUMER_ONLY: Final = frozenset(
    """
    allow.auto.create.topics check.crcs consume.callback.max.messages coordinator.query.interval.ms
    fetch.error.backoff.ms fetch.max.bytes fetch.message.max.bytes fetch.min.bytes fetch.queue.backoff.ms
    fetch.wait.max.ms group.id group.instance.id group.protocol group.protocol.type group.remote.assignor
    heartbeat.interval.ms isolation.level max.partition.fetch.bytes max.poll.interval.ms
    partition.assignment.strategy queued.max.messages.kbytes queued.min.messages session.timeout.ms
    """.split()  # noqa: SIM905 - a table of names reads better than 200 quoted ones
)
PRODUCER_ONLY: Final = frozenset(
    """
    batch.num.messages batch.size compression.codec compression.level compression.type delivery.timeout.ms
    linger.ms message.send.max.retries message.timeout.ms partitioner produce.offset.report
    queue.buffering.backpressure.threshold queue.buffering.max.kbytes queue.buffering.max.messages
    queue.buffering.max.ms queuing.strategy request.timeout.ms retries sticky.partitioning.linger.ms
    transaction.timeout.ms
    """.split()  # noqa: SIM905 - a table of names reads better than 200 quoted ones
)

# KIP-848 leaves these to the broker, and librdkafka refuses them.
_CLASSIC_ONLY = {
    "session.timeout.ms": "the group's consumer.session.timeout.ms on the broker",
    "heartbeat.interval.ms": "the group's consumer.heartbeat.interval.ms on the broker",
    "partition.assignment.strategy": "group.remote.assignor",
    "group.protocol.type": "nothing",
}
_GROUP = ("group.", "session.timeout.ms", "heartbeat.interval.ms", "max.poll.interval.ms", "partition.assignment.")
_SECRET_ENDINGS = ("password", "secret", "token", "key", "pem", "sasl.jaas.config", "username", "oauthbearer.config")

_CLIENT = {
    "client.id": "sfd-stream",
    "socket.keepalive.enable": True,
    "allow.auto.create.topics": False,  # a mistyped input topic must not be created
}
_CONSUMER = {
    "enable.auto.commit": False,
    "enable.auto.offset.store": False,
    "auto.offset.reset": "error",
    "enable.partition.eof": False,
}
_CONSUMER_DEFAULTS = {
    # Prefetched messages use the client's memory. It has two bounds; the first that is reached holds. The client counts
    # bytes of messages only, and needs some 420 more for each. Both bounds at once are within QUEUES_BYTES (sizing.py).
    "queued.max.messages.kbytes": 32_768,
    "queued.min.messages": 60_000,
    # With librdkafka's 1,000 ms a full queue is empty before the next fetch.
    "fetch.queue.backoff.ms": 20,
    # New partitions are found within this time (librdkafka: five minutes).
    "topic.metadata.refresh.interval.ms": 30_000,
}
_PRODUCER = {"enable.idempotence": True, "acks": "all"}
COOPERATIVE = "cooperative-sticky"


def consumer_properties(user: Mapping[str, Any]) -> dict[str, Any]:
    """The consumer's properties. SettingsError names each refused property, why, and what to set instead."""
    _check(user)
    if not user.get("group.id"):
        raise SettingsError("kafka: group.id is not set; it names the consumer group, and the checkpoints with it")
    properties = {**_CLIENT, **_CONSUMER_DEFAULTS, **for_consumer(user), **_CONSUMER}
    if uses_new_protocol(user):
        for key, instead in _CLASSIC_ONLY.items():
            if key in user:
                raise SettingsError(f"kafka: {key} can't be set with group.protocol=consumer; set {instead}")
    else:
        properties.setdefault("partition.assignment.strategy", COOPERATIVE)
    return properties


def tail_properties(user: Mapping[str, Any]) -> dict[str, Any]:
    """Properties for a reader of a whole topic: it joins no group, commits nothing, reads committed records only."""
    alone = {key: value for key, value in user.items() if not key.startswith(_GROUP)}
    properties = consumer_properties({**alone, "group.id": "sfd-stream-reader"})
    # If the log no longer has the next record, the reader continues at the first one: only the newest snapshots count.
    ours = {"auto.offset.reset": "earliest", "enable.partition.eof": True, "isolation.level": "read_committed"}
    return {**properties, **ours}


def group_properties(user: Mapping[str, Any]) -> dict[str, Any]:
    """Properties of the client that asks for a group's committed offsets. It has the group's id and never joins.

    With read_committed the broker answers only once no transaction on these offsets is open.
    """
    alone = {key: value for key, value in user.items() if key == "group.id" or not key.startswith(_GROUP)}
    return {**consumer_properties(alone), "isolation.level": "read_committed"}


def producer_properties(user: Mapping[str, Any]) -> dict[str, Any]:
    """The producer's properties: idempotent, acknowledged by all in-sync replicas."""
    _check(user)
    return {**for_producer(_CLIENT), **for_producer(user), **_PRODUCER}


def admin_properties(user: Mapping[str, Any]) -> dict[str, Any]:
    """The properties without those of consumers and producers: addresses and security."""
    _check(user)
    return for_admin({**_CLIENT, **user})


def owned_reason(name: str) -> str | None:
    """Why the protocol needs this property, or None if the user may set it."""
    return _CALLBACK if name.endswith("_cb") else OWNED.get(name)


def for_consumer(properties: Mapping[str, Any]) -> dict[str, Any]:
    """The properties without those that only a producer takes, at which a consumer would warn."""
    return {name: value for name, value in properties.items() if name not in PRODUCER_ONLY}


def for_producer(properties: Mapping[str, Any]) -> dict[str, Any]:
    """The properties without those that only a consumer takes, at which a producer would warn."""
    return {name: value for name, value in properties.items() if name not in CONSUMER_ONLY}


def for_admin(properties: Mapping[str, Any]) -> dict[str, Any]:
    """The properties that every client takes."""
    return for_consumer(for_producer(properties))


def uses_new_protocol(properties: Mapping[str, Any]) -> bool:
    """Whether the broker assigns partitions, step by step (KIP-848)."""
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
        reason = owned_reason(key)
        if reason is not None:
            raise SettingsError(f"kafka: {key} can't be set: {reason}")
