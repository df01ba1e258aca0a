"""The worker: records in, a checkpointed and published sketch out, each row counted exactly once.

    poll ──► decode ──► sketch thread ──► checkpoint: durable ──► deliver: published and committed ──► prune
               └─► dead letters

The loop's thread owns the consumer, the producer and the table of partitions, and decides everything. It drives claims
and checkpoints as jobs (jobs.py). Other threads only compute, or make one request after the other.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from concurrent.futures import Future
from dataclasses import dataclass
from functools import partial

from sfd_stream.errors import FencedError, RefusedStateError, SfdError, StoreRefusedError
from sfd_stream.kafka.producer import Sink
from sfd_stream.kafka.records import PartitionBatch, Start
from sfd_stream.kafka.source import Source
from sfd_stream.loop.intake import Intake
from sfd_stream.loop.jobs import Job, Jobs, Running, answer, reached
from sfd_stream.loop.questions import Questions
from sfd_stream.loop.runtime import Plan, Runtime
from sfd_stream.observe.facts import ReleasedError
from sfd_stream.observe.logs import Log
from sfd_stream.observe.worker_status import Watch
from sfd_stream.state.manifest import Binding
from sfd_stream.state.partition import Frozen, PartitionState, sketch_of
from sfd_stream.state.policy import CheckpointPolicy
from sfd_stream.tools.sizing import LESS_MEMORY_WHILE_RUNNING, too_wide
from sfd_stream.worker.checkpoint_chain import CheckpointChain
from sfd_stream.worker.delivery import Delivery
from sfd_stream.worker.partitions import OwnedPartition, Partitions, Phase
from sfd_stream.worker.report import Report
from sfd_stream.worker.sketch_thread import SketchThread
from sfd_stream.worker.until_end import UntilEnd

IDLE_S, BUSY_S, REVOKE_S = 0.1, 0.01, 0.005
"""How long a turn waits when there is nothing to do, while a job or the end is awaited, and within a revoke."""

LEAVE_S, FLUSH_S = 5.0, 1.0
"""Time limits at the end: to commit and leave the group after the last checkpoints; to flush the last dead letters."""


@dataclass(eq=False)
class Worker:
    """`run` lasts until `stop`, until the end is reached, or until an error. Also the source's RebalanceListener."""

    plan: Plan
    runtime: Runtime
    source: Source
    sink: Sink | None
    intake: Intake
    questions: Questions
    partitions: Partitions
    delivery: Delivery
    watch: Watch
    log: Log
    prepare: Callable[[float], None] = lambda _: None  # creates the output topic

    def __post_init__(self) -> None:
        self.progress = self.watch.progress
        self.sketch = SketchThread(self.runtime, self.watch)
        self.jobs: Jobs[OwnedPartition] = Jobs(self.runtime, self._store_failed)
        self.background: Jobs[str] = Jobs(self.runtime)
        self._report = Report(self.plan, self.runtime, self.source, self.partitions, self.jobs, self.sketch, self.watch)
        self._policy = CheckpointPolicy(self.plan.checkpoint.every_rows, self.plan.checkpoint.every_s)
        self._until_end: UntilEnd | None = None
        self._stopping = False

    # The loop

    def run(self, on_turn: Callable[[], None] = lambda: None) -> None:
        """`on_turn` is called after each turn."""
        try:
            self.open()
            while not (self._stopping or self._is_at_end()):
                self.turn()
                on_turn()
        except SfdError:
            raise  # the states of other partitions are whole: `_close` writes their last checkpoints
        except BaseException:
            self._release(*self.partitions)
            raise
        finally:
            self._close()

    def turn(self) -> None:
        """One pass of the loop. It blocks only in `poll` and `wait`, at most for IDLE_S or the sketch's PATIENCE_S."""
        for batch in self._poll():
            self._take(batch)
        self._serve()
        for finished in self.jobs.advance():
            self._handle(finished)
        self._advance_background()
        for owned in self.partitions.among(Phase.READING):
            self._start_due(owned)
        self.sketch.collect()
        self._pause_or_resume()
        self.source.check_available(self.plan.checkpoint.give_up_s)
        self._report.update(stopping=self._stopping, registry_outage=self.intake.decoder.outage)

    def _poll(self) -> list[PartitionBatch]:
        """Polls the client, without waiting while jobs run: an answer to a job can't wake the client."""
        spare_s = self.sketch.spare_s
        if spare_s:
            self.runtime.wait(spare_s)
            return []
        ending = self._until_end is not None and self.sketch.idle
        batches = self.source.poll(self.plan.worker.batch_records, 0.0 if self.jobs else BUSY_S if ending else IDLE_S)
        self.watch.polled()
        if self.jobs and not batches:
            self.runtime.wait(BUSY_S)
        return batches

    def _take(self, batch: PartitionBatch) -> None:
        """Decodes a batch, sends bad messages to the dead-letter topic, hands the rows over to the sketch thread."""
        owned = self.partitions.get(batch.partition)
        if owned is None or owned.phase is not Phase.READING:
            return  # released after this batch was polled, or finished
        if missing := self.intake.missing_schemas(batch):
            self.source.put_back(batch)
            owned.schemas_awaited = missing
            return
        decoded, tombstones = self.intake.take(batch, owned.taken.columns)
        if decoded.growth:
            self._refuse_too_wide(owned, decoded.columns.d)
        owned.taken.take(decoded, batch.next_offset, self.runtime.clock())
        self.sketch.apply(owned, batch, decoded, tombstones)

    def _refuse_too_wide(self, owned: OwnedPartition, d: int) -> None:
        """Refuses columns that memory has no room for, before anything is allocated for them."""
        if reason := too_wide(self.plan.shape(owned.number), d, self.plan.worker.memory_max_bytes):
            raise RefusedStateError(f"{owned.chain.where} has grown: {reason}; {LESS_MEMORY_WHILE_RUNNING}")

    def _serve(self) -> None:
        """Processes what jobs wait for: delivery reports, transactions."""
        self.watch.alive()
        if self.sink is not None:
            self.sink.poll(0.0)
        self.delivery.serve()

    def _pause_or_resume(self) -> None:
        """Decides each turn which partitions are paused: by the progress of sketch, store and schema registry."""
        stalled = self.sketch.spare_s == 0.0
        for owned in self.partitions:
            if owned.schemas_awaited and not self.intake.decoder.is_missing(owned.schemas_awaited):
                owned.schemas_awaited = frozenset()
        self.source.pause_only({owned.number for owned in self.partitions if stalled or owned.is_paused})

    # The order: durable first, everything else follows from the manifest

    def _start_due(self, owned: OwnedPartition) -> None:
        now_s, taken = self.runtime.clock(), owned.taken
        if self.jobs.of(owned) is None:
            publish = self.delivery.is_due(owned, now_s)
            if publish or self._policy.is_due(taken.unstored, now_s):
                self._start_checkpoint(owned, publish=publish)
            elif self.delivery.is_again_due(owned, now_s - max(taken.unpublished.begun_at_s, taken.republished_at_s)):
                taken.republished_at_s = now_s
                self.jobs.start(owned, "publication", self.delivery.deliver(owned, again=True))
        owned.store_behind = self._policy.is_behind(taken.unstored)

    def _start_checkpoint(self, owned: OwnedPartition, *, publish: bool = False) -> None:
        """`publish`: with a snapshot of the state."""
        freezing, asking = self.sketch.freeze(owned), self.runtime.io.submit(self.questions.topic_now, publish)
        owned.taken.unstored.begin(self.runtime.clock())
        if publish:
            owned.taken.unpublished.begin(self.runtime.clock())
        self.jobs.start(owned, "checkpoint", self._checkpoint(owned, freezing, asking, publish=publish))

    def _checkpoint(
        self, owned: OwnedPartition, freezing: Future[Frozen], asking: Future[str | None], *, publish: bool
    ) -> Job[None]:
        """One at a time per partition. If the worker stops at any step, the next owner resumes at the manifest.

        1. The state is frozen after all rows taken so far.
        2. Every dead letter below its offset is acknowledged.
        3. State and snapshot are stored; the manifest is the commit point.                        durable
        4. The newest manifest is delivered: its snapshot published, its offset committed          visible
           (together in transactional delivery). A delivery that fails stays pending.
        5. Old checkpoints are pruned. A delete that is refused is logged.
        An unavailable store is asked again for `give_up_s` (3 to 5). Every other error ends the job (`_handle`):
        FencedError releases the partition, all others end the worker.
        """
        began_s = self.runtime.clock()
        frozen = yield from answer("freeze", freezing)
        binding = yield from self.questions.binding(owned.number, asking)
        yield from self.intake.acknowledged(owned.number, frozen.next_offset)
        yield from reached(self.runtime, "after-letters")
        snapshot = None
        if publish:
            snapshot = yield from answer("snapshot", self.runtime.compute(self._encode, owned, frozen, binding))
        manifest = yield from owned.chain.write(frozen, binding, snapshot)
        owned.taken.unstored.end()
        self.watch.durable(owned.number, manifest, self.runtime.clock() - began_s)
        owned.log.debug("checkpoint", next_offset=manifest.next_offset)
        yield from reached(self.runtime, "after-manifest")
        yield from self.delivery.deliver(owned, snapshot)
        yield from self._prune(owned)

    def _encode(self, owned: OwnedPartition, frozen: Frozen, binding: Binding) -> bytes:
        """On an io thread: the snapshot of exactly this state. Its sketch is offered to the status too."""
        assert self.delivery.encoder is not None
        sketch, made_at_s = sketch_of(frozen, self.plan.shape(owned.number)), self.runtime.wall_clock()
        self.watch.sampler.offer(owned.number, sketch, frozen.columns)
        return self.delivery.encoder.encode(
            sketch,
            frozen.columns,
            binding.snapshot_id(owned.chain.newest.next_state_id),
            partitions=self.questions.partitions,
            next_offset=frozen.next_offset,
            made_at_s=made_at_s,
        )

    def _prune(self, owned: OwnedPartition) -> Job[None]:
        if owned.phase is not Phase.READING:
            return
        self.jobs.continue_as(owned, "retention")
        try:
            yield from owned.chain.prune()
        except StoreRefusedError as error:  # no right to delete: old states pile up, which loses nothing
            self.watch.job_failed("retention", error)
            owned.log.warning("old checkpoints not deleted", reason=str(error))

    def _claim(self, owned: OwnedPartition) -> Job[None]:
        """1. The newest state is claimed and restored: ours from now on.                          durable
        2. Reading begins.
        3. What the last owner left pending is delivered.
        4. Old checkpoints are pruned.
        """
        questions, number, shape = self.questions, owned.number, self.plan.shape(owned.number)
        binding = yield from questions.binding(number)
        ask = partial(questions.answer, number, owned.assigned_s)
        state, unpublished = yield from owned.chain.claim(binding, shape, questions.start_of(number), ask)
        yield from reached(self.runtime, "after-claim")
        self._refuse_too_wide(owned, state.builder.d)
        if shape.topic_failure_probability is not None and state.shape.topic_failure_probability is None:
            owned.log.info(
                "restored state keeps its own failure probability",
                failure_probability=state.builder.failure_probability,
                reason="it was created when sketch.failure_probability meant one partition, not the topic",
            )
        self._begin_reading(owned, state)
        self.jobs.continue_as(owned, "publication")
        yield from self.delivery.deliver(owned, unpublished)
        yield from self._prune(owned)

    def _begin_reading(self, owned: OwnedPartition, state: PartitionState) -> None:
        owned.begin_reading(state, self.runtime.clock())
        self.sketch.begin(owned, state)
        self.source.begin(owned.number, Start(state.next_offset, state.leader_epoch))
        self.watch.restored(self.runtime.clock() - owned.assigned_s, state.rows)
        owned.log.info("checkpoint restored", next_offset=state.next_offset, rows=state.rows)

    # The results of jobs

    def _handle(self, finished: Running[OwnedPartition]) -> None:
        """Only errors are left to handle: a job does all its work itself."""
        owned, error = finished.key, finished.error
        if isinstance(error, FencedError):
            # Another worker owns it: write nothing, leave the group and join again. Partitions that wait or are being
            # claimed are released too: the group will assign them again, to this worker or to another.
            self.watch.fenced(finished.kind)
            owned.log.warning("partition fenced, another owner has taken over", reason=str(error))
            self._release(owned, *self.partitions.among(Phase.WAITING, Phase.CLAIMING))
            self.source.rejoin()
        elif error is not None:
            self.watch.job_failed(finished.kind, error)
            self._release(owned)
            raise error

    def _store_failed(self, running: Running[OwnedPartition], error: BaseException) -> None:
        """Called once for each failed attempt, so that an outage is visible while it lasts."""
        self.watch.job_failed(running.kind, error)
        running.key.log.warning("checkpoint store request failed, will retry", job=running.kind, reason=str(error))

    # Rebalances: called within `poll`. Nothing here asks a broker or a store; only a revoke waits, within its budget.

    def on_assign(self, numbers: Collection[int]) -> Mapping[int, Start | None]:
        """Claims begin at once; each partition is read as soon as its state is restored."""
        self.partitions.joined = True
        self.watch.rebalanced("assign", numbers)
        self._release(*self._ours(numbers))  # a loss without a callback (librdkafka's pull request 5604)
        for number in numbers:
            chain = CheckpointChain(self.plan, number, self.runtime)
            self.partitions.add(OwnedPartition(number, chain, self.log, self.runtime.clock()))
        self._admit()
        return dict.fromkeys(numbers)

    def on_revoke(self, numbers: Collection[int]) -> None:
        """A last checkpoint within the budget. Only leaving partitions advance: we are inside the client's callback."""
        clock = self.runtime.clock
        deadline = clock() + self.plan.checkpoint.revoke_budget_s
        leaving = [owned for owned in self._ours(numbers) if owned.phase is Phase.READING]
        self._release(*(owned for owned in self._ours(numbers) if owned.phase is not Phase.READING))
        failures: dict[OwnedPartition, Running[OwnedPartition]] = {}
        for owned in leaving:
            owned.move(Phase.RELEASING)
            running = self.jobs.of(owned)
            if running and (running.kind == "retention" or (running.kind == "publication" and owned.is_dirty)):
                self.jobs.cancel(owned)  # rows that are not durable come first
        while [o for o in leaving if o not in failures and self._is_needed(o)] and clock() < deadline:
            self._serve()
            failures |= {finished.key: finished for finished in self.jobs.advance(leaving) if finished.error}
            self.runtime.wait(REVOKE_S)
        for owned in leaving:
            self._log_release(owned, failures.get(owned))
        self.watch.rebalanced("revoke", numbers)
        self._release(*leaving)
        self._admit()

    def _is_needed(self, owned: OwnedPartition) -> bool:
        """Whether a leaving partition has more to do: its job is finished, then what is not durable is made so."""
        if self.jobs.of(owned) is None and owned.is_dirty:
            self._start_checkpoint(owned)
        return self.jobs.of(owned) is not None

    def _log_release(self, owned: OwnedPartition, failed: Running[OwnedPartition] | None) -> None:
        unfinished = failed or self.jobs.of(owned)
        if unfinished is None:
            return
        error = unfinished.error or ReleasedError("checkpoint.revoke_budget_s is over")
        if unfinished.kind != "checkpoint" or not owned.is_durable:  # else it is in the store, and did not fail
            self.watch.job_failed(unfinished.kind, error)
        if owned.is_durable:
            owned.log.info("partition released, all rows durable: next owner will deliver the rest", reason=str(error))
        else:
            owned.log.warning("partition released without final checkpoint, next owner will replay", reason=str(error))

    def on_lost(self, numbers: Collection[int]) -> None:
        """The partitions are another worker's already: write nothing."""
        self.log.warning("partitions lost", partitions=sorted(numbers))
        self.watch.rebalanced("lost", numbers)
        self._release(*self._ours(numbers))
        self._admit()

    def _ours(self, numbers: Collection[int]) -> list[OwnedPartition]:
        return [owned for owned in self.partitions if owned.number in numbers]

    def _admit(self) -> None:
        for owned in self.partitions.admit() if not self._stopping else ():
            self.jobs.start(owned, "claim", self._claim(owned))

    def _release(self, *leaving: OwnedPartition) -> None:
        """Releases partitions. A request that is under way may still take effect; nothing else is written for them."""
        for owned in leaving:
            self.jobs.cancel(owned)
            self.partitions.remove(owned)
            self.intake.forget(owned.number)

    # The beginning and the end

    def open(self) -> None:
        """Connects and joins the group, once. Waits for a broker that is unavailable."""
        if self.background:
            return
        self.background.start("broker", "connect", self._connect())
        while self.background and not self._stopping:
            self._advance_background()
            self.watch.alive()
            self.runtime.wait(IDLE_S if self.background else 0.0)
        if self._stopping:
            return
        self.background.start("commits", "confirm", self.delivery.confirm())
        self.background.start("status", "ends", self._report.ask_for_ends())
        if self._until_end is not None:
            self.background.start("end", "others", self._until_end.ask_for_others())
        self.source.subscribe(self)

    def _advance_background(self) -> None:
        for finished in self.background.advance():
            if finished.error is not None:
                raise finished.error

    def _connect(self) -> Job[None]:
        questions, source = self.questions, self.source
        yield from questions.connect()
        yield from questions.patiently("output topic", self.prepare)
        if self.intake.letters is not None:
            self.intake.letters.source_topic_id = yield from questions.patiently("topic id", source.topic_id)
        if self.plan.until_end:
            ask = partial(source.end_offsets, range(questions.partitions))
            self.progress.ends = ends = yield from questions.patiently("end offsets", ask)
            self._until_end = UntilEnd(ends, self.plan, self.runtime, source, self.partitions, self.log)

    def stop(self) -> None:
        """Ends the loop; last checkpoints follow. May be called from a signal handler."""
        self._stopping = True

    def _is_at_end(self) -> bool:
        if self._until_end is None or not self.sketch.idle:
            return False
        for owned in self.partitions.among(Phase.READING):
            if self.jobs.of(owned) is None:
                self._finish(owned, self._until_end)
        return self._until_end.is_reached()

    def _finish(self, owned: OwnedPartition, until_end: UntilEnd) -> None:
        """Starts the next step for a partition that was read to its end: a checkpoint, or the end of its reading."""
        position = until_end.position(owned)
        if position is None:
            return
        if owned.taken.next_offset < position:  # control records at the end hold nothing for us
            self.sketch.pass_over(owned, position)
            owned.taken.pass_over(position, self.runtime.clock())
        if until_end.needs_checkpoint(owned):
            self._start_checkpoint(owned, publish=until_end.publishes)
        elif until_end.is_delivered(owned):
            owned.move(Phase.FINISHED)
            self.sketch.drop(owned)
            self._pause_or_resume()
            self._admit()

    def _close(self) -> None:
        """Writes last checkpoints (on_revoke), leaves the group, ends.

        Beyond the budget only running computations are awaited: the process must not exit while a thread is inside
        BLAS. Store and broker requests are abandoned.
        """
        self._stopping = True
        try:
            self.source.close(self.plan.checkpoint.revoke_budget_s + LEAVE_S)
        finally:
            self._release(*self.partitions)
            self.delivery.close()
            self.intake.decoder.close()
            if self.sink is not None:
                self.sink.close(FLUSH_S)  # what no checkpoint waited for is read again
            self.runtime.close()
