"""Topics: whether one exists and how many partitions it has. Creates one that does not exist, if allowed.

BrokerUnavailableError if no broker answers in time: callers that can wait ask again.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final

from confluent_kafka import KafkaError, KafkaException
from confluent_kafka.admin import NewTopic  # type: ignore[attr-defined]

from sfd_stream.errors import BrokerRefusedError, BrokerUnavailableError, SettingsError
from sfd_stream.kafka.admin import SLICE_S
from sfd_stream.kafka.errors import CHECK_IT, is_unavailable

_BROKER_DEFAULT: Final = -1
_TIMEOUT_S: Final = 15.0
_RETRY_S: Final = 0.2


def ensure_topic(
    admin: Any,
    topic: str,
    partitions: int | None,
    *,
    sleep: Callable[[float], None],
    new_partitions: int | None = None,
    config: Mapping[str, str] | None = None,
    timeout_s: float | None = None,
) -> int:
    """The topic's number of partitions, which must be `partitions` where that is given.

    A topic that does not exist is created with `partitions`, or `new_partitions`, or the broker's default.
    `admin` is an `Admin`. `timeout_s`: time limit for the first answer of a broker.
    """
    cluster = listed(admin, timeout_s=timeout_s)
    found = _partitions_of(cluster, topic)
    if found is None:
        # The built-in broker has no controller: it creates a topic by itself when a client asks for it.
        if cluster.controller_id in cluster.brokers:
            create_topic(admin, topic, partitions or new_partitions, config or {})
        found = _await_partitions(admin, topic, sleep)
    if partitions is not None and found != partitions:
        raise SettingsError(f"topic {topic} has {found} partitions, not {partitions}; leave out --partitions")
    return found


def listed(admin: Any, topic: str | None = None, timeout_s: float | None = None) -> Any:
    """The cluster's metadata. Listing all topics creates none; asking for one by name may create it."""
    timeout_s = _TIMEOUT_S if timeout_s is None else timeout_s
    try:
        return admin.ask(lambda left_s: admin.list_topics(topic, timeout=min(left_s, SLICE_S)), timeout_s)
    except TimeoutError as error:
        raise unavailable(admin, str(error)) from None


def unavailable(admin: Any, words: str) -> BrokerUnavailableError:
    reason = f" ({admin.outage.words})" if admin.outage.words else ""
    return BrokerUnavailableError(f"{words}{reason}; {CHECK_IT}")


def _partitions_of(cluster: Any, topic: str) -> int | None:
    """None while the topic does not exist or a partition of it has no leader."""
    metadata = cluster.topics.get(topic)
    if metadata is None or metadata.error is not None or not metadata.partitions:
        return None
    has_leaders = all(partition.leader >= 0 for partition in metadata.partitions.values())
    return len(metadata.partitions) if has_leaders else None


def create_topic(
    admin: Any, topic: str, partitions: int | None, config: Mapping[str, str], replication_factor: int | None = None
) -> bool:
    """Creates the topic and returns True; False if it exists already (it is not changed)."""
    cluster, default = listed(admin), _BROKER_DEFAULT
    new = NewTopic(topic, partitions or default, replication_factor or default, config=dict(config))
    try:
        admin.create_topics([new], operation_timeout=_TIMEOUT_S, request_timeout=_TIMEOUT_S)[topic].result()
    except KafkaException as error:
        cause = error.args[0]
        if cause.code() == KafkaError.TOPIC_ALREADY_EXISTS:
            return False
        if is_unavailable(cause):
            words = f"topic {topic} was not created within {_TIMEOUT_S:.0f} s ({cause.name()})"
            raise unavailable(admin, words) from None
        raise BrokerRefusedError(
            f"topic {topic} does not exist and can't be created ({cause.name()}: {cause.str()}); grant CREATE on it, or"
            f" create it, for example with kafka-topics.sh --bootstrap-server {_address(cluster)} --create"
            f" --topic {topic} --partitions {partitions or 1}"
            + "".join(f" --config {name}={value}" for name, value in config.items())
        ) from error
    return True


def _address(cluster: Any) -> str:
    return ",".join(f"{broker.host}:{broker.port}" for broker in list(cluster.brokers.values())[:3])


def _await_partitions(admin: Any, topic: str, sleep: Callable[[float], None]) -> int:
    for _ in range(int(_TIMEOUT_S / _RETRY_S)):
        found = _partitions_of(listed(admin, topic), topic)
        if found is not None:
            return found
        sleep(_RETRY_S)
    raise BrokerUnavailableError(f"topic {topic} was created but has no leaders after {_TIMEOUT_S:.0f} s; try again")
