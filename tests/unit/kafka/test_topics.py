"""A topic that is there is used, one that is not is made, and who may not make it is told what to do."""

from __future__ import annotations

from concurrent.futures import Future
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest
from confluent_kafka import KafkaError, KafkaException

from sfd_stream.errors import BrokerRefusedError, BrokerUnavailableError, SettingsError
from sfd_stream.kafka.outage import ask
from sfd_stream.kafka.topics import ensure_topic

if TYPE_CHECKING:
    from collections.abc import Mapping


class FakeAdmin:
    """A cluster that knows topics by their partitions; a new one gets its leaders at the second look."""

    def __init__(
        self,
        topics: Mapping[str, int],
        *,
        refuses: int | None = None,
        controller: int = 1,
        makes_by_itself: int = 0,
    ) -> None:
        self.topics = dict(topics)
        self.made: list[tuple[str, int]] = []
        self._refuses, self._controller, self._makes_by_itself = refuses, controller, makes_by_itself
        self._young: set[str] = set()
        self.outage = SimpleNamespace(words="")

    def ask(self, question: Any, timeout_s: float) -> Any:
        return ask(question, timeout_s, {"bootstrap.servers": "b1:9092"})

    def list_topics(self, topic: str | None = None, timeout: float = 0) -> Any:
        assert timeout > 0
        if topic and topic not in self.topics and self._makes_by_itself:
            self.topics[topic] = self._makes_by_itself
        listed = {name: self._described(name, count) for name, count in self.topics.items()}
        return SimpleNamespace(
            topics=listed, controller_id=self._controller, brokers={1: SimpleNamespace(host="b1", port=9092)}
        )

    def create_topics(self, new: list[Any], **_: float) -> dict[str, Future[None]]:
        [topic] = new
        answer: Future[None] = Future()
        if topic.topic in self.topics:
            answer.set_exception(KafkaException(KafkaError(KafkaError.TOPIC_ALREADY_EXISTS)))
        elif self._refuses is None:
            self.made.append((topic.topic, topic.num_partitions))
            self.topics[topic.topic] = topic.num_partitions if topic.num_partitions > 0 else 6
            self._young.add(topic.topic)
            answer.set_result(None)
        else:
            answer.set_exception(KafkaException(KafkaError(self._refuses)))
        return {topic.topic: answer}

    def _described(self, name: str, count: int) -> Any:
        leader = -1 if name in self._young else 1
        self._young.discard(name)
        return SimpleNamespace(error=None, partitions={n: SimpleNamespace(leader=leader) for n in range(count)})


def ensured(admin: FakeAdmin, partitions: int | None) -> tuple[int, int]:
    """The partitions found, and how often one had to wait."""
    waits: list[float] = []
    return ensure_topic(admin, "rows", partitions, sleep=waits.append), len(waits)


def test_a_topic_that_is_there_is_used_as_it_is() -> None:
    admin = FakeAdmin({"rows": 3})
    assert ensured(admin, None) == (3, 0)
    assert ensured(admin, 3) == (3, 0)
    assert admin.made == []
    with pytest.raises(SettingsError, match="topic rows has 3 partitions, not 4"):
        ensured(admin, 4)


def test_an_absent_topic_is_made_and_its_leaders_are_waited_for() -> None:
    admin = FakeAdmin({})
    assert ensured(admin, 5) == (5, 1)
    assert admin.made == [("rows", 5)]
    assert ensured(FakeAdmin({}), None)[0] == 6  # the broker's default


def test_who_may_not_make_it_is_told_what_to_do() -> None:
    """By a command that can be pasted, with all that the topic needs."""
    config = {"cleanup.policy": "compact", "max.message.bytes": "2000000"}
    admin = FakeAdmin({}, refuses=KafkaError.TOPIC_AUTHORIZATION_FAILED)
    with pytest.raises(BrokerRefusedError) as refused:
        ensure_topic(admin, "sketches", None, sleep=lambda _: None, config=config)
    assert str(refused.value).endswith(
        "create it, for example with kafka-topics.sh --bootstrap-server b1:9092 --create --topic sketches"
        " --partitions 1 --config cleanup.policy=compact --config max.message.bytes=2000000"
    )


def test_somebody_quicker_is_no_failure() -> None:
    admin = FakeAdmin({}, refuses=KafkaError.TOPIC_ALREADY_EXISTS, makes_by_itself=2)
    assert ensured(admin, None) == (2, 0)


def test_a_broker_without_a_controller_is_asked_for_the_topic_instead() -> None:
    admin = FakeAdmin({}, controller=0, makes_by_itself=4)
    assert ensured(admin, None) == (4, 0)
    assert admin.made == []


def test_a_topic_that_gets_no_leaders_is_told() -> None:
    with pytest.raises(BrokerRefusedError, match="has no leaders"):
        ensured(FakeAdmin({}, controller=0), None)


@pytest.mark.parametrize("silent", ["list_topics", "create_topics"])
def test_a_broker_that_does_not_answer_is_unavailable_which_may_pass(
    monkeypatch: pytest.MonkeyPatch, silent: str
) -> None:
    admin = FakeAdmin({}, refuses=KafkaError._TIMED_OUT)
    if silent == "list_topics":

        def nobody(*_: Any, **__: Any) -> Any:
            raise KafkaException(KafkaError(KafkaError._TRANSPORT))

        monkeypatch.setattr(admin, "list_topics", nobody)
    with pytest.raises(BrokerUnavailableError, match="is it up"):
        ensure_topic(admin, "rows", 1, sleep=lambda _: None, timeout_s=0.1)
