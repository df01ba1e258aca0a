"""Questions to a broker that may be unavailable. While it is, a warning within 5 s, then one every 30 s."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Mapping
from concurrent.futures import TimeoutError as NoAnswerError
from typing import TYPE_CHECKING, Any

from confluent_kafka import KafkaError, KafkaException

from sfd_stream.errors import BrokerRefusedError
from sfd_stream.kafka.errors import Fault, address, described, error_of, fault_of, refusal

if TYPE_CHECKING:
    from sfd_stream.kafka.admin import Admin

FIRST_S, EVERY_S = 2.0, 30.0


class Outage:
    """What is known about a broker that does not answer. Any thread may call it."""

    def __init__(
        self, properties: Mapping[str, Any], logger: logging.Logger, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self.refused: BrokerRefusedError | None = None
        """A permanent error that the client reported only by its callback, such as unknown credentials."""
        self.words = ""
        """The client's last report, in words."""
        self._properties = properties
        self._logger = logger
        self._clock = clock
        self._since: float | None = None
        self._warn_at = 0.0
        self._lock = threading.Lock()

    def note(self, error: KafkaError) -> None:
        """The client's error callback. A report with a reason replaces "all brokers down", not the other way round."""
        if fault_of(error) is Fault.REFUSED:
            self.refused = self.refused or refusal(error, self._properties)
        if not self.words or error.code() != KafkaError._ALL_BROKERS_DOWN:
            self.words = described(error, self._properties)

    def unanswered(self, since: float, words: str) -> None:
        """Called while a question that was asked at `since` has no answer."""
        with self._lock:
            self._since = since if self._since is None else self._since
            now, lasts_s = self._clock(), self._clock() - self._since
            if lasts_s < FIRST_S or now < self._warn_at:
                return
            self._warn_at = now + EVERY_S
        reason = self.words or words
        self._logger.warning(
            "broker unavailable, will retry: %s has not answered for %.0f s (%s)",
            address(self._properties),
            lasts_s,
            reason,
        )

    def answered(self) -> None:
        with self._lock:
            self._since, self._warn_at, self.words, self.refused = None, 0.0, "", None


def ask(
    question: Callable[[float], Any], timeout_s: float, properties: Mapping[str, Any], admin: Admin | None = None
) -> Any:
    """Repeats the question until it is answered. TimeoutError when the time is up: the fault may still be temporary."""
    began = time.monotonic()
    deadline = began + timeout_s
    while True:
        try:
            answer = question(max(deadline - time.monotonic(), 0.05))
        except KafkaException as exception:
            error = error_of(exception)
            if fault_of(error) is Fault.REFUSED:
                raise refusal(error, properties) from None
            words = error.name()
        except NoAnswerError:
            words = "no answer"
        else:
            if admin is not None:
                admin.answered()
            return answer
        if admin is not None:
            admin.unanswered(began, words)
        if time.monotonic() >= deadline:
            raise TimeoutError(f"{address(properties)} did not answer within {timeout_s:g} s ({words})")
        time.sleep(0.05)
