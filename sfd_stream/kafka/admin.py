"""Questions about topics and groups, on clients of their own. Each is repeated until it is answered or time is up.

A consumer's question waits behind its fetches. The broker holds each for up to half a second, once for each partition.
"""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Callable, Collection, Mapping
from concurrent.futures import TimeoutError as NoAnswerError
from dataclasses import replace
from typing import Any

from confluent_kafka import Consumer, IsolationLevel, KafkaException, TopicCollection, TopicPartition
from confluent_kafka.admin import AdminClient, OffsetSpec  # type: ignore[attr-defined] # not in its own list of exports

from sfd_stream.errors import BrokerRefusedError
from sfd_stream.kafka.commits import Committed
from sfd_stream.kafka.errors import Fault, Hooks, address, create, fault_of, refusal
from sfd_stream.kafka.outage import Outage, ask
from sfd_stream.kafka.properties import admin_properties, group_properties

Place = tuple[str, int]

SLICE_S = 3.0
"""Time limit of one metadata request. The whole question may take longer; a warning is logged within 5 s."""

REQUEST_S = 30.0
"""A request may continue this much longer than the wait for its answer. librdkafka 2.16 answers a request that times
out with offset -1001 and no error."""

CRITICAL = 2
"""librdkafka's log level. At its default it logs each attempt to connect; the warnings of `Outage` have the reasons."""

BUILT_IN = "mockCluster"  # how the built-in broker's cluster id begins
_EARLIEST = OffsetSpec.earliest()  # type: ignore[no-untyped-call]
_LATEST = OffsetSpec.latest()  # type: ignore[no-untyped-call]


