"""A SnapshotReader that reads along. What it has seen never goes back, and in the end it has everything."""

from __future__ import annotations

from typing import Any

from tests.simulation.judge import GROUP, OUTPUT, Judge
from tests.simulation.primitives import sleep
from tests.simulation.scheduler import Process, active
from tests.simulation.store import SimulatedStore
from tests.simulation.workers import Package

EVERY_S = 1.0


class Reader:
    """A simulated process with the real SnapshotReader in it; outages are waited out."""

    def __init__(self, package: Package, judge: Judge) -> None:
        self.ids: dict[int, tuple[int, int]] = {}
        self._package = package
        self._judge = judge
        self._rows: int | None = None

    def start(self) -> None:
        active().spawn(Process("reader"), "reader", self._main)

    def is_current(self) -> bool:
        """Whether it has merged all that is published by now."""
        return self.ids == self._judge.newest_published() and self._rows == self._judge.rows_published()

    def describe(self) -> str:
        return f"it has {self.ids} with {self._rows} rows"

    def _main(self) -> None:
        errors = self._package.errors
        made = self._package.universe["reader.reader"].SnapshotReader
        reader = made("simulated:9092", OUTPUT, group=GROUP, timeout_s=5.0, store_url=SimulatedStore.url)
        while True:
            try:
                merged = reader.merged()
            except (errors.BrokerRefusedError, errors.StoreError, errors.NoSnapshotError):
                sleep(EVERY_S)
                continue
            self._look(reader, merged)
            sleep(EVERY_S)

    def _look(self, reader: Any, merged: Any) -> None:
        for found in reader.ids.values():
            before = self.ids.get(found.partition)
            if before is not None and found.order < before:
                self._judge.fail("reader", f"partition {found.partition} goes back from {before} to {found.order}")
            self.ids[found.partition] = found.order
        self._rows = merged.rows
