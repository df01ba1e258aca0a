"""`sfd-stream merge` as a simulated process, and its laws.

Each merge is of states that were published, each counted once; no part of it goes back; its ids rise; and in the end it
is the merge of what is published.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Any

from tests.simulation.broker import LogRecord
from tests.simulation.clients import world
from tests.simulation.judge import GROUP, INPUT, MERGED, OUTPUT, Judge
from tests.simulation.loader import Universe
from tests.simulation.scheduler import Process, active
from tests.simulation.store import SimulatedStore
from tests.simulation.workers import MESSAGE_TIMEOUT_MS, Package, outcome_of

EVERY_S = 1.0
RESTART_S = 1.5

SETTINGS = (
    "kafka.bootstrap.servers=simulated:9092",
    f"kafka.group.id={GROUP}",
    f"kafka.message.timeout.ms={MESSAGE_TIMEOUT_MS}",
    f"snapshot.topic={OUTPUT}",
    f"snapshot.trusted_stores={SimulatedStore.url}",
    f"merge.topic={MERGED}",
    f"merge.every_s={EVERY_S}",
    "merge.republish_s=600",
)


@lru_cache(maxsize=4)
def _settings(reference: Universe) -> Any:
    sections = ("snapshot", "merge", "http", "log")
    return reference["config.load"].load_some(None, environ={}, overrides=SETTINGS, sections=sections)


class Merging:
    """Restarts whenever it ends or crashes, until the simulation does."""

    def __init__(self, package: Package, judge: Judge, reference: Universe) -> None:
        self._package = package
        self._judge = judge
        self._snapshots = reference["wire.snapshots"]
        self._settings = _settings(reference)
        self._process = Process("merger")
        self._lives = 0
        self._newest: Any = None
        """The last merge that became visible."""
        judge.on_merge = self._check

    def start(self) -> None:
        self._lives += 1
        self._process = Process(f"merger{self._lives}")
        active().spawn(self._process, "merger", self._main)

    def crash(self) -> None:
        active().crash(self._process)
        active().call_later(RESTART_S, self.start)

    def pause(self, seconds: float) -> None:
        process = self._process
        active().pause(process)
        active().call_later(seconds, lambda: active().resume(process))

    def wake(self) -> None:
        active().resume(self._process)

    def is_current(self) -> bool:
        """Whether the newest merge holds the newest snapshots of all partitions."""
        held = {part.id.partition: part.id.order for part in self._newest.merged_from} if self._newest else {}
        return held == self._judge.newest_published()

    def describe(self) -> str:
        return f"the newest merge has {self._newest and [str(part.id) for part in self._newest.merged_from]}"

    def _main(self) -> None:
        universe, settings = self._package.universe, self._settings

        def run() -> None:
            merger, _ = universe["cli.commands.merge"].merger_of(settings)
            merger.run()

        code, words = outcome_of(run, self._package, self._process)
        active().call_later(0.0, lambda: self._exited(code, words))
        active().wait(None)

    def _exited(self, code: int, words: str) -> None:
        world().history.note(self._process.name, f"exits {code} {words}")
        self._judge.exited(self._process.name, code, words, None)
        self.crash()

    def _check(self, record: LogRecord, who: str) -> None:
        assert record.value is not None
        merge = self._snapshots.decode_message(record.value)
        world().history.note("broker", f"merge {merge.id.order} of {merge.sketch.rows} rows by {who}")
        parts = {part.id.partition: part for part in merge.merged_from}
        rows = sum(self._rows(partition, part.id.order) for partition, part in parts.items())
        if merge.sketch.rows != rows or len(parts) != len(merge.merged_from):
            self._judge.fail("merge", f"{merge.id} has {merge.sketch.rows} rows, its parts have {rows}")
        if self._newest is not None:
            self._check_order(self._newest, merge)
        self._newest = merge

    def _rows(self, partition: int, order: tuple[int, int]) -> int:
        if (partition, order) not in self._judge.rows_of:
            self._judge.fail("merge", f"it holds {order} of {INPUT}/{partition}, which was never published")
        return self._judge.rows_of[partition, order]

    def _check_order(self, before: Any, merge: Any) -> None:
        if merge.id.order < before.id.order:
            self._judge.fail("merge", f"{merge.id} comes after {before.id}")
        held = {part.id.partition: part.id.order for part in before.merged_from}
        for part in merge.merged_from:
            if part.id.order < held.get(part.id.partition, part.id.order):
                self._judge.fail("merge", f"{merge.id} goes back to {part.id}, {before.id} had {held}")
