"""Idempotent delivery: a snapshot's bytes onto the output topic, acknowledged before anything is forgotten.

A state may be shown twice, under the same id with the same bytes. A zombie that slept between the look into the store
and the produce may put an older one on top: who saw the newer drops it, the next publication heals it for all others.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol, TypeVar

from sfd_stream.kafka.sink import TOO_LARGE, Sink, Ticket
from sfd_stream.service.keeper import AbandonedError, Surroundings
from sfd_stream.service.publishing import Publishing
from sfd_stream.service.tenure import Tenure
from sfd_stream.service.watch import Watch

T = TypeVar("T")

LOOK_MIN_S, LOOK_MAX_S = 0.002, 0.1
"""How often a delivery report is looked for: at first often, then, when it does not come, seldom."""


class Host(Protocol):
    """What is needed of the worker."""

    around: Surroundings
    watch: Watch

    def ask(self, tenure: Tenure, question: Callable[[], T]) -> T: ...


class Publisher:
    """`publish` is called beside the loop, whose thread owns the sink."""

    def __init__(self, host: Host, sink: Sink, publishing: Publishing) -> None:
        self._host = host
        self._sink = sink
        self._publishing = publishing

    def publish(self, tenure: Tenure, snapshot: bytes) -> None:
        """Sees the bytes of the manifest's due snapshot onto the output topic; if that fails, it stays due."""
        keeper, reach = tenure.keeper, self._host.around.reach
        assert keeper.manifest is not None
        due = keeper.manifest.due
        assert due is not None
        keeper.check_owner()
        began_s = self._host.around.clock()
        key, value, headers = self._publishing.message(snapshot, due)

        def hand_over() -> Ticket | None:
            reach("before-publish")
            return self._sink.publish(self._publishing.topic, key, value, headers)

        ticket = self._until_reported(tenure, hand_over)
        reach("after-publish")
        if ticket.delivered:
            keeper.published = due
            seconds = self._host.around.clock() - began_s
            self._host.watch.snapshot_published(tenure.partition, seconds, len(snapshot))
            return
        too_large = ticket.error == TOO_LARGE
        self._host.watch.snapshot_failed("refused" if too_large else "unavailable")
        reason = self._publishing.advice(len(value)) if too_large else ticket.error
        tenure.log.warning("snapshot not published: it stays due", reason=reason)

    def _until_reported(self, tenure: Tenure, hand_over: Callable[[], Ticket | None]) -> Ticket:
        ticket, look_s = self._host.ask(tenure, hand_over), LOOK_MIN_S
        while ticket is None or not ticket.done:
            if tenure.keeper.abandoned.wait(look_s):
                raise AbandonedError(tenure.keeper.where)
            look_s = min(2 * look_s, LOOK_MAX_S)
            if ticket is None:  # the queue was full
                ticket = self._host.ask(tenure, hand_over)
        return ticket
