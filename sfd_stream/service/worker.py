"""The worker: records in, a checkpointed sketch out, each row exactly once. The one place that knows the order.

    poll ──► decode ──► sketch (its own thread) ──► checkpoint (threads beside the loop) ──► commit
     │         └─► dead letters                          ▲
     └─ rebalances: assign = claim and restore, revoke = last checkpoint, lost = drop      (rebalance.py)

One thread, the loop's, owns the consumer, the producer and the table of tenures. The sketching thread owns the states.
Checkpoints and claims run on a few more, one at a time for a partition; what they need of it they ask at its desk.
"""

from __future__ import annotations

import contextlib
from collections import deque
from collections.abc import Callable
from concurrent.futures import Future
from concurrent.futures import TimeoutError as NotYetError
from typing import Any, TypeVar

from sfd_stream.errors import BrokerRefusedError, FencedError, SfdError, StoreRefusedError
from sfd_stream.kafka.dead_letters import BadMessageGauge, DeadLetters
from sfd_stream.kafka.records import PartitionBatch, Start
from sfd_stream.kafka.sink import Sink
from sfd_stream.kafka.source import Source
from sfd_stream.service.beside import Beside
from sfd_stream.service.claims import TOPIC_ID_S, Claims, patiently
from sfd_stream.service.courier import Courier
from sfd_stream.service.desk import Desk, DeskClosedError
from sfd_stream.service.ending import Ending
from sfd_stream.service.intake import Intake
from sfd_stream.service.keeper import AbandonedError, Surroundings
from sfd_stream.service.looks import Shot
from sfd_stream.service.publisher import Publisher
from sfd_stream.service.publishing import Publishing
from sfd_stream.service.rebalance import Tenures
from sfd_stream.service.seen import Facts
from sfd_stream.service.tenure import Log, Plan, Progress, Tenure
from sfd_stream.service.watch import Watch
from sfd_stream.state.manifest import Binding, Manifest
from sfd_stream.state.partition import Frozen, PartitionState, Shape
from sfd_stream.wire.rows import DecodedBatch

T = TypeVar("T")

AHEAD_MAX = 4
"""Batches that may wait for the sketching thread before the loop waits for it."""

PATIENCE_S = 0.5
"""So long the loop waits for the sketching thread before it pauses reading and goes on polling."""

HELD_BACK_AFTER = 4
"""So many checkpoints' rows may wait for a store that is away before reading pauses."""

