"""A scorer with a pinned basis and thresholds: which rows have a score, and what a score says about its basis.

The answers come from the package as it is, not from the mutated one. Two bases are pinned; the settings name the older.
"""

from __future__ import annotations

import random
from collections.abc import Mapping
from types import SimpleNamespace
from typing import Any

import numpy as np

from tests.simulation.clients import world
from tests.simulation.content import COLUMNS
from tests.simulation.judge import GROUP, INPUT
from tests.simulation.loader import Universe

WHEN = {"residual_over_mean_min": 1.5, "t2_min": 1.3}
"""Rows of the simulation reach none, either or both."""

COUNTED_TO = 3
"""By partition: the named basis says that it has counted the rows before this offset. It has counted nothing of a
partition that was added to the topic after it was pinned."""


class Extremes:
    """`settings` are those of the scorer."""

    def __init__(self, reference: Universe, settings: Any, partitions: int) -> None:
        self._reference = reference
        store = SimpleNamespace(
            list=lambda _: [], put=lambda key, data: world().objects.put(key, data, "harness"), url="memory://simulated"
        )
        bases = reference["score.pinned"].PinnedBases(store, GROUP, INPUT, 2**30)
        named, newer = (self._merged(number, partitions) for number in (1, 2))
        self.basis_id = bases.pin(named, 1.0)
        bases.pin(newer, 2.0)
        given = {"basis": "pinned", "pinned": self.basis_id, "when": WHEN, "causes": 1}
        score = reference["config.model"].ScoreSettings(**settings.score.model_dump() | given)
        self.settings = settings.model_copy(update={"score": score})
        self._scorer = named.scorer(score.k, score.centred)
        self._columns = reference["cli.build"].columns_of(self.settings)
        self._partitions = partitions
        """Of the topic when the bases were pinned."""
        self._known: dict[tuple[int, int], list[list[str]]] = {}

    def _merged(self, number: int, partitions: int) -> Any:
        """A merged sketch of some rows; of more columns than directions, so that residuals are not zero."""
        rng, reference = random.Random(f"basis {number}"), self._reference
        snapshots = reference["wire.snapshots"]
        rows = np.array([[rng.choice((0, 0, rng.randint(1, 9))) for _ in range(COLUMNS)] for _ in range(20)], float)
        sketch = reference["sketch.estimator"].SparseFrequentDirections(ell=COLUMNS).fit(rows).sketch()
        parts = [
            snapshots.Snapshot(
                reference["wire.snapshot_ids"].SnapshotId("cluster", GROUP, INPUT, partition, 1, number),
                partitions=partitions,
                next_offset=COUNTED_TO if number == 1 else 0,
                made_at_s=1.0,
                sketch=sketch,
                columns="fixed",
            )
            for partition in range(partitions)
        ]
        return reference["reader.merged"].merge(parts, 1.0)

    def reported(self, partition: int, offset: int) -> list[list[str]]:
        """For each row of a record, the thresholds that it reaches. Empty for what is no row."""
        place = partition, offset
        if place not in self._known:
            log = world().broker.topics[INPUT].logs[partition]
            value = log.records[offset - log.base].value
            decoded = self._reference["wire.rows.decode"].decode([] if value is None else [value], self._columns)
            scores = self._scorer.score(decoded.block)
            kinds = self._reference["score.scoring"].kinds_of(scores, self.settings.score.when)
            rows = range(decoded.block.rows)
            self._known[place] = [[kind for kind, reach in kinds.items() if reach[row]] for row in rows]
        return self._known[place]

    def fault(self, score: Mapping[str, Any]) -> str | None:
        """What is wrong with a score that was written; None if it is right."""
        wanted = self.reported(score["partition"], score["offset"])[score["row"]]
        if not wanted:
            return "reaches no threshold"
        if score["reported"] != wanted:
            return f"is reported for {score['reported']}, not for {wanted}"
        if score["basis"]["id"] != self.basis_id:
            return f"has the basis {score['basis']['id']}, not {self.basis_id}"
        counted = score["partition"] < self._partitions and score["offset"] < COUNTED_TO
        if score["basis"]["counted"] != counted:
            return f"says counted: {score['basis']['counted']}"
        return None
