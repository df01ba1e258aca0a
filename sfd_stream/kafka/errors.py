"""Errors of the client, sorted by what a worker does about them. Pure: no clock, no client.

PASSING       wait: the client tries again by itself (brokers down, leaders moving)
REFUSED       waiting does not help (rights, credentials, fatal): exit 5
OUTSIDE_LOG   the position is not in the log any more, or not yet: exit 3
UNKNOWN_TOPIC no such topic: permanent only if it lasts, since a restarting broker reports it too
EXPELLED      this member polled too late and has lost its partitions
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from enum import Enum
from typing import Any, TypeVar

from confluent_kafka import KafkaError, KafkaException

from sfd_stream.errors import BrokerRefusedError, SettingsError
from sfd_stream.kafka.properties import redacted

T = TypeVar("T")


class Fault(Enum):
    PASSING = "passing"
    REFUSED = "refused"
    OUTSIDE_LOG = "outside the log"
    UNKNOWN_TOPIC = "unknown topic"
    EXPELLED = "expelled"


@dataclass(frozen=True)
class Hooks:
    """Callbacks of a client: log, statistics, tokens. Called by the thread that polls it."""

    logger: logging.Logger = field(default_factory=lambda: logging.getLogger("sfd_stream.kafka"))
    on_statistics: Callable[[str], None] | None = None  # librdkafka's JSON, every statistics.interval.ms
    oauth_token: Callable[[str], tuple[Any, ...]] | None = None  # see oauth.py

    def as_properties(self, properties: Mapping[str, Any]) -> dict[str, Any]:
        found: dict[str, Any] = {"logger": self.logger}
        if self.on_statistics is not None:
            found["stats_cb"] = self.on_statistics
            found["statistics.interval.ms"] = properties.get("statistics.interval.ms", 5_000)
        if self.oauth_token is not None:
            found["oauth_cb"] = self.oauth_token
        return found


_INVALID = (
    "a topic does not accept a record that is written to it: a score has the timestamp and the key of its row; raise"
    " the topic's message.timestamp.after.max.ms and message.timestamp.before.max.ms, and do not compact it"
)
_WORDS = {
    KafkaError.TOPIC_AUTHORIZATION_FAILED: "no right to the topic: grant DESCRIBE, and READ or WRITE",
    KafkaError.GROUP_AUTHORIZATION_FAILED: "no right to the consumer group: grant READ on it",
    KafkaError.CLUSTER_AUTHORIZATION_FAILED: "no right to the cluster: grant IDEMPOTENT_WRITE",
    KafkaError.TRANSACTIONAL_ID_AUTHORIZATION_FAILED: "no right to the transactional id: grant WRITE on it",
    KafkaError._AUTHENTICATION: "unknown credentials: check the sasl.* or ssl.* properties",
    KafkaError.SASL_AUTHENTICATION_FAILED: "unknown credentials: check the sasl.* properties",
    KafkaError.UNSUPPORTED_SASL_MECHANISM: "the broker does not offer this sasl.mechanisms",
    KafkaError.ILLEGAL_SASL_STATE: "the listener does not want SASL: check security.protocol",
    KafkaError.FENCED_INSTANCE_ID: "another member has this group.instance.id: give each worker its own",
    KafkaError.UNRELEASED_INSTANCE_ID: "another member has this group.instance.id: give each worker its own",
    KafkaError.INVALID_SESSION_TIMEOUT: "session.timeout.ms is outside what the broker allows",
    KafkaError.INCONSISTENT_GROUP_PROTOCOL: "members of the group use other strategies or protocols",
    KafkaError.INVALID_GROUP_ID: "the broker does not take this group.id",
    KafkaError.GROUP_MAX_SIZE_REACHED: "the group has as many members as the broker allows",
    KafkaError.UNSUPPORTED_VERSION: "the broker is too old for what was asked",
    KafkaError.UNSUPPORTED_ASSIGNOR: "the broker does not know this group.remote.assignor",
    KafkaError.UNSUPPORTED_COMPRESSION_TYPE: "messages are compressed in a way that this client can't read",
    KafkaError.INVALID_TIMESTAMP: _INVALID,
    KafkaError.INVALID_RECORD: _INVALID,
    KafkaError._NOT_IMPLEMENTED: "messages are stored in a way that this client can't read",
    KafkaError._BAD_COMPRESSION: "a message can't be decompressed: the log is damaged there",
    KafkaError._BAD_MSG: "a message fails its checksum: the log is damaged there",
    KafkaError._CRIT_SYS_RESOURCE: "the machine has no more memory, threads or files for the client",
}
_RECEIVE_MAX = "receive.message.max.bytes"
_OUTSIDE = {KafkaError._AUTO_OFFSET_RESET, KafkaError.OFFSET_OUT_OF_RANGE, KafkaError._LOG_TRUNCATION}
_NO_TOPIC = {KafkaError.UNKNOWN_TOPIC_OR_PART, KafkaError._UNKNOWN_TOPIC, KafkaError._UNKNOWN_PARTITION}


def fault_of(error: KafkaError) -> Fault:
    """Unknown errors are treated as temporary: waiting is safer than stopping on a guess."""
    code = error.code()
    if code == KafkaError._MAX_POLL_EXCEEDED:
        return Fault.EXPELLED
    if code in _OUTSIDE:
        return Fault.OUTSIDE_LOG
    if code in _NO_TOPIC:
        return Fault.UNKNOWN_TOPIC
    if error.fatal() or code in _WORDS:
        return Fault.REFUSED
    return Fault.PASSING


_AWAY = {KafkaError._TRANSPORT, KafkaError._TIMED_OUT, KafkaError._ALL_BROKERS_DOWN, KafkaError._RESOLVE}


def is_unavailable(error: KafkaError) -> bool:
    """Whether no broker answered. A controller whose brokers are all restarting answers for them, with the code for a
    wrong replication factor.
    """
    restarting = error.code() == KafkaError.INVALID_REPLICATION_FACTOR and "brokers are currently fenced" in error.str()
    return restarting or error.code() in _AWAY


CHECK_IT = 'is it up, and is kafka.bootstrap.servers right? "sfd-stream doctor" tries it'


def lasts(error: KafkaError) -> bool:
    """Whether a new client would fail in the same way: rights, credentials, versions."""
    return error.code() in _WORDS


def refusal(error: KafkaError, properties: Mapping[str, Any]) -> BrokerRefusedError:
    """The error to raise. Its message says what to do."""
    advice = _WORDS.get(error.code(), "the client cannot continue after a fatal error: start it again")
    if error.code() == KafkaError._BAD_MSG and _RECEIVE_MAX in error.str():  # one code for two causes
        advice = f"a record is larger than the client accepts: raise kafka.{_RECEIVE_MAX}"
    return BrokerRefusedError(f"{address(properties)} refused: {advice} ({described(error, properties)})")


def described(error: KafkaError, properties: Mapping[str, Any]) -> str:
    """The error's name and words, without secrets."""
    return f"{error.name()}: {redacted(error.str(), properties)}"


def address(properties: Mapping[str, Any]) -> str:
    return str(properties.get("bootstrap.servers") or properties.get("metadata.broker.list"))


def error_of(exception: KafkaException) -> KafkaError:
    error: KafkaError = exception.args[0]
    return error


def create(client: Callable[[dict[str, Any]], T], properties: dict[str, Any]) -> T:
    """A new client. SettingsError if a property is wrong: librdkafka names it, and its value may be a secret."""
    try:
        return client(properties)
    except KafkaException as exception:
        raise SettingsError(f"kafka: {redacted(error_of(exception).str(), properties)}") from None
