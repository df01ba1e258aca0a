"""The scorer: records in, the scores of their rows out, each row scored once.

    poll ──► decode ──► scoring thread ──► round: scores, states and offsets delivered
               └─► dead letters

The loop's thread owns the consumer, the producer and the table of partitions, and decides everything. It drives claims
and rounds as jobs (loop/jobs.py). Offsets are committed only together with, or after, the scores of all records
before them: after any kill the next owner reads from there, and no row stays without a score.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass

from sfd_stream.config.model import Settings
from sfd_stream.errors import RefusedStateError, SfdError
from sfd_stream.kafka.commits import Committed
from sfd_stream.kafka.producer import Sink
from sfd_stream.kafka.records import PartitionBatch, Start
from sfd_stream.kafka.source import Source
from sfd_stream.loop.intake import Intake
from sfd_stream.loop.jobs import Job, Jobs, Wait, answer, reached
from sfd_stream.loop.questions import Questions
from sfd_stream.loop.runtime import Runtime
from sfd_stream.observe.logs import Log
from sfd_stream.score.background import Background
from sfd_stream.score.bases import FIRST_SNAPSHOT, Bases, ScoringBasis
from sfd_stream.score.delivery import WITH_STATE, AtLeastOnce, Share
from sfd_stream.score.partitions import PendingBatch, ScoredPartition
from sfd_stream.score.scoring import BatchScorer, ScoredBatch
from sfd_stream.score.watch import PartitionDrift, ScoreStatus, ScoreWatch
from sfd_stream.sketch.scoring.block_angles import angle_of
from sfd_stream.wire.columns import Columns
from sfd_stream.wire.rows.decode import DecodedBatch
from sfd_stream.wire.score_states import ScoreState

IDLE_S, BUSY_S, REVOKE_S = 0.1, 0.01, 0.005
"""How long a turn waits when there is nothing to do, while a job runs, and within a revoke."""

BATCH_MAX = 1_000
"""Rows of one batch are not compared with each other, so a p-value is exact to one batch: few records at once."""

ROUND_EVERY_S = 0.1
"""A round begins at most this often: each one writes the states of its partitions."""

ROWS_MAX, BATCHES_MAX = 20_000, 16
"""Reading pauses while this many rows or batches are being scored or wait for their round. It bounds memory and the
time of a transaction: a score may be some hundred times as large as its row."""

STATE_PAUSES_S = (0.2, 0.5, 1.0, 2.0, 4.0, 8.0)
"""Pauses between readings of the state topic while the state of a committed transaction is not visible there yet."""

STATUS_EVERY_S = 1.0
ENDS_EVERY_S, ENDS_TIMEOUT_S = 5.0, 3.0
"""How often the ends of partitions are asked for. Fetches bring them too, but a paused partition is not fetched."""

LEAVE_S, FLUSH_S = 5.0, 1.0
ROUND = "round"

STUCK: Mapping[str, str] = {
    "claim": "claim of partitions does not progress",
    "publication": "delivery of scores does not progress",
}


@dataclass(eq=False)
class ScoreConsumer:
    """`run` lasts until `stop`, until the end is reached, or until an error. Also the source's RebalanceListener."""

    settings: Settings
    runtime: Runtime
    source: Source
    sink: Sink | None
    intake: Intake
    questions: Questions
    bases: Bases
    delivery: AtLeastOnce
    read_states: Callable[[float], Mapping[int, ScoreState]]
    """The newest state of each partition on the state topic."""
    columns: Columns
    watch: ScoreWatch
    log: Log
    prepare: Callable[[float], None] = lambda _: None
    """Creates the topics."""
    until_end: bool = False

    def __post_init__(self) -> None:
        self.partitions: dict[int, ScoredPartition] = {}
        self.jobs: Jobs[str] = Jobs(self.runtime)
        self._scorer = BatchScorer(self.settings.input.topic, self.settings.score, self.settings.drift.block_rows)
        self._ends: Mapping[int, int] = {}
        self._asking_ends = Background[Mapping[int, int]](self.runtime, ENDS_EVERY_S)
        self._log_ends: dict[int, int] = {}
        self._committed = Background[Mapping[int, Committed | None]](self.runtime, STATUS_EVERY_S)
        self._claims = 0
        self._in_round: list[ScoredPartition] = []
        self._next_round_s = self._next_status_s = 0.0
        self._at_end = False
        self._stopping = False

    # The loop

    def run(self) -> None:
        try:
            self._open()
            while not (self._stopping or self._at_end):
                self.turn()
        except SfdError:
            raise
        except BaseException:
            self._release(self.partitions)
            raise
        finally:
            self._close()

    def stop(self) -> None:
        """Finishes the round under way, then ends. May be called from a signal handler."""
        self._stopping = True

    def turn(self) -> None:
        """One pass of the loop. It blocks only in `poll` and `wait`, at most for IDLE_S."""
        batches = self.source.poll(min(self.settings.worker.batch_records, BATCH_MAX), 0.0 if self._is_busy else IDLE_S)
        for batch in batches:
            self._take(batch)
        if self._is_busy and not batches:
            self.runtime.wait(BUSY_S)
        self._serve()
        self.bases.serve()
        self._advance()
        self._start_round()
        self._pause_or_resume()
        self.source.check_available(self.settings.checkpoint.give_up_s)
        self._report()

    @property
    def _is_busy(self) -> bool:
        return bool(self.jobs) or any(owned.scored for owned in self.partitions.values())

    def _take(self, batch: PartitionBatch) -> None:
        """Decodes a batch, sends bad messages to the dead-letter topic, hands the rows over to the scoring thread."""
        owned = self.partitions.get(batch.partition)
        if owned is None or not owned.is_read:
            return  # released after this batch was polled
        if missing := self.intake.missing_schemas(batch):
            self.source.put_back(batch)
            owned.schemas_awaited = missing
            return
        decoded, _ = self.intake.take(batch, owned.columns)
        owned.columns = decoded.columns
        basis = self.bases.for_rows_from(batch.partition, batch.first_offset)
        scoring = self.runtime.sketch.submit(self._score, owned, batch, decoded, basis)
        owned.scored.append(PendingBatch(decoded.block.rows, scoring))

    def _score(
        self, owned: ScoredPartition, batch: PartitionBatch, decoded: DecodedBatch, basis: ScoringBasis
    ) -> ScoredBatch:
        """On the scoring thread, one batch after the other."""
        assert owned.state is not None
        now_s, reference = self.runtime.wall_clock(), self.bases.reference
        scored = self._scorer.score(batch, decoded, basis, owned.state, now_s, reference)
        owned.state = scored.state
        return scored

    def _serve(self) -> None:
        """Processes what jobs wait for: delivery reports, commit results."""
        self.watch.alive()
        if self.sink is not None:
            self.sink.poll(0.0)
        self.delivery.serve()

    def _advance(self, only: Collection[str] | None = None) -> None:
        """Only errors are left to handle: jobs do all their work themselves."""
        for finished in self.jobs.advance(only):
            if finished.key == ROUND:
                self._in_round = []
            if finished.error is not None:
                raise finished.error

    def _pause_or_resume(self) -> None:
        """Decides each turn which partitions are paused: by the progress of scoring and schema registry."""
        for owned in self.partitions.values():
            if owned.schemas_awaited and not self.intake.decoder.is_missing(owned.schemas_awaited):
                owned.schemas_awaited = frozenset()
        waiting = [batch for owned in self.partitions.values() for batch in owned.scored]
        behind = len(waiting) >= BATCHES_MAX or sum(batch.rows for batch in waiting) >= ROWS_MAX
        self.source.pause_only({owned.number for owned in self.partitions.values() if behind or owned.schemas_awaited})

    # The order

    def _start_round(self) -> None:
        now_s = self.runtime.clock()
        ready = [owned for owned in self.partitions.values() if owned.has_scores]
        if not ready or self._in_round or now_s < self._next_round_s:
            return
        self._next_round_s, self._in_round = now_s + ROUND_EVERY_S, ready
        self.jobs.start(ROUND, "publication", self._round(ready))

    def _round(self, ready: Sequence[ScoredPartition]) -> Job[None]:
        """One at a time. If the scorer stops at any step, the next owner reads from the committed offsets.

        1. The batches scored so far are taken, each row scored by a basis that has not counted it, where there is one.
           Later batches are scored meanwhile, and go into the next round.
        2. Every dead letter before the round's offsets is acknowledged.
        3. Scores, states and offsets are delivered: at once, or one after the other.
        """
        batches: dict[ScoredPartition, list[ScoredBatch]] = {}
        for owned in ready:
            batches[owned] = []
            while owned.has_scores:
                batches[owned].append((yield from answer("scores", owned.scored.popleft().scored)))
        shares = [
            Share(owned, scored[-1].next_offset, [m for each in scored for m in each.messages], scored[-1].state)
            for owned, scored in batches.items()
            if scored
        ]
        yield from reached(self.runtime, "after-scores")
        for share in shares:
            yield from self.intake.acknowledged(share.owned.number, share.next_offset)
        yield from reached(self.runtime, "after-letters")
        yield from self.delivery.deliver(shares)
        for share in shares:
            if not share.owned.is_released:
                share.owned.delivered_to, share.owned.delivered = share.next_offset, share.state
                for each in batches[share.owned]:
                    self.watch.delivered(share.owned.number, each)

    def _claim(self, given: Sequence[ScoredPartition]) -> Job[None]:
        """1. The committed offsets are asked for, once no transaction on them is open. A partition without one gets
           it now, so that all rows from here on are scored.
        2. The states that belong to them are read.
        3. A basis is waited for.
        4. Reading begins.
        """
        starts, with_state = yield from self._starts(given)
        states = yield from self._states(with_state)
        yield from reached(self.runtime, "after-claim")
        yield from self.bases.available()
        for owned in given:
            if not owned.is_released:
                start = starts[owned.number]
                owned.begin(start, states.get(owned.number) or ScoreState(start, ""))
                self.source.begin(owned.number, Start(start))
                owned.log.info("scoring started", next_offset=start)

    def _starts(self, given: Sequence[ScoredPartition]) -> Job[tuple[dict[int, int], dict[int, int]]]:
        """Where each partition begins, and the committed offsets that have a state on the state topic."""
        numbers, ask = [owned.number for owned in given], self.questions.patiently
        committed = yield from ask("committed offsets", lambda limit_s: self.source.committed(numbers, limit_s))
        first = yield from ask("first offsets", lambda limit_s: self.source.first_offsets(numbers, limit_s))
        ends = yield from ask("end offsets", lambda limit_s: self.source.end_offsets(numbers, limit_s))
        starts: dict[int, int] = {}
        fresh: dict[ScoredPartition, int] = {}
        for owned in given:
            number = owned.number
            found = committed[number]
            if found is None:
                beginning = first if self.questions.start_of(number) == "earliest" else ends
                starts[number] = fresh[owned] = beginning[number]
            else:
                starts[number] = self._start_in_log(owned, found.offset, first[number], ends[number])
        yield from self.delivery.commit(fresh)
        return starts, {p: found.offset for p, found in committed.items() if found and found.metadata == WITH_STATE}

    def _start_in_log(self, owned: ScoredPartition, committed: int, first: int, end: int) -> int:
        place = f"{self.source.topic}/{owned.number}"
        if committed > end:
            raise RefusedStateError(
                f"the committed offset {committed} of {place} is beyond its end {end}: the topic was deleted and"
                f" created again; reset the offsets of group {self.delivery.group}, for example with"
                f" kafka-consumer-groups.sh --reset-offsets --to-earliest --group {self.delivery.group}"
                f" --topic {self.source.topic} --execute"
            )
        if committed < first:
            owned.log.warning("records were removed before they were scored", committed=committed, first=first)
        return max(committed, first)

    def _states(self, offsets: Mapping[int, int]) -> Job[Mapping[int, ScoreState]]:
        """The states of these committed offsets. A state may become visible a moment after its offset."""
        for pause_s in (*STATE_PAUSES_S, None):
            found = yield from self.questions.patiently("score states", self.read_states)
            behind = [p for p, offset in offsets.items() if p not in found or found[p].next_offset < offset]
            if not behind:
                break
            if pause_s is not None:
                yield Wait("score states", for_s=pause_s)
        if behind:
            self.log.warning("score states are missing, p-values begin again", partitions=sorted(behind))
        return {p: found[p] for p in offsets if p not in behind}

    # Rebalances: called within `poll`. Only a revoke waits, within its budget.

    def on_assign(self, numbers: Collection[int]) -> Mapping[int, Start | None]:
        """Claims begin at once. A partition is read as soon as its start is known."""
        self._release(numbers)  # a loss without a callback (librdkafka's pull request 5604)
        given = [ScoredPartition(number, self.columns, self.log.bind(partition=number)) for number in numbers]
        self.partitions |= {owned.number: owned for owned in given}
        if given:
            self._claims += 1
            self.jobs.start(f"claim {self._claims}", "claim", self._claim(given))
        return dict.fromkeys(numbers)

    def on_revoke(self, numbers: Collection[int]) -> None:
        """Finishes the round under way within the budget. The next owner reads all later records again."""
        deadline_s = self.runtime.clock() + self.settings.checkpoint.revoke_budget_s
        while any(owned.number in numbers for owned in self._in_round) and self.runtime.clock() < deadline_s:
            self._serve()
            self._advance([ROUND])
            self.runtime.wait(REVOKE_S)
        self._release(numbers)

    def on_lost(self, numbers: Collection[int]) -> None:
        """The partitions are another scorer's already: write nothing more for them."""
        self.log.warning("partitions lost", partitions=sorted(numbers))
        self._release(numbers)

    def _release(self, numbers: Collection[int]) -> None:
        for number in list(numbers):
            owned = self.partitions.pop(number, None)
            if owned is not None:
                owned.release()
                self.intake.forget(number)

    # The beginning and the end

    def _open(self) -> None:
        """Connects and joins the group. Waits for a broker that is unavailable."""
        self.jobs.start("connect", "claim", self._connect())
        while self.jobs and not self._stopping:
            self._advance()
            self.watch.alive()
            self.runtime.wait(IDLE_S if self.jobs else 0.0)
        if not self._stopping:
            self.source.subscribe(self)

    def _connect(self) -> Job[None]:
        ask = self.questions.patiently
        yield from self.questions.connect()
        yield from ask("topics", self.prepare)
        if self.intake.letters is not None:
            self.intake.letters.source_topic_id = yield from ask("topic id", self.source.topic_id)
        if self.until_end:
            everything = range(self.questions.partitions)
            self._ends = yield from ask("ends", lambda limit_s: self.source.end_offsets(everything, limit_s))

    def _close(self) -> None:
        """Finishes the round under way (on_revoke), then leaves the group."""
        try:
            self.source.close(self.settings.checkpoint.revoke_budget_s + LEAVE_S)
        finally:
            self._release(self.partitions)
            self.delivery.close()
            self.intake.decoder.close()
            if self.sink is not None:
                self.sink.close(FLUSH_S)
            self.runtime.close()

    # Once a second

    def _report(self) -> None:
        now_s = self.runtime.clock()
        if now_s >= self._next_status_s:
            self._next_status_s = now_s + STATUS_EVERY_S
            self._update_status()
            self._log_stuck()
        if self.until_end:
            self._check_end()

    def _update_status(self) -> None:
        basis, ours = self.bases.newest, self.partitions.values()
        read = [owned for owned in ours if owned.is_read]
        self._ask_ends(read)
        if self.bases.missing is not None:
            doing = f"waiting for {self.bases.missing}"
        elif not ours:
            doing = "no partitions assigned"
        else:
            doing = f"scoring {len(read)} of {len(ours)} partitions"
        self.watch.status = ScoreStatus(
            doing=doing,
            ready=self.bases.missing is None and len(read) == len(ours),
            lag={owned.number: self._lag_of(owned) for owned in read},
            basis_made_at_s=None if basis is None else basis.made_at_s,
            basis_rows=None if basis is None else basis.scorer.rows,
            drift={owned.number: found for owned in read if (found := self._drift_of(owned))},
        )

    def _log_stuck(self) -> None:
        """Why there is no first snapshot is logged by `Bases`."""
        for running, for_s in self.jobs.stuck():
            if running.wait.what != FIRST_SNAPSHOT:
                claimed = [owned for owned in self.partitions.values() if not owned.is_read]
                self.log.warning(
                    STUCK[running.kind],
                    partitions=sorted(owned.number for owned in (self._in_round if running.key == ROUND else claimed)),
                    step=running.wait.what,
                    for_s=for_s,
                    reason=running.wait.failure or "no answer yet",
                )

    def _ask_ends(self, read: Sequence[ScoredPartition]) -> None:
        answered = self._asking_ends.take()
        if answered is not None and answered.exception() is None:
            self._log_ends |= answered.result()
        if read and self._asking_ends.is_due:
            self._asking_ends.ask(self.source.end_offsets, [owned.number for owned in read], ENDS_TIMEOUT_S)

    def _lag_of(self, owned: ScoredPartition) -> int:
        """Records whose scores are not delivered. If nothing waits, all records before the client's position are
        delivered: the position passes control records, which are never handed out.
        """
        end = max(self.source.known_end(owned.number) or 0, self._log_ends.get(owned.number, 0))
        idle = not owned.scored and owned not in self._in_round
        passed = self.source.position(owned.number) if idle else 0
        return max(end - max(owned.delivered_to, passed), 0)

    def _drift_of(self, owned: ScoredPartition) -> PartitionDrift | None:
        """None without a reference. Both tests of all partitions share the probability of a false alarm."""
        if self.bases.reference is None or owned.delivered is None:
            return None
        alpha = self.settings.drift.alpha / (2 * max(self.questions.partitions, 1))
        drift = PartitionDrift.of(owned.delivered, self.settings.drift.block_rows, alpha)
        log, block_rows = owned.log.bind(reference=self.bases.reference.id), drift.shares.block_rows
        change, turn = drift.change, drift.turn
        if change is not None and not owned.has_changed:
            log.warning(
                "rows have changed since the reference was pinned",
                rows=change.window * block_rows,
                share_change=round(change.change, 4),
                p_value=change.p_value,
            )
        if turn is not None and not owned.has_turned:
            log.warning(
                "directions have turned since the reference was pinned",
                rows=turn.window * block_rows,
                degrees_before=round(angle_of(drift.roots.baseline_mean), 2),
                degrees=round(angle_of(drift.roots.baseline_mean + turn.change), 2),
                p_value=turn.p_value,
            )
        owned.has_changed, owned.has_turned = change is not None, turn is not None
        return drift

    def _check_end(self) -> None:
        """At the end when the scores of all records up to the ends at the start are delivered, by any member."""
        left = {p for p, end in self._ends.items() if not self._has_reached(p, end)}
        if not left:
            self._at_end = True
            return
        others = left - self.partitions.keys()
        answered = self._committed.take()
        if answered is not None and answered.exception() is None:
            done = {p for p, found in answered.result().items() if found is not None and found.offset >= self._ends[p]}
            self._ends = {p: end for p, end in self._ends.items() if p not in done}
        if others and self._committed.is_due:
            self._committed.ask(self.source.committed, tuple(others), STATUS_EVERY_S)

    def _has_reached(self, partition: int, end: int) -> bool:
        """The client's position passes control records, which are never handed out."""
        owned = self.partitions.get(partition)
        if owned is None or not owned.is_read or owned.scored or owned in self._in_round:
            return False
        return owned.delivered_to >= end or self.source.position(partition) >= end
