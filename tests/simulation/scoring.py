"""`sfd-stream score` as simulated processes of a group of their own, and its laws.

Every row of the input topic has its score on the score topic before its offset is committed, and with transactions
exactly one that readers of committed records see. With thresholds that holds for extreme rows, and others have none.
"""

from __future__ import annotations

import json
from collections import Counter
from typing import Any

from tests.simulation.broker import LogRecord
from tests.simulation.clients import world
from tests.simulation.extremes import Extremes
from tests.simulation.judge import GROUP, INPUT, Judge
from tests.simulation.loader import Universe
from tests.simulation.scenario import Fault, Scenario
from tests.simulation.scheduler import Process, active
from tests.simulation.workers import Package, outcome_of

SCORES, STATES, LETTERS = "scores", "scores-state", "score-dead"
SCORE_GROUP = f"{GROUP}-score"
SCORERS = 2
RESTART_S = 1.5


def _scored(reference: Universe, settings: Any, delivery: str) -> Any:
    """A worker's settings with those of a scorer. Around zero, a first row is enough for a basis."""
    given = reference["config.model"].ScoreSettings(topic=SCORES, delivery=delivery, centred=False, k=1)
    letters = settings.dead_letters.model_copy(update={"topic": LETTERS})
    return settings.model_copy(update={"score": given, "dead_letters": letters})


class Scoring:
    """Each scorer restarts whenever it ends or crashes, until the simulation does."""

    def __init__(self, package: Package, judge: Judge, reference: Universe, settings: Any, scenario: Scenario) -> None:
        self._package = package
        self._judge = judge
        self._content = judge.content
        self._settings = _scored(reference, settings, scenario.score)
        self._extremes: Extremes | None = None
        if scenario.extreme:
            self._extremes = Extremes(reference, self._settings, scenario.partitions)
            self._settings = self._extremes.settings
        self._is_once = scenario.score == "transactional"
        self._processes: dict[int, Process] = {}
        self._starts = 0
        self._aimed: list[Fault] = []
        self._scores: Counter[tuple[int, int, int]] = Counter()
        """By partition, offset and row: how many scores are visible."""
        self._whole: dict[int, int] = {}
        """By partition: every row below this offset is known to have its score."""
        self._below = {"append": world().broker.on_append, "commit": world().on_commit}
        world().broker.on_append = self._appended
        world().on_commit = self._committed
        for topic, partitions in ((SCORES, scenario.partitions), (STATES, 1), (LETTERS, 1)):
            world().broker.create(topic, partitions)

    def start(self) -> None:
        for number in range(SCORERS):
            self._start(number)

    def wake(self) -> None:
        for process in self._processes.values():
            if process.paused:
                active().resume(process)

    def is_current(self) -> bool:
        return not any(self._left(partition) for partition in range(len(self._content.below)))

    def describe(self) -> str:
        return f"not committed by the scorers: {[self._left(p) for p in range(len(self._content.below))]}"

    # Faults

    def aim(self, fault: Fault) -> None:
        """At once, or where the target reaches a named point."""
        world().history.note("director", str(fault))
        if fault.where:
            self._aimed.append(fault)
        else:
            self._apply(fault)

    def _apply(self, fault: Fault) -> None:
        number = fault.target % SCORERS
        process = self._processes[number]
        if fault.kind == "scorer no leader":
            world().broker.leaderless_until[SCORES] = active().now + fault.seconds
        elif not process.alive:
            return
        elif fault.kind == "scorer no answers":
            world().network.deafen(process, fault.seconds)
        elif fault.kind == "scorer crash":
            self._restart(number)
        elif fault.kind == "scorer pause":
            active().pause(process)
            active().call_later(fault.seconds, lambda: active().resume(process) if process.paused else None)
        else:
            world().group(SCORE_GROUP).expel(process.name)

    def _reached(self, number: int, point: str) -> None:
        due = [fault for fault in self._aimed if (fault.target % SCORERS, fault.where) == (number, point)]
        for fault in due:
            self._aimed.remove(fault)
            active().call_later(0.0, lambda f=fault: self._apply(f))
        if due:
            active().wait(0.0)
        active().point()

    # Processes

    def _start(self, number: int) -> None:
        self._starts += 1
        name = f"scorer{number}" if self._starts <= SCORERS else f"scorer{number}.{self._starts}"
        process = self._processes[number] = Process(name)
        active().spawn(process, f"{name} main", lambda: self._main(number, process))

    def _restart(self, number: int) -> None:
        active().crash(self._processes[number])
        active().call_later(RESTART_S, lambda: self._start(number))

    def _main(self, number: int, process: Process) -> None:
        universe = self._package.universe

        def run() -> None:
            made = universe["cli.commands.score"].consumer_of
            made(self._settings, reach=lambda point: self._reached(number, point)).run()

        code, words = outcome_of(run, self._package, process)
        active().call_later(0.0, lambda: self._exited(number, code, words))
        active().wait(None)

    def _exited(self, number: int, code: int, words: str) -> None:
        name = self._processes[number].name
        world().history.note(name, f"exits {code} {words}")
        self._judge.exited(name, code, words, None)
        self._restart(number)

    # Laws

    def _appended(self, topic: str, partition: int, record: LogRecord, who: str) -> None:
        if topic != SCORES:
            self._below["append"](topic, partition, record, who)
            return
        assert record.value is not None
        score = json.loads(record.value)
        place = score["partition"], score["offset"], score["row"]
        self._scores[place] += 1
        if score["row"] >= self._rows_at(score["partition"], score["offset"]):
            self._judge.fail("scores", f"{who} scores {place}, which is no row")
        if self._is_once and self._scores[place] > 1:
            self._judge.fail("scored once", f"{who} scores {place} again")
        if self._extremes is not None and (fault := self._extremes.fault(score)):
            self._judge.fail("extreme rows", f"{who} scores {place}, which {fault}")

    def _committed(self, topic: str, partition: int, offset: int, metadata: str, who: str) -> None:
        if not who.startswith("scorer"):
            self._below["commit"](topic, partition, offset, metadata, who)
            return
        world().history.note("broker", f"commit of {topic}/{partition} at {offset} by {who}, a scorer")
        begun = self._whole.setdefault(partition, world().broker.topics[INPUT].logs[partition].start)
        for passed in range(begun, offset):
            missing = [r for r in self._wanted(partition, passed) if not self._scores[partition, passed, r]]
            if missing:
                self._judge.fail("scored before committed", f"{who} passes {(partition, passed)} without {missing}")
        self._whole[partition] = max(begun, offset)

    def _wanted(self, partition: int, offset: int) -> list[int]:
        """The rows of a record that must have a score."""
        rows = range(self._rows_at(partition, offset))
        if self._extremes is None or not rows:
            return list(rows)
        return [row for row in rows if self._extremes.reported(partition, offset)[row]]

    def _rows_at(self, partition: int, offset: int) -> int:
        below = self._content.below[partition]
        return below[offset + 1].rows - below[offset].rows if offset + 1 < len(below) else 0

    def _left(self, partition: int) -> str:
        """Empty once the scorers have committed all of a partition; a topic without rows gives no basis."""
        end = self._judge.data_end(partition)
        committed = world().group(SCORE_GROUP).offsets.get((INPUT, partition))
        at = None if committed is None else committed.offset
        has_basis = any(self._judge.rows_of.values())
        return "" if not has_basis or (at is not None and at >= end) else f"partition {partition} {at} of {end}"
