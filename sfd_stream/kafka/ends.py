"""Where partitions begin and end, asked for many at once on a connection of its own.

A consumer's own question waits behind its fetches, which the broker holds for up to half a second: for each partition.
"""

from __future__ import annotations

import contextlib
from collections.abc import Collection, Mapping
from concurrent.futures import TimeoutError as NoAnswerError
from typing import Any

from confluent_kafka import IsolationLevel, KafkaException, TopicPartition
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
        with contextlib.suppress(KafkaException, NoAnswerError):
            return self._ask(places, OffsetSpec.latest(), timeout_s)  # type: ignore[no-untyped-call]
        return {}

    def metadata(self, topic: str, timeout_s: float) -> Any:
        """Asked before offsets: after a broker's restart a client that has not asked is refused for ever."""
        return self._admin.list_topics(topic, timeout=timeout_s)

    def marks(self, topic: str, partitions: Collection[int], timeout_s: float) -> dict[int, tuple[int, int]]:
        """The first offset in the log and the one after the last committed record, of each. Raises KafkaException."""
        places = {(topic, partition) for partition in partitions}
        low = self._ask(places, OffsetSpec.earliest(), timeout_s)  # type: ignore[no-untyped-call]
        high = self._ask(places, OffsetSpec.latest(), timeout_s)  # type: ignore[no-untyped-call]
        return {p: (low[topic, p], high[topic, p]) for p in partitions}

    def _ask(self, places: Collection[Place], spec: Any, timeout_s: float) -> dict[Place, int]:
        asked = {TopicPartition(topic, partition): spec for topic, partition in sorted(places)}
        if not asked:
            return {}
        answers = self._admin.list_offsets(
            asked, request_timeout=timeout_s, isolation_level=IsolationLevel.READ_COMMITTED
        )
        return {(where.topic, where.partition): answer.result(timeout_s).offset for where, answer in answers.items()}
