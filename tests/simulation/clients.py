"""What all simulated clients share: the world they live in, errors, blocking questions."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from confluent_kafka import KafkaError, KafkaException, TopicPartition

from tests.simulation.network import Connection, Reply
from tests.simulation.primitives import Event
from tests.simulation.scheduler import Process, active

if TYPE_CHECKING:
    from tests.simulation.world import World

HARNESS = Process("harness")


def world() -> World:
    """The simulated world that the current task lives in."""
    return active().world  # type: ignore[attr-defined, no-any-return]


def process() -> Process:
    current = active().current
    return HARNESS if current is None else current.process


def error(code: int, words: str = "simulated", **flags: bool) -> KafkaError:
    return KafkaError(code, words, **flags)


def failure(code: int, words: str = "simulated", **flags: bool) -> KafkaException:
    return KafkaException(error(code, words, **flags))


class FailedPlace(TopicPartition):
    """A TopicPartition with an error, which the real class does not let anybody set."""

    failure: KafkaError

    @property
    def error(self) -> KafkaError:
        return self.failure


def failed(place: TopicPartition, why: KafkaError) -> FailedPlace:
    found = FailedPlace(place.topic, place.partition, place.offset, place.metadata or "")
    found.failure = why
    return found


def blocking(connection: Connection, apply: Callable[[Reply], None], timeout_s: float) -> Any:
    """The broker's answer. Raises _TIMED_OUT; what comes later is dropped."""
    answers: list[Any] = []
    arrived = Event()

    def answered(answer: Any) -> None:
        answers.append(answer)
        arrived.set()

    world().network.send(connection, apply, answered)
    if not arrived.wait(None if timeout_s < 0 else timeout_s) and not answers:
        raise failure(KafkaError._TIMED_OUT, retriable=True)
    return answers[0]
