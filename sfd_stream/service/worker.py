"""The worker: records in, a checkpointed sketch out, each row exactly once. The one place that knows the order.

    poll ──► decode ──► sketch (its own thread) ──► checkpoint (threads beside the loop) ──► commit
     │         └─► dead letters                          ▲
     └─ rebalances: assign = claim and restore, revoke = last checkpoint, lost = drop      (rebalance.py)

One thread, the loop's, owns the consumer, the producer and the table of tenures. The sketching thread owns the states.
Checkpoints and claims run on a few more, one at a time for a partition; what they need of it they ask at its desk.
"""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Future
from typing import Any, TypeVar

from sfd_stream.errors import BrokerRefusedError, RefusedStateError, SfdError
from sfd_stream.kafka.dead_letters import BadMessageGauge, DeadLetters
from sfd_stream.kafka.records import PartitionBatch
from sfd_stream.kafka.sink import Sink
from sfd_stream.kafka.source import Source
from sfd_stream.service.beside import Beside
from sfd_stream.service.claims import Claims, OutputEpochs, patiently
from sfd_stream.service.committing import Committing
from sfd_stream.service.courier import Courier
from sfd_stream.service.delivery import Delivery
from sfd_stream.service.desk import Desk
from sfd_stream.service.ending import Ending
from sfd_stream.service.intake import Intake
from sfd_stream.service.keeper import AbandonedError, Surroundings
from sfd_stream.service.outcomes import Outcomes
from sfd_stream.service.publishing import Publishing
from sfd_stream.service.rebalance import Tenures
from sfd_stream.service.sizing import too_wide
from sfd_stream.service.sketching import Sketching
from sfd_stream.service.tenure import JobKind, Log, Plan, Progress, Tenure
from sfd_stream.service.watch import Watch
from sfd_stream.state.manifest import Manifest
from sfd_stream.state.partition import Frozen, PartitionState, Shape
from sfd_stream.wire.formats.records import Decoder

T = TypeVar("T")

HELD_BACK_AFTER = 4
"""So many checkpoints' rows may wait for a store that is away before reading pauses."""

IO_THREADS = 8
LEAVE_S, FLUSH_S = 5.0, 1.0
"""At the end, after the last checkpoints: to commit and leave the group, and to get the last dead letters out."""


class _StoppedError(Exception):
    """Told to stop before the loop began."""


