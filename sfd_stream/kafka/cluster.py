"""Questions about a cluster and a topic, asked beside the stream, each until answered or out of time."""

from __future__ import annotations

import time
from concurrent.futures import TimeoutError as NoAnswerError
from typing import TYPE_CHECKING, Any

from confluent_kafka import (
    ConsumerGroupTopicPartitions,
    IsolationLevel,
    KafkaException,
    TopicCollection,
    TopicPartition,
)
from confluent_kafka.admin import AdminClient, OffsetSpec  # type: ignore[attr-defined]

from sfd_stream.errors import BrokerRefusedError
from sfd_stream.kafka.commits import Committed
from sfd_stream.kafka.faults import Fault, Hooks, address, error_of, fault_of, refusal, refuse_settings

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Mapping

BUILT_IN = "mockCluster"  # how the built-in broker's cluster id begins


class Cluster:
    """Keeps one AdminClient: one that is not kept answers `_DESTROY`."""

    def __init__(self, properties: Mapping[str, Any], topic: str, hooks: Hooks) -> None:
        self._properties = properties
        self._topic = topic
        try:
            self._admin = AdminClient({**properties, **hooks.as_properties(properties)})
        except KafkaException as exception:
            refuse_settings(exception, properties)

    def cluster_id(self, timeout_s: float) -> str:
        found: str = self._ask(
            lambda left_s: self._admin.list_topics(self._topic, timeout=left_s), timeout_s
        ).cluster_id
        return found

    def topic_id(self, timeout_s: float) -> str | None:
        """The topic's own id, which a topic of the same name made later does not have."""
        if self.cluster_id(timeout_s).startswith(BUILT_IN):
            return None  # it has no controller to ask

        def question(left_s: float) -> Any:
            asked = self._admin.describe_topics(TopicCollection([self._topic]), request_timeout=left_s)
            return asked[self._topic].result(left_s)

        return str(self._ask(question, timeout_s).topic_id)

    def topic_exists(self, timeout_s: float) -> bool:
        return self._metadata(timeout_s) is not None

    def partition_count(self, timeout_s: float) -> int:
        topic = self._metadata(timeout_s)
        if topic is None:
            raise self._no_topic()
        return len(topic.partitions)

    def stable_committed(self, group: str, partition: int, timeout_s: float) -> Committed | None:
        """TimeoutError while a transaction on it is open."""
        (found,) = self._committed(group, [partition], timeout_s, stable=True)
        return Committed.of(found)

    def group_offsets(self, group: str, partitions: Collection[int], timeout_s: float) -> dict[int, int]:
        """What a group has committed, without the partitions of which it has nothing."""
        found = {tp.partition: Committed.of(tp) for tp in self._committed(group, partitions, timeout_s, stable=False)}
        return {partition: committed.offset for partition, committed in found.items() if committed is not None}

    def _committed(self, group: str, partitions: Collection[int], timeout_s: float, *, stable: bool) -> Any:
        where = [TopicPartition(self._topic, partition) for partition in sorted(partitions)]
        asked = ConsumerGroupTopicPartitions(group, where)

        def question(left_s: float) -> Any:
            answer = self._admin.list_consumer_group_offsets([asked], require_stable=stable, request_timeout=left_s)
            found = answer[group].result(left_s).topic_partitions
            for each in found:
                if each.error is not None:
                    raise KafkaException(each.error)
            return found

        return self._ask(question, timeout_s)

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
        where = {TopicPartition(self._topic, partition): spec for partition in sorted(partitions)}
        asked_before = False

        def question(left_s: float) -> Any:
            nonlocal asked_before
            if asked_before:  # after a broker's restart, a client with old metadata is refused for ever
                self._admin.list_topics(self._topic, timeout=left_s)
            asked_before = True
            level = IsolationLevel.READ_COMMITTED
            found = self._admin.list_offsets(where, isolation_level=level, request_timeout=left_s)
            return {tp.partition: int(future.result(left_s).offset) for tp, future in found.items()}

        answer: dict[int, int] = self._ask(question, timeout_s) if where else {}
        return answer

    def _metadata(self, timeout_s: float) -> Any:
        """The topic's metadata; None if it is not there."""
        topics = self._ask(lambda left_s: self._admin.list_topics(self._topic, timeout=left_s), timeout_s).topics
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
        return ask(question, timeout_s, self._properties)


def ask(question: Callable[[float], Any], timeout_s: float, properties: Mapping[str, Any]) -> Any:
    """Asks until answered. TimeoutError when the time is up: a fault that may pass has not passed yet."""
    deadline = time.monotonic() + timeout_s
    while True:
        try:
            return question(max(deadline - time.monotonic(), 0.05))
        except KafkaException as exception:
            error = error_of(exception)
            if fault_of(error) is Fault.REFUSED:
                raise refusal(error, properties) from None
            words = error.name()
        except NoAnswerError:
            words = "no answer"
        if time.monotonic() >= deadline:
            raise TimeoutError(f"{address(properties)} did not answer within {timeout_s:g} s ({words})")
        time.sleep(0.05)
