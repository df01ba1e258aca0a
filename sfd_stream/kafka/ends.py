"""Where partitions begin and end, asked for many at once on a connection of its own.

A consumer's own question waits behind its fetches, which the broker holds for up to half a second: for each partition.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Collection, Mapping
from concurrent.futures import TimeoutError as NoAnswerError
from typing import Any

from confluent_kafka import IsolationLevel, KafkaException, TopicPartition
from confluent_kafka.admin import AdminClient, OffsetSpec  # type: ignore[attr-defined] # not in its own list of exports

from sfd_stream.kafka.errors import Hooks
from sfd_stream.kafka.outage import SLICE_S, Admin
from sfd_stream.kafka.properties import admin_properties

Place = tuple[str, int]

REQUEST_S = 30.0
"""A request outlives the wait for its answer by this much. librdkafka 2.16 answers a request that times out with
offset -1001 and no error."""


def offsets_of(admin: AdminClient, places: Collection[Place], spec: Any, timeout_s: float) -> dict[Place, int]:
    """Offsets by (topic, partition) from the leaders. NoAnswerError if one of them is not known within `timeout_s`."""
    asked = {TopicPartition(topic, partition): spec for topic, partition in sorted(places)}
    if not asked:
        return {}
    deadline = time.monotonic() + timeout_s
    answers = admin.list_offsets(
        asked, request_timeout=timeout_s + REQUEST_S, isolation_level=IsolationLevel.READ_COMMITTED
    )
    found: dict[Place, int] = {}
    for where, answer in answers.items():
        offset = int(answer.result(max(deadline - time.monotonic(), 0.0)).offset)
        if offset < 0:
            raise NoAnswerError(f"offset {offset} of {where.topic}/{where.partition} is no offset")
        found[where.topic, where.partition] = offset
    return found


class Ends:
    """Keeps one AdminClient: one that is not kept answers `_DESTROY`."""

    def __init__(self, properties: Mapping[str, Any], *, hooks: Hooks | None = None) -> None:
        ours = admin_properties(properties)
        self._admin = Admin(ours, hooks or Hooks())

    def of(self, places: Collection[Place], timeout_s: float) -> dict[Place, int]:
        """End offsets by (topic, partition); without those that have no answer in time, or may not be asked for."""
        with contextlib.suppress(KafkaException, NoAnswerError):
            return offsets_of(self._admin, places, OffsetSpec.latest(), timeout_s)  # type: ignore[no-untyped-call]
        return {}

    def metadata(self, topic: str, timeout_s: float) -> Any:
        """Asked before offsets: after a broker's restart a client that has not asked is refused for ever."""
        return self._admin.list_topics(topic, timeout=min(timeout_s, SLICE_S))

    @property
    def words(self) -> str:
        """The client's last report of a broker that does not answer; empty if one does."""
        return self._admin.outage.words

    def ask(self, question: Callable[[float], Any], timeout_s: float) -> Any:
        """Repeats one of the questions here until it is answered. TimeoutError when the time is up."""
        return self._admin.ask(question, timeout_s)

    def marks(self, topic: str, partitions: Collection[int], timeout_s: float) -> dict[int, tuple[int, int]]:
        """The first offset in the log and the one after the last committed record, of each.

        Raises KafkaException or NoAnswerError.
        """
        places = {(topic, partition) for partition in partitions}
        low = offsets_of(self._admin, places, OffsetSpec.earliest(), timeout_s)  # type: ignore[no-untyped-call]
        high = offsets_of(self._admin, places, OffsetSpec.latest(), timeout_s)  # type: ignore[no-untyped-call]
        return {p: (low[topic, p], high[topic, p]) for p in partitions}
