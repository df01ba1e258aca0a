"""The worker: records in, a checkpointed sketch out, each row exactly once. The one place that knows the order.

    poll ──► decode ──► sketch (its own thread) ──► checkpoint (threads beside the loop) ──► commit
     │         └─► dead letters                          ▲
     └─ rebalances: assign = claim and restore, revoke = last checkpoint, lost = drop

One thread, the loop's, owns the consumer, the producer and the table of tenures. The sketching thread owns the states.
Checkpoints and claims run on a few more, one at a time for a partition; what they need of the loop they ask its desk.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Collection, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from concurrent.futures import TimeoutError as NotYetError
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any, Literal, Protocol

from sfd_stream.errors import BrokerRefusedError, FencedError, SfdError, TooManyBadMessagesError
from sfd_stream.kafka.dead_letters import BadMessageGauge, DeadLetters
from sfd_stream.kafka.records import PartitionBatch, Start
from sfd_stream.kafka.sink import Sink
from sfd_stream.kafka.source import Source
from sfd_stream.service.desk import Desk, DeskClosedError
from sfd_stream.service.keeper import AbandonedError, Keeper, Surroundings
from sfd_stream.state.manifest import Binding, Manifest
from sfd_stream.state.partition import Frozen, PartitionState, Shape
from sfd_stream.state.policy import CheckpointPolicy
from sfd_stream.state.steps import AskCommitted, AskLog, AskOutputEpoch, LogFacts, Question
from sfd_stream.wire.columns import Columns
from sfd_stream.wire.rows import RowLimits, decode

AHEAD_MAX = 4
"""Batches that may wait for the sketching thread before the loop waits for it."""

PATIENCE_S = 0.5
"""So long the loop waits for the sketching thread before it pauses reading and goes on polling."""

IO_THREADS = 8
QUESTION_TIMEOUT_S = 10.0


class Log(Protocol):
    """The part of a structlog logger that is used."""

    def bind(self, **context: Any) -> Any: ...
    def info(self, event: str, **context: Any) -> Any: ...
    def warning(self, event: str, **context: Any) -> Any: ...
    def debug(self, event: str, **context: Any) -> Any: ...


@dataclass(frozen=True)
class Plan:
    """What the settings ask of a worker."""

    group: str
    topic: str
    shape: Callable[[int], Shape]
    """A partition's number -> its shape."""
    start: Literal["earliest", "latest"]
    limits: RowLimits
    checkpoint: CheckpointPolicy
    revoke_budget_s: float
    give_up_s: float
    batch_records: int
    memory_max_bytes: int
    until_end: bool = False


@dataclass(eq=False)
class Tenure:
    """A partition while it is ours: from assignment to revoke, lost or fence."""

    partition: int
    keeper: Keeper
    job: Future[Any] | None = None
    """Its claim, checkpoint or tidying: one at a time."""
    state: PartitionState | None = None
    columns: Columns | None = None
    """As of the last record decoded, which the state may not have reached yet."""
    read_to: int = 0
    rows_since: int = 0
    dirty_since: float | None = None
    """When the oldest record came that no checkpoint holds."""
    held_back: bool = False

    @property
    def dirty(self) -> bool:
        return self.dirty_since is not None


@dataclass
class Progress:
    """What this run has done so far, for people."""

    records: int = 0
    rows: int = 0
    bad: int = 0
    checkpoints: int = 0
    fences: int = 0
    ends: dict[int, int] = field(default_factory=dict)


