"""Whether brokers answer and the topic exists. Temporary faults are counted and timed; permanent ones are errors."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from concurrent.futures import Future
from typing import Any

from confluent_kafka import KafkaError

from sfd_stream.errors import BrokerRefusedError
from sfd_stream.kafka.admin import Admin
from sfd_stream.kafka.errors import Fault, address, described, fault_of, refusal
from sfd_stream.threads import on_thread

_PROBE_S = 1.0
"""Time between two questions while no broker is available."""

_PROBE_TIMEOUT_S = 5.0

CHECK_S = 10.0
RENEW_FIRST_S, RENEW_LAST_S = 60.0, 600.0
"""A client outside its group is replaced after the first time, then each time after twice as long, up to the last."""


class Presence:
    """The client reports a lost broker but not its return, so the return is asked for at intervals."""

    def __init__(
        self,
        admin: Admin,
        topic: str,
        properties: Mapping[str, Any],
        clock: Callable[[], float],
        unknown_topic_s: float,
    ) -> None:
        self.words = ""
        self._admin = admin
        self._topic = topic
        self._properties = properties
        self._clock = clock
        self._unknown_topic_s = unknown_topic_s
        self._unavailable_since: float | None = None
        self._unknown_since: float | None = None
        self._probed_at = clock()
        self._probing: Future[bool] | None = None

    @property
    def unavailable_s(self) -> float | None:
        return None if self._unavailable_since is None else self._clock() - self._unavailable_since

    def note(self, error: KafkaError) -> BrokerRefusedError | None:
        """Records a temporary error; returns a permanent one."""
        fault = fault_of(error)
        if fault is Fault.REFUSED:
            return refusal(error, self._properties)
        self.words = described(error, self._properties)
        if fault is Fault.UNKNOWN_TOPIC:
            self._unknown_since = self._unknown_since or self._clock()
        elif error.code() == KafkaError._ALL_BROKERS_DOWN:
            self._unavailable_since = self._unavailable_since or self._clock()
        return None

    def answered(self) -> None:
        """A record or an assignment has arrived: brokers and topic are available."""
        self._unavailable_since = self._unknown_since = None

    def probe(self) -> BrokerRefusedError | None:
        """Asks in the background for brokers and topic. Returns an error if the topic is missing for too long."""
        if self._unavailable_since is None and self._unknown_since is None:
            return None
        now = self._clock()
        if self._probing is None and now - self._probed_at >= _PROBE_S:
            # On a thread of its own: the client may take longer than its time limit.
            self._probing = on_thread("kafka-probe", self._admin.topic_exists, self._topic, _PROBE_TIMEOUT_S)
        if self._probing is None or not self._probing.done():
            return None
        probing, self._probing, self._probed_at = self._probing, None, now
        try:
            exists = probing.result()
        except TimeoutError:
            return None
        self._unavailable_since = None
        if exists:
            self._unknown_since = None
        elif self._unknown_since is not None and now - self._unknown_since >= self._unknown_topic_s:
            where = f"on {address(self._properties)} for {now - self._unknown_since:.0f} s"
            return BrokerRefusedError(f"topic {self._topic} does not exist {where}; create it, or set another topic")
        return None


class Membership:
    """How long a client has been outside its group, and when to replace it.

    librdkafka loses all its brokers permanently when a metadata response lists none, which happens while the brokers of
    a restarting cluster are fenced (its issue 5301, pull requests 5303 and 5606). Such a client never joins its group
    again; a new one does.
    """

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._check_at = clock() + CHECK_S
        self._outside_since: float | None = None
        self._renew_at = 0.0
        self._renew_after_s = RENEW_FIRST_S

    @property
    def outside_s(self) -> float | None:
        """How long the client has been outside its group; None for a member."""
        return None if self._outside_since is None else self._clock() - self._outside_since

    def is_overdue(self, is_inside: Callable[[], bool]) -> bool:
        """Asks every CHECK_S whether the client is inside its group. True when it must be replaced now."""
        now = self._clock()
        if now < self._check_at:
            return False
        self._check_at = now + CHECK_S
        if is_inside():
            self._outside_since, self._renew_after_s = None, RENEW_FIRST_S
            return False
        if self._outside_since is None:
            self._outside_since, self._renew_at = now, now + self._renew_after_s
        if now < self._renew_at:
            return False
        self._renew_after_s = min(2 * self._renew_after_s, RENEW_LAST_S)
        self._renew_at = now + self._renew_after_s
        return True
