"""Offsets told to the broker, for lag monitors: one that fails is told again until it is heard or overtaken."""

from __future__ import annotations

from typing import Protocol

from sfd_stream.kafka.source import Source
from sfd_stream.service.keeper import Surroundings
from sfd_stream.service.rebalance import Tenures
from sfd_stream.service.tenure import Log, Tenure

COMMIT_AGAIN_S = 1.0


class Host(Protocol):
    """What is needed of the worker."""

    around: Surroundings
    log: Log
    source: Source
    tenures: Tenures


class Committing:
    """The loop's thread alone calls it."""

    def __init__(self, host: Host) -> None:
        self._host = host
        self._again_s = 0.0

    def commit(self, tenure: Tenure, next_offset: int) -> None:
        tenure.commit_offset = next_offset
        self._host.source.commit({tenure.partition: next_offset})

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
