"""Where the partitions of any topics end, asked in one go; what can't be told is left out."""

from __future__ import annotations

import contextlib
from collections.abc import Collection, Mapping
from concurrent.futures import TimeoutError as NoAnswerError
from typing import Any

from confluent_kafka import KafkaException, TopicPartition
from confluent_kafka.admin import AdminClient, OffsetSpec  # type: ignore[attr-defined] # not in its own list of exports

from sfd_stream.kafka.faults import Hooks
from sfd_stream.kafka.properties import admin_properties

Place = tuple[str, int]


class Ends:
    """Keeps one AdminClient: one that is not kept answers `_DESTROY`."""

    def __init__(self, properties: Mapping[str, Any], *, hooks: Hooks | None = None) -> None:
        ours = admin_properties(properties)
        self._admin = AdminClient({**ours, **(hooks or Hooks()).as_properties(ours)})

    def of(self, places: Collection[Place], timeout_s: float) -> dict[Place, int]:
        """End offsets by (topic, partition); without those that have no answer in time, or may not be asked for."""
        if not places:
            return {}
        latest: Any = OffsetSpec.latest()  # type: ignore[no-untyped-call]
        asked = {TopicPartition(topic, partition): latest for topic, partition in sorted(places)}
        found: dict[Place, int] = {}
        with contextlib.suppress(KafkaException):
            for where, answer in self._admin.list_offsets(asked, request_timeout=timeout_s).items():
                with contextlib.suppress(KafkaException, NoAnswerError):
                    found[where.topic, where.partition] = answer.result(timeout_s).offset
        return found