class Admin(AdminClient):
    """An AdminClient that knows why no broker answers, with our questions. Any thread may ask.

    Keep a reference to it: after garbage collection it answers `_DESTROY`. Its callbacks run when it is polled.
    """

    def __init__(self, properties: Mapping[str, Any], hooks: Hooks | None = None) -> None:
        hooks = hooks or Hooks()
        self.properties = admin_properties(properties)
        self.outage = Outage(self.properties, hooks.logger)
        given = {**self.properties, **hooks.as_properties(self.properties), "error_cb": self.outage.note}
        create(super().__init__, {"log_level": CRITICAL, **given})

    def ask(self, question: Callable[[float], Any], timeout_s: float) -> Any:
        """Asks a question, with warnings while no broker answers."""
        return ask(question, timeout_s, self.properties, self)

    def unanswered(self, since: float, words: str) -> None:
        self.poll(0)
        if self.outage.refused is not None:
            raise self.outage.refused
        self.outage.unanswered(since, words)

    def answered(self) -> None:
        """Drops reports that were not processed yet: they are old, and must not end a later question."""
        self.poll(0)
        self.outage.answered()

    # Questions, each asked until it is answered. TimeoutError when the time is up.

    def cluster_of(self, topic: str, timeout_s: float) -> str:
        return str(self._listed(topic, timeout_s).cluster_id)

    def topic_id(self, topic: str, timeout_s: float) -> str | None:
        """The topic's id: a topic of the same name that is created later has another one."""
        if self.cluster_of(topic, timeout_s).startswith(BUILT_IN):
            return None  # the built-in broker has no controller to ask

        def question(left_s: float) -> Any:
            asked = self.describe_topics(TopicCollection([topic]), request_timeout=left_s + REQUEST_S)
            return asked[topic].result(left_s)

        return str(self.ask(question, timeout_s).topic_id)

    def topic_exists(self, topic: str, timeout_s: float) -> bool:
        return self._described(topic, timeout_s) is not None

    def partition_count(self, topic: str, timeout_s: float) -> int:
        found = self._described(topic, timeout_s)
        if found is None:
            where = address(self.properties)
            raise BrokerRefusedError(f"topic {topic} does not exist on {where}; create it, or set another topic")
        return len(found.partitions)

    def watermarks(self, topic: str, partition: int, timeout_s: float) -> tuple[int, int]:
        """The first offset in the log and the offset after the last committed record, by the leader's answer."""
        low = self.first_offsets(topic, [partition], timeout_s)[partition]
        return low, self.end_offsets(topic, [partition], timeout_s)[partition]

    def first_offsets(self, topic: str, partitions: Collection[int], timeout_s: float) -> dict[int, int]:
        """Where the logs begin, by partition."""
        return self._offsets(topic, partitions, _EARLIEST, timeout_s)

    def end_offsets(self, topic: str, partitions: Collection[int], timeout_s: float) -> dict[int, int]:
        """Where the logs end, by partition."""
        return self._offsets(topic, partitions, _LATEST, timeout_s)

    def _offsets(self, topic: str, partitions: Collection[int], spec: Any, timeout_s: float) -> dict[int, int]:
        places = [(topic, partition) for partition in partitions]
        asked_before = False

        def question(left_s: float) -> Any:
            nonlocal asked_before
            if asked_before:
                self.metadata(topic, left_s)
            asked_before = True
            found = offsets_of(self, places, spec, left_s)
            return {partition: offset for (_, partition), offset in found.items()}

        answer: dict[int, int] = self.ask(question, timeout_s)
        return answer

    def _listed(self, topic: str, timeout_s: float) -> Any:
        return self.ask(lambda left_s: self.metadata(topic, left_s), timeout_s)

    def _described(self, topic: str, timeout_s: float) -> Any:
        """The topic's metadata; None if it does not exist."""
        found = self._listed(topic, timeout_s).topics.get(topic)
        if found is None or (found.error is not None and fault_of(found.error) is Fault.UNKNOWN_TOPIC):
            return None
        if found.error is not None and fault_of(found.error) is Fault.REFUSED:
            raise refusal(found.error, self.properties)
        return found

    # Asked once. KafkaException or NoAnswerError where there is no answer.

    def metadata(self, topic: str, timeout_s: float) -> Any:
        """Asked before offsets: after a broker's restart a client without metadata gets only refusals for them."""
        return self.list_topics(topic, timeout=min(timeout_s, SLICE_S))

    def marks(self, topic: str, partitions: Collection[int], timeout_s: float) -> dict[int, tuple[int, int]]:
        """The first offset in the log and the offset after the last committed record, of each partition."""
        places = {(topic, partition) for partition in partitions}
        low, high = (offsets_of(self, places, spec, timeout_s) for spec in (_EARLIEST, _LATEST))
        return {p: (low[topic, p], high[topic, p]) for p in partitions}

    def known_ends(self, places: Collection[Place], timeout_s: float) -> dict[Place, int]:
        """End offsets by (topic, partition). Left out: places without an answer in time, or without the right to it."""
        with contextlib.suppress(KafkaException, NoAnswerError):
            return offsets_of(self, places, _LATEST, timeout_s)
        return {}


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


class GroupOffsets:
    """The offsets that a group has committed, asked through a consumer that never subscribes. Any thread may ask.

    An admin request could ask for them too, but librdkafka sends it to the group's coordinator, and when such a request
    fails it can abort the process (its issue 4605; its pull request 5397 names the cause).
    """

    def __init__(self, properties: Mapping[str, Any], topic: str, hooks: Hooks) -> None:
        self._properties = group_properties(properties)
        self._topic = topic
        self._polling = threading.Lock()
        quiet = replace(hooks, on_statistics=None)  # the consumer that reads reports statistics already
        self._consumer = create(Consumer, {**self._properties, **quiet.as_properties(properties)})

    def committed(self, partitions: Collection[int], timeout_s: float) -> dict[int, Committed | None]:
        """None where nothing is committed. TimeoutError while a transaction on one of them is open."""
        where = [TopicPartition(self._topic, partition) for partition in sorted(partitions)]

        def question(left_s: float) -> list[TopicPartition]:
            found = self._consumer.committed(where, left_s)
            for each in found:
                if each.error is not None:
                    raise KafkaException(each.error)
            return found

        self._serve()
        found = ask(question, timeout_s, self._properties) if where else []
        return {each.partition: Committed.of(each) for each in found}

    def _serve(self) -> None:
        """Processes the client's log lines and token requests. Nothing is assigned, so a poll returns no record."""
        if self._polling.acquire(blocking=False):
            try:
                self._consumer.poll(0)
            finally:
                self._polling.release()
