"""One seed from beginning to end: topics, workers, faults, calm, drain, judgement."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path

from tests.simulation import faults, workers
from tests.simulation.broker import Log
from tests.simulation.content import Content
from tests.simulation.duties import Duties
from tests.simulation.judge import DEAD, GROUP, INPUT, OUTPUT, Judge
from tests.simulation.loader import Edit
from tests.simulation.merging import Merging
from tests.simulation.reading import Reader
from tests.simulation.scenario import Fault, Scenario
from tests.simulation.scheduler import Scheduler, ViolationError, running
from tests.simulation.scoring import SCORE_GROUP, Scoring
from tests.simulation.world import World

ROOT = Path(__file__).resolve().parents[2]
CALM_S = 150.0
"""After the last fault everything must be done within this time."""

STOP_S = 60.0
REFUSED_S = 20.0


@dataclass
class Result:
    seed: int
    violation: ViolationError | None
    digest: str
    steps: int
    seconds: float
    """Simulated."""
    coverage: Counter[tuple[str, str]] = field(default_factory=Counter)
    """(fault, where its target was): how often."""
    history: list[tuple[float, str, str]] = field(default_factory=list)


def simulate(scenario: Scenario, source: Path = ROOT, edits: tuple[Edit, ...] = ()) -> Result:
    preempt = scenario.preempt / 4 if scenario.points else scenario.preempt
    stall = scenario.stall / 4 if scenario.points else scenario.stall
    scheduler = Scheduler(scenario.seed, preempt=preempt, stall=stall)
    workers.RANDOMNESS.seed(scenario.seed)
    violation: ViolationError | None = None
    with running(scheduler):
        run = Run(scheduler, scenario, source, edits)
        try:
            run.run()
        except ViolationError as found:
            violation = found
        except Exception as error:  # noqa: BLE001 - a thread that died, or the simulator's own fault
            law = f"died: {type(error).__name__}"
            violation = ViolationError(law, f"{error} ({workers._innermost(error)})")
        history, seconds = run.world.history, scheduler.now - 1000.0
        counted = scheduler.steps, seconds, run.coverage
        return Result(scenario.seed, violation, history.digest(), *counted, history.lines)


class Run:
    def __init__(self, scheduler: Scheduler, scenario: Scenario, source: Path, edits: tuple[Edit, ...]) -> None:
        self.coverage: Counter[tuple[str, str]] = Counter()
        self.scheduler = scheduler
        self.scenario = scenario
        self.world = World(scheduler, scenario.seed)
        self.world.cooperative = scenario.protocol != "eager"
        self.world.kip_848, self.world.session_s = scenario.protocol == "kip-848", scenario.session_s
        self.world.silent_losses = scenario.silent_losses
        self.world.objects.faults.flaky = scenario.flaky
        self._reference = reference = workers.reference(source)
        self._package = workers.package(source, edits, scenario.points)
        self._settings = workers.settings_of(source, scenario)
        shape_of = reference["cli.build"].shape_of
        rows, blocks = reference["wire.rows.encode"], reference["sketch.rows"]
        self.content = Content(scenario.seed, scenario.partitions, rows.encode_row, rows.encode_rows, blocks.RowBlock)
        self.judge = Judge(
            self.world, scenario, self.content, reference, lambda partition: shape_of(self._settings, partition)
        )
        self.duties = Duties(self.world, self.judge)
        self._workers: dict[int, workers.Worker] = {}
        self._ends: dict[str, list[int]] = {}
        self._starts = 0
        self._stopping = self.calm = False
        self._done: set[int] = set()
        """Workers with --until-end that exited 0 for good."""
        self._aimed: list[Fault] = []
        self._backups: dict[Fault, tuple[int, dict[str, bytes], list[int]]] = {}
        self._restoring = False
        self._reader: Reader | None = None
        self.merging: Merging | None = None
        self.scoring: Scoring | None = None

    def run(self) -> None:
        began = self.scheduler.now
        self._create_topics()
        self._start_all()
        self.duties.watch_bounds(lambda: [worker.process for worker in self._workers.values()])
        for fault in self.scenario.faults:
            if fault.kind == "restored backup":
                self.scheduler.call_later(max(fault.at_s - fault.seconds, 0.0), lambda f=fault: self._take_backup(f))
            self.scheduler.call_later(fault.at_s, lambda f=fault: self._fault(f))
        self.scheduler.run_until(began + self.scenario.faults_until_s)
        self._make_calm()
        deadline = self.scheduler.now + CALM_S
        while not (self._is_settled() or self.judge.refused):
            self.scheduler.run_until(self.scheduler.now + 0.5)
            if self.scheduler.now > deadline:
                self.judge.fail("progress", self._unsettled())
        if self.judge.refused:  # until a person resets it, nothing more happens
            self.scheduler.run_until(self.scheduler.now + REFUSED_S)
            self._stop_all()
            return
        self._await_readers()
        self._stop_all()
        self.judge.final()

    def _create_topics(self) -> None:
        broker, scenario = self.world.broker, self.scenario
        broker.create(INPUT, scenario.partitions)
        broker.create(DEAD, 1)
        if scenario.delivery != "none":
            broker.create(OUTPUT, 1)
        for partition in range(scenario.partitions):
            self._produce(partition, "r" * scenario.first_offset)
            broker.topics[INPUT].logs[partition].remove_before(scenario.first_offset)
        for batch in scenario.batches:
            if batch.at_s < 0:
                self._produce(batch.partition, batch.kinds)
            else:
                self.scheduler.call_later(batch.at_s, lambda b=batch: self._produce(b.partition, b.kinds))

    def _start_all(self) -> None:
        if self.scenario.reader:
            self._reader = Reader(self._package, self.judge)
            self._reader.start()
        if self.scenario.merge:
            self.merging = Merging(self._package, self.judge, self._reference)
            self.merging.start()
        if self.scenario.score != "none":
            self.scoring = Scoring(self._package, self.judge, self._reference, self._settings, self.scenario)
            self.scoring.start()
        for number in range(self.scenario.workers):
            self.start(number)

    def _await_readers(self) -> None:
        """Those who read get all that is published."""
        for name, reader in (("reader", self._reader), ("merge", self.merging), ("scored", self.scoring)):
            if reader is not None and not self.scheduler.run_until(self.scheduler.now + CALM_S, reader.is_current):
                published = self.judge.newest_published()
                self.judge.fail(name, f"{reader.describe()}, published were {published}")

    # Records

    def _produce(self, partition: int, kinds: str) -> None:
        log = self.world.broker.topics[INPUT].logs[partition]
        for kind in kinds:
            value, counts = self.content.made(kind)
            record = log.append(self.scheduler.now, value, control=kind == "c")
            record.aborted = kind == "a"
            if partition not in self.judge.refused:
                self.content.add(partition, record, counts)
        log.changed()

    def remove_old_records(self) -> None:
        """What every state has passed and the group has committed is removed, unless a backup is about to be restored:
        a worker must refuse one whose next records are gone.
        """
        if self._restoring:
            return
        for partition, log in enumerate(self.world.broker.topics[INPUT].logs):
            committed = self.world.group(GROUP).offsets.get((INPUT, partition))
            newest = self.judge.newest(partition)
            if committed is not None and newest is not None:
                log.remove_before(min(committed.offset, newest.next_offset))

    def add_partition(self) -> None:
        topic = self.world.broker.topics[INPUT]
        topic.logs.append(Log())
        self.content.add_partition()
        self.judge.add_partition()
        self._produce(len(topic.logs) - 1, "rmbr")
        for group in (GROUP,) if self.scoring is None else (GROUP, SCORE_GROUP):
            self.world.group(group).rebalance()

    # Logs that are not what was read

    def truncate(self, number: int) -> None:
        """Only where every record is of one log: not after another loss, nor before the first state."""
        logs = self.world.broker.topics[INPUT].logs
        partition = number % len(logs)
        log, newest = logs[partition], self.judge.newest(partition)
        if self.judge.refused or self._restoring or newest is None or log.end <= max(log.start, 1):
            return
        end, gone = max(log.start, log.end - 2), {worker.process.name for worker in self._workers.values()}
        self._crash_all()

        def lose() -> None:
            newest = self.judge.newest(partition)
            if newest.next_offset > end and newest.leader_epoch is not None:  # else it has read nothing yet
                self.judge.refuse([partition])
            self.world.history.note("director", f"{INPUT}/{partition} loses what comes after {end}")
            log.truncate(end)
            if partition not in self.judge.refused:
                self.content.truncate(partition, end)
                self.judge.truncated[partition] = end, gone
            self._produce(partition, "rrm")
            self._start_again()

        self.scheduler.call_later(faults.DRAIN_S, lose)

    def recreate(self) -> None:
        """Only where every partition has a state: one without may begin with the new topic."""
        if self.judge.refused or self._restoring or not all(self.judge.chains):
            return
        self.judge.recreated = True
        self.judge.refuse(self._partitions)
        before = self.world.broker.topics[INPUT]
        topic = self.world.broker.create(INPUT, len(self.judge.chains))
        for partition, log in enumerate(topic.logs):
            self.world.group(GROUP).offsets.pop((INPUT, partition), None)
            for _ in range(1 + 2 * partition):
                log.append(self.scheduler.now, self.content.made("m")[0])
        for log in before.logs:
            log.changed()  # clients that wait for records of the old log ask again, by the topic's name

    def _crash_all(self) -> None:
        self._restoring = True
        for worker in self._workers.values():
            self.scheduler.crash(worker.process)

    def _start_again(self) -> None:
        self._restoring = False
        for number in list(self._workers):
            self.start(number)

    @property
    def _partitions(self) -> range:
        return range(len(self.world.broker.topics[INPUT].logs))

    # Workers

    def start(self, number: int) -> None:
        if self._stopping or self._restoring or number in self._done:
            return
        if number in self._workers and self._workers[number].process.alive:
            return
        self._starts += 1
        name = f"w{number}" if self._starts <= self.scenario.workers else f"w{number}.{self._starts}"
        chosen = {"until_end": self.scenario.until_end, "watched": self.scenario.watched}
        worker = workers.Worker(self._package, self._settings, name, **chosen)
        worker.on_exit = lambda each: self._exited(number, each)
        worker.on_reach = lambda each, point: self._reached(number, each, point)
        logs = self.world.broker.topics[INPUT].logs
        self._ends[name] = [log.stable_end for log in logs]
        self._workers[number] = worker
        self.world.history.note("director", f"starts {name}")
        worker.start()

    def _exited(self, number: int, worker: workers.Worker) -> None:
        assert worker.exit is not None
        code, words = worker.exit
        name = worker.process.name
        self.world.history.note(name, f"exits {code} {words}")
        self.scheduler.crash(worker.process)
        done = self.scenario.until_end and code == 0 and not worker._stopping
        self.judge.exited(name, code, words, self._ends[name] if done else None)
        if done:
            self._done.add(number)
        elif not self._stopping:
            delay_s = REFUSED_S / 2 if self.judge.refused else faults.RESTART_S
            self.scheduler.call_later(delay_s, lambda: self.start(number))

    # Faults

    def _fault(self, fault: Fault) -> None:
        if self.calm:
            return
        if fault.kind.startswith("scorer") and self.scoring is not None:
            self.scoring.aim(fault)
        elif fault.where:
            self._aimed.append(fault)
        else:
            self._apply(fault, self._workers.get(fault.target))

    def _reached(self, number: int, worker: workers.Worker, point: str) -> None:
        """In the task that reaches the point."""
        self.duties.reached(worker.process.name, worker.new_manifests())
        due = [fault for fault in self._aimed if (fault.target, fault.where) == (number, point) and not self.calm]
        if not due:
            return
        for fault in due:
            self._aimed.remove(fault)
            if fault.kind != faults.STALL:
                self.scheduler.call_later(0.0, lambda f=fault: self._apply(f, worker))
        stall = next((fault for fault in due if fault.kind == faults.STALL), None)
        if stall is not None:
            self._note(stall, worker)
        self.scheduler.wait(0.0 if stall is None else stall.seconds)

    def _apply(self, fault: Fault, worker: workers.Worker | None) -> None:
        if not self.calm:
            self._note(fault, worker)
            faults.apply(self, fault, worker)

    def _note(self, fault: Fault, worker: workers.Worker | None) -> None:
        self.world.history.note("director", str(fault))
        self.coverage[fault.kind, "" if worker is None else worker.last_point] += 1

    def resume(self, name: str) -> None:
        for worker in self._workers.values():
            if worker.process.name == name and worker.process.paused:
                self.world.history.note("director", f"wakes {name}")
                self.scheduler.resume(worker.process)

    # Backups

    def _take_backup(self, fault: Fault) -> None:
        objects = self.world.objects
        self._backups[fault] = objects.incarnation, objects.copy(), [len(chain) for chain in self.judge.chains]

    def restore_backup(self, fault: Fault) -> None:
        """Not where the log has lost what the backup needs, nor if partitions or another backup came between."""
        if self.judge.refused or self._done or fault not in self._backups:
            return  # with --until-end nobody may be left to go on from the backup
        incarnation, objects, lengths = self._backups[fault]
        logs = self.world.broker.topics[INPUT].logs
        starts = [chain[:length] for chain, length in zip(self.judge.chains, lengths, strict=False)]
        begins = [chain[-1].next_offset if chain else self.scenario.first_offset for chain in starts]
        if self._restoring or incarnation != self.world.objects.incarnation or len(logs) != len(lengths):
            return
        if any(log.start > at for log, at in zip(logs, begins, strict=True)):
            return
        self._crash_all()
        self.scheduler.call_later(faults.DRAIN_S, lambda: self._restore(objects, lengths))

    def _restore(self, objects: dict[str, bytes], lengths: list[int]) -> None:
        self.world.objects.restore(objects)
        self.judge.restored(lengths)
        for partition, length in enumerate(lengths):
            if not length:  # a group that has committed without a checkpoint is refused: a person resets it
                self.world.group(GROUP).offsets.pop((INPUT, partition), None)
        self._start_again()

    # The end

    def _make_calm(self) -> None:
        self.calm = True
        self.world.history.note("director", "calm")
        self.world.network.heal()
        self.world.objects.faults.heal()
        self.world.objects.repair_all()
        self.world.silent_losses = 0.0
        self.scheduler.stall = 0.0
        for worker in self._workers.values():
            self.resume(worker.process.name)
        for each in filter(None, (self.merging, self.scoring)):
            each.wake()

    def _is_settled(self) -> bool:
        if self.scenario.until_end:
            return len(self._done) == self.scenario.workers
        return all(self._missing(partition) is None for partition in self._partitions)

    def _missing(self, partition: int) -> str | None:
        end = self.judge.data_end(partition)
        newest = self.judge.newest(partition)
        if newest is None:
            return "it was never claimed"
        if found := self.judge.missing(partition, end) if end else None:
            return found
        committed = self.world.group(GROUP).offsets.get((INPUT, partition))
        if committed is None or committed.offset != newest.next_offset:
            return f"durable is {newest.next_offset}, committed {None if committed is None else committed.offset}"
        return self.judge.outdated(partition)

    def _unsettled(self) -> str:
        if self.scenario.until_end:
            left = sorted(set(range(self.scenario.workers)) - self._done)
            words = f"workers {left} do not end within {CALM_S:.0f} s of calm"
        else:
            missing = {p: words for p in self._partitions if (words := self._missing(p))}
            words = f"after {CALM_S:.0f} s of calm: {missing}"
        return "; ".join([words, *(words for consumer in self.world.consumers for words in consumer.stuck())])

    def _stop_all(self) -> None:
        self._stopping = True
        self.world.history.note("director", "stops all workers")
        for worker in self._workers.values():
            worker.stop()

        def ended() -> bool:
            return not any(worker.process.alive for worker in self._workers.values())

        if not self.scheduler.run_until(self.scheduler.now + STOP_S, ended):
            alive = [worker.process.name for worker in self._workers.values() if worker.process.alive]
            self.judge.fail("stop", f"{alive} did not end within {STOP_S:.0f} s of SIGTERM")