IO_THREADS = 8
COMMIT_AGAIN_S = 1.0
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
        prepare: Callable[[], None] = lambda: None,
        output_epoch: Callable[[int], int | None] = lambda _: None,
    ) -> None:
        self.plan = plan
        self.publishing = publishing
        self.around = around
        self.sink = sink
        self.watch = watch
        self.log = log
        self.progress = Progress()
        self.on_turn: Callable[[], None] = lambda: None
        self.tenures = Tenures(self)
        self.source: Source  # set by `run`: the source needs its listener first
        self._intake = Intake(plan.topic, plan.limits, gauge, around.wall_clock, watch)
        self._publisher = None if sink is None or publishing is None else Publisher(self, sink, publishing)
        self._courier = courier_for(self) if courier_for is not None else None
        self._letters_for = letters_for
        self._prepare = prepare
        self._output_epoch = output_epoch
        self._partitions = 0
        self._claims: Claims  # set when the broker has told who it is
        self._desk = Desk()
        self._sketching = Beside(1, "sketch")
        self._beside = Beside(IO_THREADS, "checkpoint")
        self._applying: deque[Future[None]] = deque()
        self._stalled = False
        self._stopping = False
        self._ending: Ending | None = None
        self._commit_again_s = 0.0

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

    def stop(self) -> None:
        """A last checkpoint, and out. May be called from a signal handler."""
        self._stopping = True

    def turn(self) -> None:
        claiming = any(tenure.state is None and tenure.job is not None for tenure in self.tenures.all())
        for batch in self.source.poll(self.plan.batch_records, 0.01 if claiming else 0.1):
            self._take(batch)
        self.watch.polled()
        self.serve()
        self._settle()
        self._begin_due()
        self._keep_pace()
        away_s = self.source.away_s
        if away_s is not None and away_s > self.plan.give_up_s:
            raise BrokerRefusedError(f"no broker has answered for {away_s:.0f} s ({self.source.away_words})")
        self.on_turn()

    def _begin(self) -> None:
        cluster_id = self._patiently(self.source.cluster_id)
        self._claims = Claims(self.plan, self.around, self.source, self._desk, cluster_id, self._output_epoch)
        self._partitions = self._patiently(self.source.partition_count)
        self._prepare()
        if self._letters_for is not None:
            self._intake.letters = self._letters_for(self._patiently(self.source.topic_id))
        if self.plan.until_end:
            everything = range(self._partitions)
            ends = self._patiently(lambda timeout_s: self.source.end_offsets(everything, timeout_s))
            self.progress.ends = ends
            self._ending = Ending(ends, self.source, self, self.around.clock)

    def _patiently(self, question: Callable[[float], T]) -> T:
        return patiently(question, clock=self.around.clock, give_up_s=self.plan.give_up_s, check=self._check_stopping)

    def _check_stopping(self) -> None:
        """A loop that waits for its broker is alive."""
        self.watch.alive()
        if self._stopping:
            raise _StoppedError

    def _at_the_end(self) -> bool:
        return self._ending is not None and not self._applying and self._ending.reached()

    def serve(self) -> None:
        """What others wait for: delivery reports, questions at the desk, commits that failed."""
        self.watch.alive()
        if self.sink is not None:
            self.sink.poll(0.0)
        self._desk.serve()
        self._hear_commits()

    # Reading

    def _take(self, batch: PartitionBatch) -> None:
        """Decode a batch, put bad messages aside, hand the rest to the sketching thread."""
        tenure = self.tenures.get(batch.partition)
        if tenure is None or tenure.state is None or tenure.columns is None:
            return  # given up while this batch was on its way, or read beyond the end
        taken = self._intake.take(batch, tenure.columns)
        decoded = taken.decoded
        tenure.columns = decoded.columns
        tenure.rows_since += decoded.block.rows
        tenure.rows_unseen += decoded.block.rows
        tenure.unseen = True
        tenure.dirty_since = self.around.clock() if tenure.dirty_since is None else tenure.dirty_since
        self.progress.records += len(batch)
        self.progress.rows += decoded.block.rows
        self.progress.bad += len(decoded.bad)
        apply = (self._apply, tenure, decoded, batch.next_offset, batch.leader_epoch, taken.tombstones)
        self._applying.append(self._sketching.submit(*apply))

    def _apply(self, tenure: Tenure, decoded: DecodedBatch, next_offset: int, *more: Any) -> None:
        """On the sketching thread."""
        state, before, began_s = tenure.state, tenure.facts, self.around.clock()
        assert state is not None
        assert before is not None
        state.apply(decoded, next_offset, *more)
        tenure.facts = Facts.of(state)
        self.watch.applied(tenure.partition, before, tenure.facts, self.around.clock() - began_s)

    def _keep_pace(self) -> None:
        """Stay a few batches ahead of the sketch, no more. A long shrink pauses reading, never polling."""
        while self._applying and (self._applying[0].done() or len(self._applying) > AHEAD_MAX):
            try:
                self._applying[0].result(PATIENCE_S)
            except NotYetError:
                if not self._stalled:
                    self._stalled = True
                    self.source.pause(self.source.assigned)
                return
            self._applying.popleft()
        if self._stalled:
            self._stalled = False
            self.source.resume([t.partition for t in self.tenures.all() if not (t.held_back or t.finished)])

    # The order: durable before visible, visible before forgotten

    def _begin_due(self) -> None:
        now, policy = self.around.clock(), self.plan.checkpoint
        for tenure in self.tenures.all():
            if tenure.state is None:
                continue
            elapsed_s = now - tenure.dirty_since if tenure.dirty_since is not None else 0.0
            due = policy.is_due(rows=tenure.rows_since, elapsed_s=elapsed_s, changed=tenure.dirty)
            show = self.publishing is not None and self.publishing.is_due(tenure, now)
            if (due or show) and tenure.job is None:
                self.begin_checkpoint(tenure, show=show)
            elif tenure.job is None and self.publishing is not None and self.publishing.is_again_due(tenure, now):
                self._begin_again(tenure)
            self._hold_back(tenure, too_far=tenure.rows_since >= HELD_BACK_AFTER * policy.every_rows)

    def begin_checkpoint(self, tenure: Tenure, *, show: bool = False) -> None:
        """`show`: with a snapshot of the state, for others to see."""
        assert tenure.state is not None
        frozen = self._sketching.submit(tenure.state.freeze)
        self.watch.checkpoint_begun(tenure.partition, tenure.dirty_since)
        tenure.rows_since, tenure.dirty_since = 0, None
        if show and self.publishing is not None:
            tenure.snapshot_at, tenure.unseen, tenure.rows_unseen = self.around.clock(), False, 0
        tenure.job = self._beside.submit(self._checkpoint, tenure, frozen, show=show and self.publishing is not None)

    def _checkpoint(self, tenure: Tenure, freezing: Future[Frozen], *, show: bool) -> Manifest:
        """Beside the loop, one at a time for a partition."""
        reach, keeper = self.around.reach, tenure.keeper
        frozen, binding = freezing.result(), self._claims.binding_now(tenure.partition)
        self._await_letters(tenure, frozen.next_offset)
        reach("after-letters")
        snapshot = self._encode(tenure, frozen, binding) if show else None
        manifest = keeper.make_durable(frozen, binding, snapshot)  # durable before visible,
        reach("after-manifest")
        if self._courier is not None:
            self._courier.deliver(tenure, snapshot)  # visible and forgotten at once
            return manifest
        if snapshot is not None:
            self._publish(tenure, snapshot)  # visible before forgotten
        reach("before-commit")
        self.ask(tenure, lambda: self._commit(tenure, manifest.next_offset))
        reach("after-commit")
        self.watch.checkpointed(tenure.partition, manifest)
        return manifest

    def _encode(self, tenure: Tenure, frozen: Frozen, binding: Binding) -> bytes:
        manifest = tenure.keeper.manifest
        assert manifest is not None
        assert self.publishing is not None
        with contextlib.suppress(TimeoutError):  # as many as were known last
            self._partitions = self.source.partition_count(TOPIC_ID_S)
        shape, made_at_s = self.plan.shape(tenure.partition), self.around.wall_clock()
        return self.publishing.encode(frozen, shape, manifest.next_state_id, binding, self._partitions, made_at_s)

    def _publish(self, tenure: Tenure, snapshot: bytes) -> None:
        assert self._publisher is not None
        self._publisher.publish(tenure, snapshot)

    def _begin_again(self, tenure: Tenure) -> None:
        """The newest snapshot once more, under its own id; or, in transactions, what could not be delivered."""
        tenure.snapshot_at = self.around.clock()
        if self._courier is not None:
            tenure.job = self._beside.submit(self._courier.deliver, tenure)
        else:
            tenure.job = self._beside.submit(lambda: self._publish(tenure, tenure.keeper.snapshot_bytes()))

    def _await_letters(self, tenure: Tenure, next_offset: int) -> None:
        """No offset is passed before every bad message below it is safely in the dead-letter topic."""
        while not self.ask(tenure, lambda: self._intake.is_safe(tenure.partition, next_offset)):
            if tenure.keeper.abandoned.wait(0.01):
                raise AbandonedError(tenure.keeper.where)

    def ask(self, tenure: Tenure, question: Callable[[], T]) -> T:
        """At the desk: answered by the loop's thread, and only while the partition is ours."""
        return self._desk.ask(question, tenure.keeper.abandoned)

    def _hold_back(self, tenure: Tenure, *, too_far: bool) -> None:
        """A store that is away must not leave an ever longer way to replay: stop reading until it is back."""
        if too_far == tenure.held_back:
            return
        tenure.held_back = too_far
        if too_far:
            self.log.warning("paused: the checkpoint store does not keep up", partition=tenure.partition)
            self.source.pause([tenure.partition])
        else:
            self.log.info("resumed: the checkpoint store has caught up", partition=tenure.partition)
            if not self._stalled:
                self.source.resume([tenure.partition])

    # Commits: on the loop's thread; one that fails is sent again until it is heard or overtaken

    def _commit(self, tenure: Tenure, next_offset: int) -> None:
        tenure.commit_offset = next_offset
        self.source.commit({tenure.partition: next_offset})

    def _hear_commits(self) -> None:
        for result in self.source.commit_results():
            tenure = self.tenures.get(result.partition)
            if result.error is None and tenure is not None and tenure.commit_offset == result.offset:
                tenure.commit_offset = None
            elif result.error is not None:
                self.log.debug("commit failed", partition=result.partition, error=result.error)
                self._commit_again_s = self.around.clock() + COMMIT_AGAIN_S
        if 0 < self._commit_again_s <= self.around.clock():
            self._commit_again_s = 0.0
            for tenure in self.tenures.all():
                if tenure.commit_offset is not None:
                    self._commit(tenure, tenure.commit_offset)

    # What became of jobs

    def _settle(self) -> None:
        for tenure in self.tenures.all():
            job = tenure.job
            if job is None or not job.done() or self.tenures.get(tenure.partition) is not tenure:
                continue
            tenure.job = None
            try:
                outcome = job.result()
            except FencedError as error:
                self._fenced(tenure, error)
            except (AbandonedError, DeskClosedError):
                continue
            except BaseException as error:
                self.watch.checkpoint_failed(error)
                self.tenures.drop([tenure.partition])
                raise
            else:
                self._finish(tenure, outcome)

    def _finish(self, tenure: Tenure, outcome: PartitionState | Manifest | None) -> None:
        if isinstance(outcome, PartitionState):
            self._begin_reading(tenure, outcome)
        if isinstance(outcome, Manifest):
            self.progress.checkpoints += 1
            self.log.debug(
                "checkpoint", partition=tenure.partition, epoch=outcome.epoch, number=outcome.number,
                next_offset=outcome.next_offset,
            )  # fmt: skip
        if outcome is not None:
            tenure.job = self._beside.submit(self._tidy, tenure)

    def _tidy(self, tenure: Tenure) -> None:
        try:
            tenure.keeper.tidy()
        except StoreRefusedError as error:  # no right to delete: old states pile up, which loses nothing
            self.log.warning("old checkpoints stay", partition=tenure.partition, reason=str(error))

    def _begin_reading(self, tenure: Tenure, state: PartitionState) -> None:
        tenure.state, tenure.columns, tenure.facts = state, state.columns, Facts.of(state)
        tenure.snapshot_at = self.around.clock()
        tenure.unseen = tenure.keeper.has_unseen_state
        self.source.begin(tenure.partition, Start(state.next_offset, state.leader_epoch))
        if self._stalled:
            self.source.pause([tenure.partition])
        if self._courier is None:
            self._commit(tenure, state.next_offset)  # so that lag is known from the start
        self.watch.restored(tenure.partition, tenure.facts)
        manifest = tenure.keeper.manifest
        assert manifest is not None
        self.log.info(
            "restored", partition=tenure.partition, epoch=manifest.epoch, number=manifest.number,
            next_offset=state.next_offset, rows=state.rows,
        )  # fmt: skip

    def _fenced(self, tenure: Tenure, error: FencedError) -> None:
        """Somebody else owns it: drop it, write nothing, leave the group and join again.

        What is being claimed goes too: it will be assigned anew, to us or to another.
        """
        self.progress.fences += 1
        self.watch.fenced(tenure.partition)
        self.log.warning("fenced", partition=tenure.partition, reason=str(error))
        self.tenures.drop_where(lambda t: t is tenure or (t.state is None and not t.finished))
        self.source.rejoin()

    # For those who watch

    @property
    def stopping(self) -> bool:
        return self._stopping

    @property
    def sketch_idle(self) -> bool:
        return not self._applying

    def shoot(self, tenure: Tenure) -> Future[Shot]:
        return self._sketching.submit(Shot.of, tenure.state)

    # For rebalances and the end

    def submit_claim(self, tenure: Tenure, shape: Shape) -> Future[PartitionState]:
        return self._beside.submit(self._claim, tenure, shape)

    def _claim(self, tenure: Tenure, shape: Shape) -> PartitionState:
        state, keeper = self._claims.claim(tenure, shape), tenure.keeper
        if self._courier is not None:
            self._courier.deliver(tenure, keeper.unpublished)
        elif self.publishing is not None and keeper.unpublished is not None:
            self._publish(tenure, keeper.unpublished)  # what the last owner left due, under its own id
        keeper.unpublished = None
        return state

    def forget(self, partition: int) -> None:
        self._intake.forget(partition)

    def advance(self, tenure: Tenure, next_offset: int) -> None:
        """Over offsets that hold no record for us; the sketching thread is idle."""
        assert tenure.state is not None
        assert not self._applying
        tenure.state.advance(next_offset)
        tenure.facts = Facts.of(tenure.state)
        tenure.dirty_since = self.around.clock() if tenure.dirty_since is None else tenure.dirty_since

    def _close(self) -> None:
        """Last checkpoints (on_revoke), leave the group, and out. Nothing is waited for beyond the budget."""
        self.tenures.close()
        try:
            self.source.close(self.plan.revoke_budget_s + LEAVE_S)
        finally:
            self.tenures.drop_where(lambda _: True)
            self._desk.close()
            if self._courier is not None:
                self._courier.close()
            if self.sink is not None:
                self.sink.close(FLUSH_S)  # what no checkpoint waited for is met again
            self._sketching.shutdown(wait=False, cancel_futures=True)
            self._beside.shutdown(wait=False, cancel_futures=True)
