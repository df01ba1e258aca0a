"""Partitions come and go: assign = claim and restore, revoke = a last checkpoint, lost = drop. Called within `poll`.

Nothing here asks a broker or a store: claims and checkpoints run beside the loop, and only a revoke waits for them,
within its budget, serving meanwhile what they ask.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from concurrent.futures import Future
from functools import partial
from typing import Any, Protocol

from sfd_stream.errors import StoreUnavailableError
from sfd_stream.kafka.records import Start
from sfd_stream.service.keeper import AbandonedError, Keeper, Surroundings
from sfd_stream.service.tenure import Log, Plan, Tenure
from sfd_stream.service.watch import Watch
from sfd_stream.state.partition import Shape

_LOOK_S = 0.005
CLAIM_STUCK_S = 30.0
"""A claim whose step takes longer than this is logged, and as often."""


class Host(Protocol):
    """What is needed of the worker."""

    plan: Plan
    around: Surroundings
    log: Log
    watch: Watch

    def begin_claim(self, tenure: Tenure, shape: Shape) -> None: ...
    def begin_checkpoint(self, tenure: Tenure, *, show: bool = False) -> None: ...
    def serve(self) -> None: ...
    def forget(self, partition: int) -> None: ...


class Tenures:
    """The table of what is ours, and a RebalanceListener. The loop's thread alone touches it."""

    def __init__(self, host: Host) -> None:
        self.joined = False
        """Whether the group has answered at all, be it with no partition."""
        self._host = host
        self._table: dict[int, Tenure] = {}
        self._closing = False

    def get(self, partition: int) -> Tenure | None:
        return self._table.get(partition)

    def all(self) -> list[Tenure]:
        return list(self._table.values())

    def close(self) -> None:
        """From here on nothing more is claimed."""
        self._closing = True

    # What the source tells

    def on_assign(self, partitions: Collection[int]) -> Mapping[int, Start | None]:
        """Claims begin at once, beside the loop; each partition is read as soon as its state is restored."""
        self.joined = True
        self._host.watch.rebalanced("assign", partitions)
        plan, around = self._host.plan, self._host.around
        self.drop(partitions)  # a loss that the client never told of (librdkafka's pull request 5604)
        for partition in partitions:
            keeper = Keeper(plan.group, plan.topic, partition, around)
            tenure = Tenure(partition, keeper, self._host.log, assigned_s=around.clock())
            keeper.on_failure = partial(self._store_failed, tenure)
            keeper.on_step = partial(self._stepped, tenure)
            self._table[partition] = tenure
        self.claim_what_fits()
        return dict.fromkeys(partitions)

    def on_revoke(self, partitions: Collection[int]) -> None:
        """A last checkpoint within the budget, else let go: the next owner replays."""
        clock, pause = self._host.around.clock, self._host.around.pause
        deadline = clock() + self._host.plan.revoke_budget_s
        leaving = [self._table[p] for p in partitions if p in self._table]
        for tenure in leaving:
            if tenure.state is None:
                tenure.keeper.abandoned.set()
        while any([self._moves_on(tenure) for tenure in leaving]) and clock() < deadline:  # noqa: C419 - side by side
            self._host.serve()
            pause(_LOOK_S)
        for tenure in leaving:
            self._say_if_let_go(tenure)
        self._host.watch.rebalanced("revoke", partitions)
        self.drop(partitions)
        self.claim_what_fits()

    def on_lost(self, partitions: Collection[int]) -> None:
        """Already another's: write nothing."""
        self._host.log.warning("lost", partitions=sorted(partitions))
        self._host.watch.rebalanced("lost", partitions)
        self.drop(partitions)
        self.claim_what_fits()

    # Coming

    def claim_what_fits(self) -> None:
        """One partition is always taken; another only where there is room for it, else it waits, unread."""
        if self._closing:
            return
        plan = self._host.plan
        used = [plan.shape(tenure.partition).memory_bytes() for tenure in self.all() if tenure.in_memory]
        for tenure in self.all():
            if tenure.in_memory or tenure.finished:
                continue
            shape = plan.shape(tenure.partition)
            if used and sum(used) + shape.memory_bytes() > plan.memory_max_bytes:
                self._say_that_it_waits(tenure)
                continue
            used.append(shape.memory_bytes())
            tenure.begin_step("start", self._host.around.clock())
            self._host.begin_claim(tenure, shape)

    def _say_that_it_waits(self, tenure: Tenure) -> None:
        if not tenure.told_to_wait:
            tenure.told_to_wait = True
            tenure.log.warning(
                "no room for the partition: it waits, unread; raise worker.memory_max_bytes or add workers"
            )

    def _stepped(self, tenure: Tenure, step: str) -> None:
        tenure.begin_step(step, self._host.around.clock())

    def warn_if_stuck(self, tenure: Tenure, now_s: float) -> None:
        """A claim that waits for one answer this long is logged, and again as long as it does."""
        if tenure.job is None or now_s - max(tenure.step_s, tenure.stuck_told_s) < CLAIM_STUCK_S:
            return
        tenure.stuck_told_s = now_s
        tenure.log.warning(
            "partition claim does not progress",
            step=tenure.step,
            for_s=round(now_s - tenure.step_s),
            reason=tenure.step_failure or "no answer yet",
        )

    def _store_failed(self, tenure: Tenure, error: StoreUnavailableError) -> None:
        """Beside the loop, once an attempt: an outage is seen while it lasts, not when patience is over."""
        tenure.step_failure = str(error)
        self._host.watch.job_failed(tenure.job_kind, error)
        tenure.log.warning("checkpoint store request failed, will retry", job=tenure.job_kind, reason=str(error))

    # Going

    def _moves_on(self, tenure: Tenure) -> bool:
        """Whether a leaving partition has more to do: what runs is awaited, then what is not durable is made so.

        A claim is not awaited: it has nothing to save, and writes nothing more.
        """
        if tenure.state is None:
            return False
        if tenure.job is not None and not tenure.job.done():
            return True
        if _failure(tenure.job) is not None or not tenure.dirty:
            return False
        self._host.begin_checkpoint(tenure)
        return True

    def _say_if_let_go(self, tenure: Tenure) -> None:
        if tenure.state is None:
            return
        if tenure.job is not None and not tenure.job.done():
            failure: BaseException | None = AbandonedError("checkpoint.revoke_budget_s is over")
        else:
            failure = _failure(tenure.job)
        if failure is None:
            return
        if not (tenure.durable and tenure.job_kind == "checkpoint"):  # else it is in the store, and did not fail
            self._host.watch.job_failed(tenure.job_kind, failure)
        if tenure.durable:
            tenure.log.info(
                "let go with all rows durable: the next owner shows and commits the rest", reason=str(failure)
            )
        else:
            tenure.log.warning("let go without a last checkpoint: the next owner replays", reason=str(failure))

    def drop(self, partitions: Collection[int]) -> None:
        """Whatever still runs for them writes nothing more."""
        for partition in partitions:
            tenure = self._table.pop(partition, None)
            if tenure is not None:
                tenure.keeper.abandoned.set()
            self._host.forget(partition)

    def drop_where(self, condition: Callable[[Tenure], bool]) -> None:
        self.drop([tenure.partition for tenure in self.all() if condition(tenure)])


def _failure(job: Future[Any] | None) -> BaseException | None:
    return job.exception() if job is not None and job.done() else None
