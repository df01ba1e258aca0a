"""What is examined: the settings and the parts that they lead to, each asked once and remembered."""

from __future__ import annotations

import random
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
from sfd_stream.kafka.errors import Fault, Hooks, error_of, fault_of, refuse_settings
from sfd_stream.kafka.outage import ask
from sfd_stream.kafka.properties import admin_properties
from sfd_stream.state.manifest import Manifest
from sfd_stream.state.partition import Shape
from sfd_stream.state.perform import Patience, run
from sfd_stream.storage.contract import Store
from sfd_stream.tools.inspect import Place, partitions_in, stand
from sfd_stream.tools.preview import Preview

_LOOK_S: Final = 0.3
"""Time limit of one metadata request; after it the client's errors are examined."""


@dataclass(frozen=True, slots=True)
class MetadataAnswer:
    """What came back from the brokers: their metadata, or only errors."""

    metadata: Any
    errors: tuple[KafkaError, ...]

    def error(self, *codes: int) -> KafkaError | None:
        return next((error for error in self.errors if error.code() in codes), None)


@dataclass(frozen=True, slots=True)
class Topic:
    """As its brokers describe it to us: `allowed` is what we may do with it, `config` None where we may not see it."""

    name: str
    partitions: tuple[Any, ...]
    allowed: frozenset[Any]
    config: dict[str, str] | None


@dataclass
class Patient:
    """`timeout_s` is for one question to a broker."""

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
        """Asked by librdkafka itself, as a worker would: it ends as soon as every broker was tried."""
        errors: list[KafkaError] = []
        try:
            heard: dict[str, Any] = {**self.hooks.as_properties({}), "error_cb": errors.append}
            client = AdminClient({**self.properties, **heard})
        except KafkaException as exception:
            refuse_settings(exception, self.properties)
        deadline = time.monotonic() + self.timeout_s
        while time.monotonic() < deadline:
            try:
                return MetadataAnswer(client.list_topics(timeout=_LOOK_S), tuple(errors))
            except KafkaException:
                client.poll(0)
            if any(error.code() == KafkaError._ALL_BROKERS_DOWN for error in errors):  # noqa: SLF001 - librdkafka's
                break
        return MetadataAnswer(None, tuple(errors))

    @cached_property
    def admin(self) -> AdminClient:
        return AdminClient({**self.properties, **self.hooks.as_properties({})})

    def ask(self, question: Callable[[float], Any]) -> Any:
        """Until answered or out of time; a refusal is a BrokerRefusedError."""
        return ask(question, self.timeout_s, self.properties)

    def topic(self, name: str) -> Topic | None:
        """None if it is not there."""
        if name not in self._topics:
            self._topics[name] = self._described(name)
        return self._topics[name]

    @property
    def partitions_known(self) -> int | None:
        """Of the topic of rows, if it was described already; nobody is asked."""
        found = self._topics.get(self.settings.input.topic)
        return None if found is None else len(found.partitions)

    def topics_written(self) -> Iterator[str]:
        """The names of those that a worker writes to."""
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
        # Asked without the right to, the client never answers.
        config = self._config(name) if AclOperation.DESCRIBE_CONFIGS in allowed else None
        return Topic(name, tuple(found.partitions), allowed, config)

    def _config(self, name: str) -> dict[str, str]:
        resource = ConfigResource(ResourceType.TOPIC, name)

        def question(left_s: float) -> Any:
            return self.admin.describe_configs([resource], request_timeout=left_s)[resource].result(left_s)

        return {key: str(entry.value) for key, entry in self.ask(question).items()}


def newest_manifests(patient: Patient) -> dict[int, Manifest]:
    """By partition; empty where the store does not answer, which is another check's to say."""
    group, topic = patient.settings.group, patient.settings.input.topic
    patience = Patience(patient.timeout_s, time.monotonic, time.sleep, lambda: random.uniform(0.5, 1))
    try:
        places = [Place(group, topic, partition) for partition in partitions_in(patient.store, group, topic)]
        found = {place.partition: run(stand(place), patient.store, patience).newest for place in places}
    except StoreError:
        return {}
    return {partition: newest for partition, newest in found.items() if isinstance(newest, Manifest)}
