"""What became of the jobs beside the loop: a claim begins reading, a checkpoint is counted, a fence makes us rejoin."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol

from sfd_stream.errors import FencedError, StoreRefusedError
from sfd_stream.kafka.records import Start
from sfd_stream.kafka.source import Source
from sfd_stream.service.committing import Committing
from sfd_stream.service.delivery import Delivery
from sfd_stream.service.desk import DeskClosedError
from sfd_stream.service.keeper import AbandonedError, Surroundings
from sfd_stream.service.rebalance import Tenures
from sfd_stream.service.seen import Facts
from sfd_stream.service.sketching import Sketching
from sfd_stream.service.tenure import JobKind, Progress, Tenure
from sfd_stream.service.watch import Watch
from sfd_stream.state.manifest import Manifest
from sfd_stream.state.partition import PartitionState


class Host(Protocol):
    """What is needed of the worker."""

    around: Surroundings
    committing: Committing
    delivery: Delivery
    progress: Progress
    sketching: Sketching
    source: Source
    tenures: Tenures
    watch: Watch

    def begin(self, tenure: Tenure, kind: JobKind, job: Callable[..., Any], *args: Any) -> None: ...


class Outcomes:
    """The loop's thread calls `settle` once a turn."""

    def __init__(self, host: Host) -> None:
        self._host = host

    def settle(self) -> None:
        for tenure in self._host.tenures.all():
            job = tenure.job
            if job is None or not job.done() or self._host.tenures.get(tenure.partition) is not tenure:
                continue
            tenure.job = None
            try:
                outcome = job.result()
            except FencedError as error:
                self._fenced(tenure, error)
            except (AbandonedError, DeskClosedError):
                continue
            except BaseException as error:
                self._host.watch.job_failed(tenure.job_kind, error)
                self._host.tenures.drop([tenure.partition])
                raise
            else:
                self._finish(tenure, outcome)

    def _finish(self, tenure: Tenure, outcome: PartitionState | Manifest | None) -> None:
        if isinstance(outcome, PartitionState):
            self._begin_reading(tenure, outcome)
        if isinstance(outcome, Manifest):
            self._host.progress.checkpoints += 1
            tenure.log.debug("checkpoint", next_offset=outcome.next_offset)
        if outcome is not None:
            self._host.begin(tenure, "retention", self._tidy, tenure)

    def _tidy(self, tenure: Tenure) -> None:
        try:
            tenure.keeper.tidy()
        except StoreRefusedError as error:  # no right to delete: old states pile up, which loses nothing
            self._host.watch.job_failed("retention", error)
            tenure.log.warning("old checkpoints stay", reason=str(error))

    def _begin_reading(self, tenure: Tenure, state: PartitionState) -> None:
        host, now_s = self._host, self._host.around.clock()
        tenure.state, tenure.columns, tenure.facts = state, state.columns, Facts.of(state)
        tenure.next_offset, tenure.snapshot_at, tenure.republished_at = state.next_offset, now_s, now_s
        tenure.unseen_since = now_s if tenure.keeper.has_unseen_state else None
        host.source.begin(tenure.partition, Start(state.next_offset, state.leader_epoch))
        host.sketching.welcome(tenure.partition)
        if not host.delivery.commits_itself:
            host.committing.commit(tenure, state.next_offset)  # so that lag is known from the start
        host.watch.restored(tenure.partition, tenure.facts)
        tenure.log.info("restored", next_offset=state.next_offset, rows=state.rows)

    def _fenced(self, tenure: Tenure, error: FencedError) -> None:
        """Somebody else owns it: drop it, write nothing, leave the group and join again.

        What is being claimed goes too: it will be assigned anew, to us or to another.
        """
        self._host.progress.fences += 1
        self._host.watch.fenced(tenure.partition, tenure.job_kind)
        tenure.log.warning("fenced", reason=str(error))
        self._host.tenures.drop_where(lambda t: t is tenure or (t.state is None and not t.finished))
        self._host.source.rejoin()
