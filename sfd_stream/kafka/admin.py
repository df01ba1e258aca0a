"""Questions about a cluster and a topic, asked beside the stream, each until answered or out of time."""

from __future__ import annotations

import threading
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from confluent_kafka import Consumer, KafkaException, TopicCollection, TopicPartition
from confluent_kafka.admin import OffsetSpec  # type: ignore[attr-defined]

from sfd_stream.errors import BrokerRefusedError
from sfd_stream.kafka.commits import Committed
from sfd_stream.kafka.ends import REQUEST_S, offsets_of
from sfd_stream.kafka.errors import Fault, Hooks, address, fault_of, refusal, refuse_settings
from sfd_stream.kafka.outage import SLICE_S, Admin, ask
from sfd_stream.kafka.properties import group_properties

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Mapping

BUILT_IN = "mockCluster"  # how the built-in broker's cluster id begins


class Cluster:
    """Keeps one AdminClient: one that is not kept answers `_DESTROY`."""

    def __init__(self, properties: Mapping[str, Any], topic: str, hooks: Hooks) -> None:
        self._properties = properties
        self._topic = topic
        self._admin = Admin(properties, hooks)

    def cluster_id(self, timeout_s: float) -> str:
        found: str = self._ask(
            lambda left_s: self._admin.list_topics(self._topic, timeout=min(left_s, SLICE_S)), timeout_s
        ).cluster_id
        return found

    def topic_id(self, timeout_s: float) -> str | None:
        """The topic's own id, which a topic of the same name made later does not have."""
        if self.cluster_id(timeout_s).startswith(BUILT_IN):
            return None  # it has no controller to ask

        def question(left_s: float) -> Any:
            topic = TopicCollection([self._topic])
            asked = self._admin.describe_topics(topic, request_timeout=left_s + REQUEST_S)
            return asked[self._topic].result(left_s)

        return str(self._ask(question, timeout_s).topic_id)

    def topic_exists(self, timeout_s: float) -> bool:
        return self._metadata(timeout_s) is not None

    def partition_count(self, timeout_s: float) -> int:
        topic = self._metadata(timeout_s)
        if topic is None:
            raise self._no_topic()
        return len(topic.partitions)

    def watermarks(self, partition: int, timeout_s: float) -> tuple[int, int]:
        """The first offset in the log and the one after the last committed record, asked of the leader."""
        low = self.first_offsets([partition], timeout_s)[partition]
        return low, self.end_offsets([partition], timeout_s)[partition]

    def first_offsets(self, partitions: Collection[int], timeout_s: float) -> dict[int, int]:
        """Where the logs begin, by partition."""
        spec: Any = OffsetSpec
        return self._offsets(partitions, spec.earliest(), timeout_s)

    def end_offsets(self, partitions: Collection[int], timeout_s: float) -> dict[int, int]:
        """Where the logs end, by partition."""
        spec: Any = OffsetSpec
        return self._offsets(partitions, spec.latest(), timeout_s)

    def _offsets(self, partitions: Collection[int], spec: Any, timeout_s: float) -> dict[int, int]:
        places = [(self._topic, partition) for partition in partitions]
        asked_before = False

        def question(left_s: float) -> Any:
            nonlocal asked_before
            if asked_before:  # after a broker's restart, a client with old metadata is refused for ever
                self._admin.list_topics(self._topic, timeout=min(left_s, SLICE_S))
            asked_before = True
            found = offsets_of(self._admin, places, spec, left_s)
            return {partition: offset for (_, partition), offset in found.items()}

        answer: dict[int, int] = self._ask(question, timeout_s)
        return answer

    def _metadata(self, timeout_s: float) -> Any:
        """The topic's metadata; None if it is not there."""
        topics = self._ask(
            lambda left_s: self._admin.list_topics(self._topic, timeout=min(left_s, SLICE_S)), timeout_s
        ).topics
        topic = topics.get(self._topic)
        if topic is None or (topic.error is not None and fault_of(topic.error) is Fault.UNKNOWN_TOPIC):
            return None
        if topic.error is not None and fault_of(topic.error) is Fault.REFUSED:
            raise refusal(topic.error, self._properties)
        return topic

    def _no_topic(self) -> BrokerRefusedError:
        where = address(self._properties)
        return BrokerRefusedError(f"topic {self._topic} is not there at {where}: create it, or name another")

    def _ask(self, question: Callable[[float], Any], timeout_s: float) -> Any:
        return self._admin.ask(question, timeout_s)


class GroupOffsets:
    """The offsets that a group has committed, asked through a consumer that never subscribes. Any thread may ask.

    An admin request could ask for them too, but librdkafka sends it to the group's coordinator, and when such a request
    fails it can abort the process (its issue 4605; its pull request 5397 names the cause).
    """

    def __init__(self, properties: Mapping[str, Any], topic: str, hooks: Hooks) -> None:
        self._properties = group_properties(properties)
        self._topic = topic
        self._polling = threading.Lock()
        quiet = replace(hooks, on_statistics=None)  # those of the consumer that reads are enough
        try:
            self._consumer = Consumer({**self._properties, **quiet.as_properties(properties)})
        except KafkaException as exception:
            refuse_settings(exception, self._properties)

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
        """The client's log lines and tokens. Nothing is assigned that a poll could return."""
        if self._polling.acquire(blocking=False):
            try:
                self._consumer.poll(0)
            finally:
                self._polling.release()
