"""What the checks examine: the settings, and the parts built from them. Each answer is requested once and kept."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, Final

from confluent_kafka import KafkaError, KafkaException, TopicCollection
from confluent_kafka.admin import (  # type: ignore[attr-defined]
    AclOperation,
    AdminClient,
    ConfigResource,
    ResourceType,
)

from sfd_stream.config.container_limits import Quota
from sfd_stream.config.model import Settings
from sfd_stream.errors import StoreError
from sfd_stream.kafka.errors import Fault, Hooks, create, error_of, fault_of
from sfd_stream.kafka.outage import ask
from sfd_stream.kafka.properties import admin_properties
from sfd_stream.state.manifest import Manifest
from sfd_stream.state.partition import Shape
from sfd_stream.storage.contract import Store
from sfd_stream.tools import inspect
from sfd_stream.tools.preview import Preview

_METADATA_S: Final = 0.3
"""Time limit of one metadata request; after it the client's errors are examined."""


@dataclass(frozen=True, slots=True)
class MetadataAnswer:
    """The answer of the brokers: their metadata, or only errors."""

    metadata: Any
    errors: tuple[KafkaError, ...]

    def error(self, *codes: int) -> KafkaError | None:
        return next((error for error in self.errors if error.code() in codes), None)


@dataclass(frozen=True, slots=True)
class Topic:
    """A topic as its brokers describe it. `allowed` are our rights; `config` is None without the right to read it."""

    name: str
    partitions: tuple[Any, ...]
    allowed: frozenset[Any]
    config: dict[str, str] | None


@dataclass
class Patient:
    """`timeout_s` limits one request to a broker."""

    settings: Settings
    hooks: Hooks
    store: Store
    shape: Shape
    quota: Quota
    wall_clock: Callable[[], float]
    timeout_s: float = 15.0
    preview: Callable[[], Preview] | None = None
    """Reads a sample of the topic's records."""
    _topics: dict[str, Topic | None] = field(default_factory=dict)

    @cached_property
    def properties(self) -> dict[str, Any]:
        return admin_properties(self.settings.kafka)

    @cached_property
    def answer(self) -> MetadataAnswer:
        """The metadata answer, requested by librdkafka as by a worker. Returns as soon as every broker was tried."""
        errors: list[KafkaError] = []
        hooks: dict[str, Any] = {**self.hooks.as_properties({}), "error_cb": errors.append}
        client = create(AdminClient, {**self.properties, **hooks})
        deadline = time.monotonic() + self.timeout_s
        while time.monotonic() < deadline:
            try:
                return MetadataAnswer(client.list_topics(timeout=_METADATA_S), tuple(errors))
            except KafkaException:
                client.poll(0)
            if any(error.code() == KafkaError._ALL_BROKERS_DOWN for error in errors):  # noqa: SLF001 - librdkafka's
                break
        return MetadataAnswer(None, tuple(errors))

    @cached_property
    def admin(self) -> AdminClient:
        return AdminClient({**self.properties, **self.hooks.as_properties({})})

    def ask(self, question: Callable[[float], Any]) -> Any:
        """Repeats a request until it is answered or `timeout_s` has passed. A refusal raises BrokerRefusedError."""
        return ask(question, self.timeout_s, self.properties)

    def topic(self, name: str) -> Topic | None:
        """None if the topic does not exist."""
        if name not in self._topics:
            self._topics[name] = self._described(name)
        return self._topics[name]

    @property
    def partitions_known(self) -> int | None:
        """The number of partitions of the input topic, if it was described already. Makes no request."""
        found = self._topics.get(self.settings.input.topic)
        return None if found is None else len(found.partitions)

    def topics_written(self) -> Iterator[str]:
        """The names of the topics that a worker writes to."""
        given = (self.settings.snapshot.topic, self.settings.dead_letters.topic)
        return (name for name in given if name is not None)

    def _described(self, name: str) -> Topic | None:
        def question(left_s: float) -> Any:
            wanted = TopicCollection([name])
            asked = self.admin.describe_topics(wanted, include_authorized_operations=True, request_timeout=left_s)
            try:
                return asked[name].result(left_s)
            except KafkaException as exception:
                if fault_of(error_of(exception)) is Fault.UNKNOWN_TOPIC:
                    return None
                raise

        found = self.ask(question)
        if found is None:
            return None
        allowed = frozenset(found.authorized_operations or ())
        # Without the right to do so, the client never gets an answer.
        config = self._config(name) if AclOperation.DESCRIBE_CONFIGS in allowed else None
        return Topic(name, tuple(found.partitions), allowed, config)

    def _config(self, name: str) -> dict[str, str]:
        resource = ConfigResource(ResourceType.TOPIC, name)

        def question(left_s: float) -> Any:
            return self.admin.describe_configs([resource], request_timeout=left_s)[resource].result(left_s)

        return {key: str(entry.value) for key, entry in self.ask(question).items()}


def newest_manifests(patient: Patient) -> dict[int, Manifest]:
    """The newest manifest by partition. Empty if the store does not answer; another check reports that."""
    group, topic = patient.settings.group, patient.settings.input.topic
    try:
        found = inspect.newest_manifests(patient.store, group, topic, patient.timeout_s)
    except StoreError:
        return {}
    return {place.partition: newest for place, newest in found.items()}