class Worker:
    """`run` until told to `stop`, until the end, or until something refuses."""

    def __init__(
        self,
        plan: Plan,
        around: Surroundings,
        sink: Sink | None,
        letters_for: Callable[[str | None], DeadLetters] | None,
        gauge: BadMessageGauge,
        watch: Watch,
        log: Log,
        publishing: Publishing | None = None,
        courier_for: Callable[[Worker], Courier] | None = None,
        prepare: Callable[[float], None] = lambda _: None,
        output_epochs: OutputEpochs | None = None,
        decoder: Decoder | None = None,
    ) -> None:
        self.plan = plan
        self.around = around
        self.watch = watch
        self.log = log
        self.progress = Progress()
        self.on_turn: Callable[[], None] = lambda: None
        self.source: Source  # set by `run`: the source needs its listener first
        self.tenures = Tenures(self)
        self.sketching = Sketching(self)
        self._beside = Beside(IO_THREADS, "checkpoint")
        self.committing = Committing(self, self._beside)
        self.delivery = Delivery(self, sink, publishing, courier_for(self) if courier_for is not None else None)
        self._outcomes = Outcomes(self)
        self._intake = Intake(plan.topic, plan.limits, gauge, around.wall_clock, watch, decoder)
        self._sink = sink
        self._letters_for = letters_for
        self._prepare = prepare
        self._output_epochs = output_epochs
        self._claims: Claims  # set when the broker has told who it is
        self._desk = Desk()
        self._stopping = False
        self._ending: Ending | None = None

    # The loop

    def run(self, source: Source) -> None:
        self.source = source
        try:
            self._begin()
            while not (self._stopping or self._at_the_end()):
                self.turn()
        except _StoppedError:
            pass
        except SfdError:
            raise  # what is whole is still worth a last checkpoint
        except BaseException:
            self.tenures.drop_where(lambda _: True)
            raise
        finally:
            self._close()

    def turn(self) -> None:
        claiming = any(tenure.state is None and tenure.job is not None for tenure in self.tenures.all())
        ending = self._ending is not None and self.sketching.idle
        for batch in self.source.poll(self.plan.batch_records, 0.01 if claiming or ending else 0.1):
            self._take(batch)
        self.watch.polled()
        self.serve()
        self._outcomes.settle()
        self._resume_with_schemas()
        self._begin_due()
        self.sketching.keep_pace()
        away_s = self.source.away_s
        if away_s is not None and away_s > self.plan.give_up_s:
            raise BrokerRefusedError(f"no broker has answered for {away_s:.0f} s ({self.source.away_words})")
        self.on_turn()

    def _take(self, batch: PartitionBatch) -> None:
        """Decode a batch, put bad messages aside, hand the rest to the sketching thread."""
        tenure = self.tenures.get(batch.partition)
        if tenure is None or tenure.state is None or tenure.columns is None:
            return  # given up while this batch was on its way, or read beyond the end
        if missing := self._intake.missing_schemas(batch):
            self.source.put_back(batch)
            self.sketching.await_schemas(tenure, missing)
            return
        taken = self._intake.take(batch, tenure.columns)
        if taken.decoded.growth:
            self._refuse_too_wide(tenure, taken.decoded.columns.d)
        tenure.take(taken.decoded, batch.next_offset, self.around.clock())
        self.progress.take(len(batch), taken.decoded)
        self.sketching.apply(tenure, taken.decoded, batch.next_offset, batch.leader_epoch, taken.tombstones)

    def _resume_with_schemas(self) -> None:
        """Partitions whose schemas have come are read on."""
        for tenure in self.tenures.all():
            if tenure.schemas_awaited and not self._intake.decoder.is_missing(tenure.schemas_awaited):
                self.sketching.await_schemas(tenure, frozenset())

    @property
    def registry_outage(self) -> str | None:
        """Why the schema registry does not answer; None while it does."""
        return self._intake.decoder.outage

    def _refuse_too_wide(self, tenure: Tenure, d: int) -> None:
        """Before anything is allocated for columns that the memory has no room for."""
        reason = too_wide(self.plan.shape(tenure.partition), d, self.plan.memory_max_bytes)
        if reason is not None:
            raise RefusedStateError(
                f"{tenure.keeper.where} has grown: {reason}; raise worker.memory_max_bytes, or lower sketch.ell, or"
                " lower input.d_max below the columns of such rows, which makes them bad messages"
            )

    def serve(self) -> None:
        """What others wait for: delivery reports, questions at the desk, commits that failed."""
        self.watch.alive()
        if self._sink is not None:
            self._sink.poll(0.0)
        self._desk.serve()
        self.committing.hear()

    # The order: durable before visible, visible before forgotten

    def _begin_due(self) -> None:
        now_s, policy = self.around.clock(), self.plan.checkpoint
        for tenure in self.tenures.all():
            if tenure.state is None:
                self.tenures.warn_if_stuck(tenure, now_s)
                continue
            elapsed_s = now_s - tenure.dirty_since if tenure.dirty_since is not None else 0.0
            due = policy.is_due(rows=tenure.rows_since, elapsed_s=elapsed_s, changed=tenure.dirty)
            show = self.delivery.is_due(tenure, now_s)
            if (due or show) and tenure.job is None:
                self.begin_checkpoint(tenure, show=show)
            elif tenure.job is None and self.delivery.is_again_due(tenure, now_s):
                tenure.republished_at = now_s
                self.begin(tenure, "publication", self.delivery.show_again, tenure)
            self.sketching.hold_back(tenure, too_far=tenure.rows_since >= HELD_BACK_AFTER * policy.every_rows)

    def begin_checkpoint(self, tenure: Tenure, *, show: bool = False) -> None:
        """`show`: with a snapshot of the state, for others to see."""
        show = show and self.delivery.shows
        freezing = self.sketching.freeze(tenure)
        self.watch.checkpoint_begun(tenure.partition, tenure.dirty_since)
        tenure.rows_since, tenure.dirty_since = 0, None
        if show:
            self.watch.snapshot_begun(tenure.partition, tenure.unseen_since)
            tenure.snapshot_at = tenure.republished_at = self.around.clock()
            tenure.unseen_since, tenure.rows_unseen = None, 0
        self.begin(tenure, "checkpoint", self._checkpoint, tenure, freezing, show)

    def _checkpoint(self, tenure: Tenure, freezing: Future[Frozen], show: bool) -> Manifest:
        """Beside the loop, one at a time for a partition."""
        reach, keeper = self.around.reach, tenure.keeper
        frozen, binding = freezing.result(), self._claims.binding_now(tenure.partition)
        self._await_letters(tenure, frozen.next_offset)
        reach("after-letters")
        snapshot = self.delivery.encode(tenure, frozen, binding) if show else None
        manifest = keeper.make_durable(frozen, binding, snapshot)  # durable before visible,
        self.watch.durable(tenure.partition, manifest)
        reach("after-manifest")
        self.delivery.show(tenure, snapshot)  # visible before forgotten
        self.delivery.commit(tenure, manifest)
        return manifest

    def _await_letters(self, tenure: Tenure, next_offset: int) -> None:
        """No offset is passed before every bad message below it is safely in the dead-letter topic."""
        while not self.ask(tenure, lambda: self._intake.is_safe(tenure.partition, next_offset)):
            if tenure.keeper.abandoned.wait(0.01):
                raise AbandonedError(tenure.keeper.where)

    def begin_claim(self, tenure: Tenure, shape: Shape) -> None:
        self.begin(tenure, "claim", self._claim, tenure, shape)

    def _claim(self, tenure: Tenure, shape: Shape) -> PartitionState:
        state = self._claims.claim(tenure, shape)
        self._refuse_too_wide(tenure, state.builder.d)
        if shape.topic_failure_probability is not None and state.shape.topic_failure_probability is None:
            tenure.log.info(
                "restored state keeps its own failure probability",
                failure_probability=state.builder.failure_probability,
                reason="it was made when sketch.failure_probability meant one partition, not the topic",
            )
        self.delivery.take_over(tenure)
        return state

    # Jobs beside the loop

    def begin(self, tenure: Tenure, kind: JobKind, job: Callable[..., Any], *args: Any) -> None:
        tenure.job_kind = kind  # first: the job may be told of before it is known
        tenure.job = self._beside.submit(job, *args)

    def ask(self, tenure: Tenure, question: Callable[[], T]) -> T:
        """At the desk: answered by the loop's thread, and only while the partition is ours."""
        return self._desk.ask(question, tenure.keeper.abandoned)

    def forget(self, partition: int) -> None:
        self._intake.forget(partition)

    # The beginning and the end

    def _begin(self) -> None:
        cluster_id = self._patiently(self.source.cluster_id)
        partitions = self._patiently(self.source.partition_count)
        self._claims = Claims(self.plan, self.around, self.source, cluster_id, partitions, self._output_epochs)
        self.delivery.know_partitions(partitions)
        self._patiently(self._prepare)
        if self._letters_for is not None:
            self._intake.letters = self._letters_for(self._patiently(self.source.topic_id))
        if self.plan.until_end:
            everything = range(partitions)
            ends = self._patiently(lambda timeout_s: self.source.end_offsets(everything, timeout_s))
            self.progress.ends = ends
            self._ending = Ending(ends, self.source, self, self.around.clock, self._beside)

    def _patiently(self, question: Callable[[float], T]) -> T:
        return patiently(question, clock=self.around.clock, give_up_s=self.plan.give_up_s, check=self._check_stopping)

    def _check_stopping(self, _: Exception) -> None:
        """A loop that waits for its broker is alive."""
        self.watch.alive()
        if self._stopping:
            raise _StoppedError

    @property
    def stopping(self) -> bool:
        return self._stopping

    def stop(self) -> None:
        """A last checkpoint, and out. May be called from a signal handler."""
        self._stopping = True

    def _at_the_end(self) -> bool:
        return self._ending is not None and self.sketching.idle and self._ending.reached()

    def _close(self) -> None:
        """Last checkpoints (on_revoke), leave the group, and out.

        Beyond the budget only running computations are awaited: the process must not exit while a thread is inside
        BLAS. Store and broker requests are abandoned.
        """
        self.tenures.close()
        try:
            self.source.close(self.plan.revoke_budget_s + LEAVE_S)
        finally:
            self.tenures.drop_where(lambda _: True)
            self._desk.close()
            self.delivery.close()
            self._intake.decoder.close()
            if self._sink is not None:
                self._sink.close(FLUSH_S)  # what no checkpoint waited for is met again
            self.sketching.close()
            self.watch.looker.close()
            self._beside.shutdown(wait=False, cancel_futures=True)
            self.around.computing.close()
