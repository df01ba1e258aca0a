"""Checks the permissions that a worker needs, without leaving anything behind.

read          fetches the newest record, without joining a group and without a commit
write         asks the broker's authorizer: a written message stays in the log, even of an aborted transaction
group         asks the authorizer: joining the group would make its members rebalance
create        a request to create the output topic that the broker only validates
transactions  initialises an id with a timeout that no broker allows: it checks the right first, and writes nothing
"""

from __future__ import annotations

import time
import uuid
from collections.abc import Iterator
from typing import Any, Final

from confluent_kafka import Consumer, KafkaError, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import AclOperation, NewTopic  # type: ignore[attr-defined]

from sfd_stream.doctor.check import Check, Finding, failed, good, skipped
from sfd_stream.doctor.context import Patient
from sfd_stream.errors import BrokerRefusedError
from sfd_stream.kafka.errors import Fault, create, error_of, fault_of, refusal
from sfd_stream.kafka.properties import producer_properties, tail_properties
from sfd_stream.tools.topics import wanted_topics

_LONGEST_MS: Final = 2**31 - 1
_FETCH_S: Final = 5.0
READ: Final = AclOperation.READ
WRITE: Final = AclOperation.WRITE


def read(patient: Patient) -> Finding:
    topic = patient.settings.input.topic
    if lacking := lacks(patient, topic, READ):
        return lacking
    newest = newest_record(patient)
    result = "it is empty" if newest is None else f"read offset {newest.offset()} of {topic}/0"
    return good(f"READ on topic {topic}; {result}")


def newest_record(patient: Patient) -> Any:
    """The last record of partition 0; None if the log is empty or does not return one in time."""
    properties = {**tail_properties(patient.settings.kafka), **patient.hooks.as_properties({})}
    consumer = create(Consumer, properties)
    where = TopicPartition(patient.settings.input.topic, 0)
    try:
        low, high = consumer.get_watermark_offsets(where, timeout=patient.timeout_s)
        where.offset = max(low, high - 1)
        consumer.assign([where])
        return _fetched(consumer, properties) if high > low else None
    except KafkaException as exception:
        if fault_of(error_of(exception)) is Fault.REFUSED:
            raise refusal(error_of(exception), properties) from None
        raise TimeoutError(error_of(exception).str()) from None
    finally:
        consumer.close()


def _fetched(consumer: Any, properties: dict[str, Any]) -> Any:
    deadline = time.monotonic() + _FETCH_S
    while time.monotonic() < deadline:
        message = consumer.poll(0.2)
        if message is None:
            continue
        if message.error() is None:
            return message
        if message.error().code() == KafkaError._PARTITION_EOF:  # noqa: SLF001 - librdkafka's own codes
            return None  # the end marker of a transaction, or a compacted record
        if fault_of(message.error()) is Fault.REFUSED:
            raise refusal(message.error(), properties)
    return None


def write(patient: Patient) -> Finding:
    """READ is needed on the snapshot topic, too: a new state reads the last epoch there."""
    snapshots, held = patient.settings.snapshot.topic, []
    for name in patient.topics_written():
        if patient.topic(name) is None:
            if name == snapshots:
                may_create(patient, name)
                held.append(f"{name} does not exist, and may be created")
        elif lacking := lacks(patient, name, WRITE, *([READ] if name == snapshots else [])):
            return lacking
        else:
            held.append(f"WRITE on {name}")
    return good(", ".join(held)) if held else skipped("no snapshot.topic and no dead_letters.topic to write to")


def lacks(patient: Patient, name: str, *needed: AclOperation) -> Finding | None:
    """The finding if one of these rights on a topic that exists is missing."""
    found = patient.topic(name)
    assert found is not None, "checked before"
    missing = " and ".join(sorted(operation.name for operation in set(needed) - found.allowed))
    if not missing:
        return None
    return failed(f"no {missing} on topic {name}", f"grant {missing} on topic {name} to this user")


def may_create(patient: Patient, name: str) -> None:
    wanted = next(topic for topic in wanted_topics(patient.settings, 1) if topic.name == name)
    new = NewTopic(name, wanted.partitions, -1, config=wanted.config)

    def question(left_s: float) -> Any:
        return patient.admin.create_topics([new], validate_only=True, request_timeout=left_s)[name].result(left_s)

    try:
        patient.ask(question)
    except BrokerRefusedError:
        raise BrokerRefusedError(
            f"topic {name} does not exist, and this user may not create it; grant CREATE on it, or create it:"
            ' "sfd-stream topics --partitions N"'
        ) from None


def group(patient: Patient) -> Finding:
    return may_join(patient, patient.settings.group)


def may_join(patient: Patient, name: str) -> Finding:
    def question(left_s: float) -> Any:
        asked = patient.admin.describe_consumer_groups(
            [name], include_authorized_operations=True, request_timeout=left_s
        )
        return asked[name].result(left_s)

    found = patient.ask(question)
    if READ not in (found.authorized_operations or ()):
        return failed(f"no READ on group {name}", f"grant READ on group {name} to this user")
    return good(f"READ on group {name}")


def transactions(patient: Patient) -> Finding:
    settings = patient.settings
    if settings.snapshot.topic is None or settings.snapshot.delivery != "transactional":
        return skipped("snapshot.delivery is not transactional")
    return may_transact(patient, settings.group)


def may_transact(patient: Patient, group_name: str) -> Finding:
    own = {"transactional.id": f"{group_name}-{uuid.uuid4().hex}", "transaction.timeout.ms": _LONGEST_MS}
    properties = {**producer_properties(patient.settings.kafka), **own, **patient.hooks.as_properties({})}
    try:
        Producer(properties).init_transactions(patient.timeout_s)
    except KafkaException as exception:
        error = error_of(exception)
        if error.code() == KafkaError.TRANSACTIONAL_ID_AUTHORIZATION_FAILED:
            raise refusal(error, patient.properties) from None
        if error.code() != KafkaError.INVALID_TRANSACTION_TIMEOUT:
            raise TimeoutError(f"{error.name()}: {error.str()}") from None
    return good(f"WRITE on transactional ids that begin with {group_name}")


def checks() -> Iterator[Check]:
    described = "grant DESCRIBE, and READ or WRITE, as docs/guides/deploying.md lists them"
    yield Check("right to read", read, described, after=("topic",))
    yield Check("right to write", write, described, after=("broker",))
    yield Check("right to the group", group, "grant READ on the group to this user", after=("broker",))
    prefixed = "grant WRITE and DESCRIBE on transactional ids that begin with the group's name"
    yield Check("right to transactions", transactions, prefixed, after=("broker",))