class Worker:
    """`run` until told to `stop`, until the end, or until something refuses."""

    def __init__(
        self,
        plan: Plan,
        around: Surroundings,
        sink: Sink | None,
        letters: DeadLetters | None,
        gauge: BadMessageGauge,
        log: Log,
    ) -> None:
        self.plan = plan
        self.around = around
        self.sink = sink
        self.letters = letters
        self.gauge = gauge
        self.log = log
        self.progress = Progress()
        self.on_turn: Callable[[], None] = lambda: None
        self.tenures: dict[int, Tenure] = {}
        self.source: Source  # set by `run`: the source needs its listener first
        self._desk = Desk()
        self._sketching = ThreadPoolExecutor(1, "sketch")
        self._beside = ThreadPoolExecutor(IO_THREADS, "checkpoint")
        self._applying: deque[Future[None]] = deque()
        self._stalled = False
        self._stopping = False
        self._joined = False
        self._next_look_s = 0.0
        self._cluster_id: str | None = None

    # The loop

    def run(self, source: Source) -> None:
        self.source = source
        try:
            self._cluster_id = source.cluster_id(self.plan.give_up_s)
            if self.plan.until_end:
                everything = range(source.partition_count(QUESTION_TIMEOUT_S))
                self.progress.ends = source.end_offsets(everything, QUESTION_TIMEOUT_S)
            while not (self._stopping or (self.plan.until_end and self._at_the_end())):
                self.turn()
        except SfdError:
            raise  # what is whole is still worth a last checkpoint
        except BaseException:
            self._drop(list(self.tenures))
            raise
        finally:
            self._close()

    def stop(self) -> None:
        """A last checkpoint, and out. May be called from a signal handler."""
        self._stopping = True

    def turn(self) -> None:
        waiting = any(tenure.state is None for tenure in self.tenures.values())
        for batch in self.source.poll(self.plan.batch_records, 0.01 if waiting else 0.1):
            self._take(batch)
        self._tend()
        self._begin_due()
        self._keep_pace()
        away_s = self.source.away_s
        if away_s is not None and away_s > self.plan.give_up_s:
            raise BrokerRefusedError(f"no broker has answered for {away_s:.0f} s ({self.source.away_words})")
        self.on_turn()

    def _tend(self) -> None:
        """Everything that others wait for."""
        if self.sink is not None:
            self.sink.poll(0.0)
        self._desk.serve()
        self._settle()

    def _take(self, batch: PartitionBatch) -> None:
        """Decode a batch, put bad messages aside, hand the rest to the sketching thread."""
        tenure = self.tenures.get(batch.partition)
        if tenure is None or tenure.state is None or tenure.columns is None:
            return  # given up while this batch was on its way
        values = batch.values
        places = [i for i, value in enumerate(values) if value is not None]
        decoded = decode([value for value in values if value is not None], tenure.columns, self.plan.limits)
        self._put_aside(batch, [(places[i], error.reason, str(error)) for i, error in decoded.bad], len(places))
        leader_epoch, tombstones = batch.leader_epoch, len(values) - len(places)
        tenure.columns = decoded.columns
        tenure.read_to = batch.next_offset
        tenure.rows_since += decoded.block.rows
        tenure.dirty_since = self.around.clock() if tenure.dirty_since is None else tenure.dirty_since
        self.progress.records += len(batch)
        self.progress.rows += decoded.block.rows
        apply = tenure.state.apply
        self._applying.append(self._sketching.submit(apply, decoded, batch.next_offset, leader_epoch, tombstones))

    def _put_aside(self, batch: PartitionBatch, bad: list[tuple[int, str, str]], messages: int) -> None:
        """Raises, before anything of the batch is counted, when bad messages are too many or have nowhere to go."""
        seen = 0
        for place, reason, words in bad:
            record = batch.record(place)
            where = f"{self.plan.topic}/{record.partition} offset {record.offset}"
            if self.letters is None:
                raise TooManyBadMessagesError(
                    f"{where} is not rows ({words}) and dead_letters.topic is not set: set it"
                )
            self.gauge.good(place - seen)
            seen = place + 1
            self.letters.send(record, reason, datetime.fromtimestamp(self.around.wall_clock(), UTC))
            self.gauge.bad(reason, where)
            self.progress.bad += 1
        self.gauge.good(messages - seen)

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
            self.source.resume([p for p, t in self.tenures.items() if not t.held_back])

    # The order: durable before visible, visible before forgotten

    def _begin_due(self) -> None:
        now = self.around.clock()
        for tenure in self.tenures.values():
            if tenure.state is None:
                continue
            elapsed_s = now - tenure.dirty_since if tenure.dirty_since is not None else 0.0
            due = self.plan.checkpoint.is_due(rows=tenure.rows_since, elapsed_s=elapsed_s, changed=tenure.dirty)
            if due and tenure.job is None:
                self._begin_checkpoint(tenure)
            self._hold_back(tenure, too_far=due and tenure.rows_since > 4 * self.plan.checkpoint.every_rows)

    def _begin_checkpoint(self, tenure: Tenure) -> None:
        assert tenure.state is not None
        frozen = self._sketching.submit(tenure.state.freeze)
        tenure.rows_since, tenure.dirty_since = 0, None
        tenure.job = self._beside.submit(self._checkpoint, tenure, frozen)

    def _checkpoint(self, tenure: Tenure, freezing: Future[Frozen]) -> Manifest:
        """Beside the loop, one at a time for a partition."""
        reach, partition, keeper = self.around.reach, tenure.partition, tenure.keeper
        frozen = freezing.result()
        self._await_letters(tenure, frozen.next_offset)
        manifest = keeper.make_durable(frozen, self._binding(partition))  # durable before visible,
        reach("after-manifest")
        # visible before forgotten: the snapshot of exactly this state is published here
        self._ask(tenure, lambda: self.source.commit({partition: manifest.next_offset}))
        reach("after-commit")
        return manifest

    def _await_letters(self, tenure: Tenure, next_offset: int) -> None:
        """No offset is passed before every bad message below it is safely in the dead-letter topic."""
        letters = self.letters
        if letters is None:
            return
        while not self._ask(tenure, lambda: letters.acknowledged(tenure.partition, next_offset)):
            if tenure.keeper.abandoned.wait(0.01):
                raise AbandonedError

    def _ask(self, tenure: Tenure, question: Callable[[], Any]) -> Any:
        return self._desk.ask(question, tenure.keeper.abandoned)

    def _binding(self, partition: int) -> Binding:
        try:
            topic_id = self.source.topic_id(QUESTION_TIMEOUT_S)
        except TimeoutError:
            topic_id = None  # not known now: it is compared when it is
        return Binding(self._cluster_id, topic_id, self.plan.group, self.plan.topic, partition)

    def _hold_back(self, tenure: Tenure, *, too_far: bool) -> None:
        """A store that is away must not leave an ever longer way to replay: stop reading until it is back."""
        if too_far == tenure.held_back:
            return
        tenure.held_back = too_far
        if too_far:
            self.log.warning("paused: the checkpoint store does not keep up", partition=tenure.partition)
            self.source.pause([tenure.partition])
        elif not self._stalled:
            self.source.resume([tenure.partition])

    # What became of jobs

    def _settle(self) -> None:
        for tenure in list(self.tenures.values()):
            job = tenure.job
            if job is None or not job.done():
                continue
            tenure.job = None
            try:
                outcome = job.result()
            except FencedError as error:
                self._fenced(tenure, error)
            except (AbandonedError, DeskClosedError):
                continue
            except BaseException:
                self._drop([tenure.partition])
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
            tenure.job = self._beside.submit(tenure.keeper.tidy)

    def _begin_reading(self, tenure: Tenure, state: PartitionState) -> None:
        tenure.state, tenure.columns, tenure.read_to = state, state.columns, state.next_offset
        self.source.begin(tenure.partition, Start(state.next_offset, state.leader_epoch))
        self.source.commit({tenure.partition: state.next_offset})  # so that lag is known from the start
        manifest = tenure.keeper.manifest
        assert manifest is not None
        self.log.info(
            "restored", partition=tenure.partition, epoch=manifest.epoch, number=manifest.number,
            next_offset=state.next_offset, rows=state.rows,
        )  # fmt: skip

    def _fenced(self, tenure: Tenure, error: FencedError) -> None:
        """Somebody else owns it: drop it, write nothing, leave the group and join again."""
        self.progress.fences += 1
        self.log.warning("fenced", partition=tenure.partition, reason=str(error))
        self._drop([tenure.partition])
        self.source.rejoin()

    # Rebalances, called from within `poll` and `close`

    def on_assign(self, partitions: Collection[int]) -> Mapping[int, Start | None]:
        """Claims begin at once, beside the loop; each partition is read as soon as its state is restored."""
        self._joined = True
        for partition in partitions:
            self.tenures[partition] = Tenure(partition, Keeper(self._binding(partition), self.around))
        self._claim_what_fits()
        return dict.fromkeys(partitions)

    def _claim_what_fits(self) -> None:
        room = self.plan.memory_max_bytes
        for position, tenure in enumerate(self.tenures.values()):
            shape = self.plan.shape(tenure.partition)
            room -= shape.memory_bytes()
            if tenure.state is not None or tenure.job is not None:
                continue
            if room < 0 and position > 0:
                self.log.warning(
                    "no room for the partition: it waits, unread; raise worker.memory_max_bytes or add workers",
                    partition=tenure.partition,
                )
                continue
            tenure.job = self._beside.submit(self._claim, tenure, shape)

    def _claim(self, tenure: Tenure, shape: Shape) -> PartitionState:
        def answer(question: Question) -> Any:
            return self._ask(tenure, lambda: self._answer(tenure.partition, question))

        state = tenure.keeper.claim(shape, self.plan.start, answer)
        self.around.reach("after-claim")
        return state

    def _answer(self, partition: int, question: Question) -> Any:
        match question:
            case AskLog():
                return LogFacts(*self.source.watermarks(partition, QUESTION_TIMEOUT_S))
            case AskCommitted():
                found = self.source.committed([partition], QUESTION_TIMEOUT_S)[partition]
                return None if found is None else found.offset
            case AskOutputEpoch():
                return None  # no snapshots are published yet

    def on_revoke(self, partitions: Collection[int]) -> None:
        """A last checkpoint within the budget, else let go: the next owner replays."""
        deadline = self.around.clock() + self.plan.revoke_budget_s
        leaving = [self.tenures[p] for p in partitions if p in self.tenures]
        for tenure in leaving:
            if tenure.state is None:
                tenure.keeper.abandoned.set()
        while any(map(self._has_more_to_do, leaving)) and self.around.clock() < deadline:
            self._desk.serve()
            if self.sink is not None:
                self.sink.poll(0.0)
            self.around.pause(0.005)
        self._drop(partitions)
        self._claim_what_fits()

    def _has_more_to_do(self, tenure: Tenure) -> bool:
        """Moves a leaving partition on: what runs is awaited, then what is not durable yet is made so."""
        if tenure.job is not None and not tenure.job.done():
            return True
        failed = tenure.job is not None and tenure.job.exception() is not None
        if tenure.state is None or failed or not tenure.dirty:
            return False
        self._begin_checkpoint(tenure)
        return True

    def on_lost(self, partitions: Collection[int]) -> None:
        """Already another's: write nothing."""
        self.log.warning("lost", partitions=sorted(partitions))
        self._drop(partitions)

    def _drop(self, partitions: Collection[int]) -> None:
        for partition in partitions:
            tenure = self.tenures.pop(partition, None)
            if tenure is not None:
                tenure.keeper.abandoned.set()
            if self.letters is not None:
                self.letters.forget(partition)

    # The end

    def _at_the_end(self) -> bool:
        """All records up to the ends seen at the start are in a committed checkpoint, whoever read them."""
        now = self.around.clock()
        if now < self._next_look_s or self._applying or not self._joined:
            return False
        self._next_look_s = now + 0.2
        ends = self.progress.ends
        for partition, tenure in self.tenures.items():
            if (
                tenure.state is None
                or tenure.job is not None
                or not self._finish_partition(tenure, ends.get(partition, 0))
            ):
                return False
        others = ends.keys() - self.tenures.keys()
        found = self.source.committed(others, QUESTION_TIMEOUT_S) if others else {}
        return all(c is not None and c.offset >= ends[p] for p, c in found.items())

    def _finish_partition(self, tenure: Tenure, end: int) -> bool:
        """Whether it is read to its end and durable; begins its last checkpoint if only that is missing."""
        assert tenure.state is not None
        position = self.source.position(tenure.partition)
        if position < end:
            return False
        if tenure.state.next_offset < position:  # control records at the end hold nothing for us
            self._sketching.submit(tenure.state.advance, position).result()
            tenure.dirty_since = self.around.clock() if tenure.dirty_since is None else tenure.dirty_since
        if tenure.dirty:
            self._begin_checkpoint(tenure)
            return False
        return self.source.last_committed.get(tenure.partition, -1) >= end

    def _close(self) -> None:
        self.source.close(self.plan.revoke_budget_s + QUESTION_TIMEOUT_S)
        self._drop(list(self.tenures))
        self._desk.close()
        if self.sink is not None:
            self.sink.close(self.plan.revoke_budget_s)
        self._sketching.shutdown(wait=True, cancel_futures=True)
        self._beside.shutdown(wait=False, cancel_futures=True)
