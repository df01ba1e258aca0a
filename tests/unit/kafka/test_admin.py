"""Questions about topics: asked until answered; a negative offset of the client is no answer, however it comes."""

from __future__ import annotations

import threading
from concurrent.futures import Future
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest
from confluent_kafka import OFFSET_INVALID, TopicPartition

from sfd_stream.kafka import topic_reader as tail_module
from sfd_stream.kafka.admin import Admin
from sfd_stream.kafka.outage import ask
from sfd_stream.kafka.topic_reader import Tail

if TYPE_CHECKING:
    from tests.support.kafka_fixtures import PrivateBrokers

PROPERTIES = {"bootstrap.servers": "b:1"}
LOG = {0: 7, 1: 9}
"""Both ends of each partition's log, so that low and high need not be told apart."""


class LyingAdmin(Admin):
    """As librdkafka 2.16 when a request times out: offset -1001 without an error, in the first answers."""

    def __init__(self, *lies: set[int]) -> None:
        self.lies = list(lies)
        self.answers = 0
        self.properties = PROPERTIES

    def list_offsets(self, asked: dict[TopicPartition, Any], **_: Any) -> dict[TopicPartition, Future[Any]]:
        wrong = self.lies.pop(0) if self.lies else set()
        self.answers += 1
        return {tp: self._answer(OFFSET_INVALID if tp.partition in wrong else LOG[tp.partition]) for tp in asked}

    def _answer(self, offset: int) -> Future[Any]:
        future: Future[Any] = Future()
        future.set_result(SimpleNamespace(offset=offset))
        return future

    def ask(self, question: Any, timeout_s: float) -> Any:
        return ask(question, timeout_s, PROPERTIES)

    def list_topics(self, topic: str, timeout: float) -> Any:  # noqa: ARG002 - it answers at once
        found = SimpleNamespace(error=None, partitions=dict.fromkeys(LOG))
        return SimpleNamespace(cluster_id="c", topics={topic: found})


@pytest.mark.parametrize("lie", [{0}, {1}, {0, 1}])
def test_a_question_is_asked_again_instead_of_returning_a_negative_offset(lie: set[int]) -> None:
    for question in ("end_offsets", "first_offsets"):
        admin = LyingAdmin(lie, lie)
        found = getattr(admin, question)("t", [0, 1], 5)
        assert (found, admin.answers) == (LOG, 3)
    assert LyingAdmin(lie).watermarks("t", max(lie), 5) == (LOG[max(lie)], LOG[max(lie)])


def test_a_question_without_an_answer_in_time_raises() -> None:
    with pytest.raises(TimeoutError, match="did not answer within"):
        LyingAdmin(*[{0}] * 1000).end_offsets("t", [0], 0.2)


def test_a_lag_is_not_computed_from_a_negative_offset() -> None:
    admin = LyingAdmin({0, 1})
    assert admin.known_ends([("t", 0), ("t", 1)], 5) == {}
    assert admin.known_ends([("t", 0), ("t", 1)], 5) == {("t", 0): 7, ("t", 1): 9}


def test_a_topic_whose_ends_are_unknown_is_not_taken_for_empty(monkeypatch: pytest.MonkeyPatch) -> None:
    """A reader that believed it would report that there are no snapshots."""
    admin = LyingAdmin({0, 1}, set(), {0, 1})
    monkeypatch.setattr(tail_module, "Admin", lambda *_: admin)
    nothing = SimpleNamespace(incremental_assign=lambda _: None, position=lambda _: [SimpleNamespace(offset=-1001)])
    monkeypatch.setattr(tail_module, "Consumer", lambda _: nothing)
    tail = Tail(PROPERTIES, "t")
    tail.rewind = lambda: pytest.fail("a negative end is no sign that the topic was recreated")  # type: ignore[method-assign]
    assert list(tail.catch_up(5)) == []
    assert admin.answers == 5, "a low that is refused; a low, and a high that is refused; both"


def test_a_broker_that_stalls_gives_no_negative_offset(private_broker: PrivateBrokers) -> None:
    broker = private_broker()
    topic = broker.create_topic(partitions=2)
    for partition in range(2):
        broker.produce(topic, [b"x"] * 10, partition=partition)
    properties = {"bootstrap.servers": broker.bootstrap}
    admin = Admin(properties)
    assert admin.end_offsets(topic, [0, 1], 20) == {0: 10, 1: 10}
    for _ in range(3):
        broker.pause()
        with pytest.raises(TimeoutError):
            admin.end_offsets(topic, [0, 1], 0.4)
        assert admin.known_ends([(topic, 0)], 0.2) == {}
        resuming = threading.Timer(0.3, broker.resume)
        resuming.start()
        assert admin.watermarks(topic, 0, 20) == (0, 10)
        resuming.join()
