"""confluent_kafka.admin.AdminClient, as far as the package uses it, and the modules that stand in for the real ones."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from types import ModuleType, SimpleNamespace
from typing import Any

import confluent_kafka
import confluent_kafka.admin
from confluent_kafka import OFFSET_INVALID, KafkaError, TopicPartition

from tests.simulation.broker import CLUSTER_ID
from tests.simulation.clients import blocking, error, failure, process, world
from tests.simulation.consumer import Consumer
from tests.simulation.network import Connection
from tests.simulation.primitives import Future, Substitute
from tests.simulation.producer import Producer
from tests.simulation.scheduler import active

_EARLIEST = confluent_kafka.admin.OffsetSpec.earliest()._value


class AdminClient:
    def __init__(self, properties: dict[str, Any]) -> None:
        self.world = world()
        self.process = process()
        self._connection = Connection(self.process, "admin")
        self._error_cb: Callable[[KafkaError], None] | None = properties.get("error_cb")
        self._errors: list[KafkaError] = []
        self.world.network.on_unreachable(
            self.process, lambda: self._errors.append(error(KafkaError._ALL_BROKERS_DOWN, "all brokers are down"))
        )

    def poll(self, timeout: float = -1) -> int:
        """Its callbacks run here."""
        active().point()
        errors, self._errors = self._errors, []
        for each in errors if self._error_cb is not None else ():
            self._error_cb(each)
        return len(errors)

    def list_topics(self, topic: str | None = None, timeout: float = -1) -> Any:
        active().point()

        def apply(reply: Any) -> None:
            topics = self.world.broker.topics
            names = sorted(topics) if topic is None else [topic]
            reply(SimpleNamespace(
                cluster_id=CLUSTER_ID,
                controller_id=1,
                brokers={1: SimpleNamespace(id=1, host="simulated", port=9092)},
                topics={name: _described(name, topics.get(name)) for name in names},
            ))  # fmt: skip

        return blocking(self._connection, apply, timeout)

    def describe_topics(self, topics: Any, request_timeout: float = 60.0) -> dict[str, Future]:
        def answer(name: str) -> Any:
            found = self.world.broker.topics.get(name)
            if found is None:
                return failure(KafkaError.UNKNOWN_TOPIC_OR_PART)
            return SimpleNamespace(topic_id=found.id, name=name)

        return {name: self._ask(lambda name=name: answer(name), request_timeout) for name in topics.topic_names}

    def list_offsets(
        self, asked: dict[TopicPartition, Any], isolation_level: Any = None, request_timeout: float = 60.0
    ) -> Any:
        """A question that is not answered in time mostly gives offset -1001 and no error."""

        def answer(place: TopicPartition, spec: Any) -> Any:
            log = self.world.broker.log(place.topic, place.partition)
            if log is None:
                return failure(KafkaError.UNKNOWN_TOPIC_OR_PART)
            return SimpleNamespace(offset=log.start if spec._value == _EARLIEST else log.stable_end)

        def late() -> Any:
            if self.world.draws_no_offset():
                return SimpleNamespace(offset=OFFSET_INVALID)
            return failure(KafkaError._TIMED_OUT, retriable=True)

        def apply(place: TopicPartition, spec: Any, reply: Any) -> None:
            away_s = self.world.broker.leaderless_s(place.topic)
            if away_s > 0:
                active().call_later(away_s, lambda: apply(place, spec, reply))
            else:
                reply(answer(place, spec))

        found: dict[TopicPartition, Future] = {place: Future() for place in asked}
        for place, spec in asked.items():
            self._send(partial(apply, place, spec), found[place], request_timeout, late)
        return found

    def list_consumer_group_offsets(
        self, asked: list[Any], require_stable: bool = False, request_timeout: float = 60.0
    ) -> Any:
        (question,) = asked
        group = self.world.group(question.group_id)
        future = Future()
        places = [(each.topic, each.partition) for each in question.topic_partitions]

        def apply(reply: Any) -> None:
            if require_stable and any(place in group.pending for place in places):
                active().call_later(0.1, lambda: apply(reply))
                return
            found = [(place, group.offsets.get(place)) for place in places]
            reply(SimpleNamespace(topic_partitions=[
                TopicPartition(*place, OFFSET_INVALID) if c is None else TopicPartition(*place, c.offset, c.metadata)
                for place, c in found
            ]))  # fmt: skip

        self._send(apply, future, request_timeout, lambda: failure(KafkaError._TIMED_OUT, retriable=True))
        return {question.group_id: future}

    def create_topics(self, topics: list[Any], **times: float) -> dict[str, Future]:
        def make(topic: Any) -> Any:
            if topic.topic in self.world.broker.topics:
                return failure(KafkaError.TOPIC_ALREADY_EXISTS)
            self.world.broker.create(topic.topic, max(topic.num_partitions, 1))
            return None

        timeout_s = times.get("request_timeout", 60.0)
        return {topic.topic: self._ask(lambda topic=topic: make(topic), timeout_s) for topic in topics}

    def _ask(self, answer: Callable[[], Any], timeout_s: float) -> Future:
        future = Future()
        late = partial(failure, KafkaError._TIMED_OUT, retriable=True)
        self._send(lambda reply: reply(answer()), future, timeout_s, late)
        return future

    def _send(self, apply: Any, future: Future, timeout_s: float, late: Callable[[], Any]) -> None:
        def finish(answer: Any) -> None:
            if future._state != "PENDING":
                return
            if isinstance(answer, BaseException):
                future.set_exception(answer)
            else:
                future.set_result(answer)

        self.world.network.send(self._connection, apply, finish)
        active().call_later(timeout_s, lambda: finish(late()) if future._state == "PENDING" else None, self.process)


def _described(name: str, found: Any) -> Any:
    if found is None:
        return SimpleNamespace(topic=name, error=error(KafkaError.UNKNOWN_TOPIC_OR_PART), partitions={})
    partitions = {number: SimpleNamespace(id=number, leader=1, error=None) for number in range(len(found.logs))}
    return SimpleNamespace(topic=name, error=None, partitions=partitions)


def substitutes() -> dict[str, ModuleType]:
    """Values and errors are the real module's; whatever would open a connection is simulated."""
    clients = {"Consumer": Consumer, "Producer": Producer}
    unsafe = {"SerializingProducer", "DeserializingConsumer", "AIOProducer", "AIOConsumer", "ShareConsumer", "admin"}
    names = [name for name in dir(confluent_kafka) if not name.startswith("__") and name not in unsafe]
    admin_names = [name for name in dir(confluent_kafka.admin) if not name.startswith("__")]
    return {
        "confluent_kafka": Substitute("confluent_kafka", clients, confluent_kafka, names),
        "confluent_kafka.admin": Substitute(
            "confluent_kafka.admin", {"AdminClient": AdminClient}, confluent_kafka.admin, admin_names
        ),
    }
