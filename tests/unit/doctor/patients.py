"""A patient without a broker: what the topics are like is a test's to say."""

from __future__ import annotations

import uuid
from types import SimpleNamespace
from typing import Any

from confluent_kafka.admin import AclOperation

from sfd_stream.cli.build import shape_of
from sfd_stream.config import load
from sfd_stream.config.container_limits import Quota
from sfd_stream.doctor.context import Patient, Topic
from sfd_stream.kafka.errors import Hooks
from sfd_stream.storage.memory import MemoryStore

GIVEN = ["kafka.bootstrap.servers=127.0.0.1:1", "kafka.group.id=g", "input.topic=rows", "sketch.d=20", "sketch.ell=4"]
ALL = frozenset({AclOperation.READ, AclOperation.WRITE})


def patient(*topics: Topic, overrides: tuple[str, ...] = (), quota: Quota | None = None) -> Patient:
    settings = load(None, environ={}, overrides=[*GIVEN, "checkpoint.url=memory://x", *overrides]).settings
    store = MemoryStore(uuid.uuid4().hex)
    made = Patient(settings, Hooks(), store, shape_of(settings, 0), quota or Quota(None, None), lambda: 1000.0)
    made._topics = dict.fromkeys(("rows", *made.topics_written())) | {topic.name: topic for topic in topics}
    return made


def topic(name: str, *, partitions: int = 2, replicas: int = 1, allowed: Any = ALL, **config: str) -> Topic:
    described = tuple(SimpleNamespace(isr=range(replicas)) for _ in range(partitions))
    return Topic(name, described, allowed, {key.replace("_", "."): value for key, value in config.items()})
