"""Offsets told to the broker, for lag monitors: one that fails is told again until it is heard or overtaken."""

from __future__ import annotations

from concurrent.futures import Executor, Future
from typing import TYPE_CHECKING, Protocol

from sfd_stream.kafka.commits import Committed
from sfd_stream.kafka.source import Source
from sfd_stream.service.keeper import Surroundings
from sfd_stream.service.rebalance import Tenures
from sfd_stream.service.tenure import Log, Tenure
from sfd_stream.state.offset_metadata import metadata_of

if TYPE_CHECKING:
    from sfd_stream.service.delivery import Delivery

COMMIT_AGAIN_S = 1.0
CONFIRM_EVERY_S, CONFIRM_TIMEOUT_S = 30.0, 5.0
"""How often the committed offsets are compared with ours. The coordinator lets every member of a group commit every
partition: one that lost a partition without being told may commit an older offset after us."""


class Host(Protocol):
    """What is needed of the worker."""

    around: Surroundings
    log: Log
    delivery: Delivery
    source: Source
    tenures: Tenures


class Committing:
    """The loop's thread alone calls it."""

    def __init__(self, host: Host, background: Executor) -> None:
        self._host = host
        self._background = background
        self._again_s = 0.0
        self._confirm_s = 0.0
        self._ours: dict[int, int] = {}
        self._confirming: Future[dict[int, Committed | None]] | None = None

    def commit(self, tenure: Tenure, next_offset: int) -> None:
        tenure.commit_offset = next_offset
        published = tenure.keeper.is_published or not self._host.delivery.shows
        self._host.source.commit({tenure.partition: next_offset}, metadata_of(None, published=published))

    def hear(self) -> None:
        """What the broker said since, and what is due again."""
        now_s = self._host.around.clock()
        for result in self._host.source.commit_results():
            tenure = self._host.tenures.get(result.partition)
            if result.error is None and tenure is not None and tenure.commit_offset == result.offset:
                tenure.commit_offset = None
            elif result.error is not None:
                log = self._host.log.bind(partition=result.partition) if tenure is None else tenure.log
                log.debug("commit failed", error=result.error)
                self._again_s = now_s + COMMIT_AGAIN_S
        if 0 < self._again_s <= now_s:
            self._again_s = 0.0
            for tenure in self._host.tenures.all():
                if tenure.commit_offset is not None:
                    self.commit(tenure, tenure.commit_offset)
        self._confirm(now_s)

    def _confirm(self, now_s: float) -> None:
        """Asks in the background what is committed; what is behind our own last commit is committed again."""
        if self._confirming is None:
            if now_s >= self._confirm_s and not self._host.delivery.commits_itself:
                self._confirm_s, self._ours = now_s + CONFIRM_EVERY_S, dict(self._host.source.last_committed)
                if self._ours:
                    ask = self._host.source.committed
                    self._confirming = self._background.submit(ask, tuple(self._ours), CONFIRM_TIMEOUT_S)
            return
        if not self._confirming.done():
            return
        confirming, self._confirming = self._confirming, None
        if confirming.cancelled() or confirming.exception() is not None:
            return  # asked again; the worker itself reports a broker that is unavailable
        for partition, committed in confirming.result().items():
            tenure, offset = self._host.tenures.get(partition), self._host.source.last_committed.get(partition)
            if tenure is None or offset is None or tenure.commit_offset is not None:
                continue
            if committed is not None and committed.offset < self._ours[partition]:
                tenure.log.info("committed offset went back, committing it again", committed=committed.offset)
                self.commit(tenure, offset)
