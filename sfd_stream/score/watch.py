"""What `sfd-stream score` reports about itself: counts of events, and a few values for the port.

The loop's thread writes, the port's thread reads. Values that belong together are replaced as one value.
"""

from __future__ import annotations

import json
from collections import Counter, deque
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np

from sfd_stream import __version__
from sfd_stream.observe import metrics as m
from sfd_stream.observe.registry import Family, MetricsRegistry, family_of, labelled, of_process
from sfd_stream.score.scoring import EXTREME_KEPT, ScoredBatch
from sfd_stream.sketch.drift import Significance
from sfd_stream.sketch.rows import Float, Int
from sfd_stream.sketch.scoring.block_angles import NO_ROOTS, angle_of
from sfd_stream.sketch.scoring.block_means import BlockMeans
from sfd_stream.wire.score_states import ScoreState

BIN_LEAST, BIN_MOST = -10, 20
"""The range of the page's histogram: residuals from 0.001 to 1,000,000 times the mean, by powers of 2."""


class PartitionDrift(NamedTuple):
    """How the rows of a partition compare with the reference of drift."""

    shares: BlockMeans
    found: Significance | None
    """None before the first block after the baseline."""
    roots: BlockMeans = NO_ROOTS
    """The angles of blocks, in the form of `BlockAngles.roots`."""
    turned: Significance | None = None

    @classmethod
    def of(cls, state: ScoreState, block_rows: int, alpha: float) -> PartitionDrift:
        """Compares the blocks that a state has; each of the two tests is at level alpha."""
        shares = state.shares or BlockMeans(block_rows)
        roots = NO_ROOTS if state.angles is None else state.angles.roots
        return cls(shares, shares.significance(alpha), roots, roots.significance(alpha))

    @property
    def change(self) -> Significance | None:
        """The change of the share, if it is significant."""
        return self.found if self.found is not None and self.found.significant else None

    @property
    def turn(self) -> Significance | None:
        """A change of the angle, if it is significant."""
        return self.turned if self.turned is not None and self.turned.significant else None


@dataclass(frozen=True)
class ScoreStatus:
    """Updated once a second."""

    doing: str = "joining the consumer group"
    ready: bool = False
    lag: Mapping[int, int] | None = None
    """For each partition that is read: the number of records whose scores are not delivered yet."""
    basis_made_at_s: float | None = None
    basis_rows: int | None = None
    drift: Mapping[int, PartitionDrift] = field(default_factory=dict)


class ScoreWatch:
    """`alive` is called once a turn, the rest when it happens."""

    version = __version__

    def __init__(
        self,
        group: str,
        topic: str,
        clock: Callable[[], float],
        wall_clock: Callable[[], float],
        *,
        excerpts: bool = False,
    ) -> None:
        self.meter = MetricsRegistry("score")
        self.excerpts = excerpts
        self.status = ScoreStatus()
        self.started_at_s = wall_clock()
        self.rows = 0
        self.written = 0
        self.reported: Counter[str] = Counter()
        self._bins = np.zeros(BIN_MOST - BIN_LEAST + 1, np.int64)
        self._extreme = deque[tuple[float, Mapping[str, Any]]](maxlen=EXTREME_KEPT)
        """When the score was delivered, and the score."""
        self._who = {"worker": m.SCORE_WORKER, "group": group, "topic": topic}
        self._clock = clock
        self._wall_clock = wall_clock
        self._alive_s = clock()

    # The loop reports

    def alive(self) -> None:
        self._alive_s = self._clock()

    def took(self, partition: int, *, messages: int, rows: int, nnz: int, size: int, tombstones: int) -> None:
        del rows, nnz, size, tombstones
        self.meter.add(m.SCORE_MESSAGES, messages, partition)

    def dead_letter(self, partition: int, offset: int, reason: str, words: str, value: bytes | None) -> None:
        del partition, offset, words, value
        self.meter.add(m.SCORE_DEAD_LETTERS, 1, reason)

    def delivered(self, partition: int, batch: ScoredBatch) -> None:
        """The scores of a batch are on the topic, its offset is committed."""
        self.rows += batch.rows
        self.written += len(batch.messages)
        self.reported += batch.reported
        self.meter.add(m.SCORE_ROWS, batch.rows, partition)
        self.meter.add(m.SCORE_WRITTEN, len(batch.messages), partition)
        for kind, rows in batch.reported.items():
            self.meter.add(m.SCORE_REPORTED, rows, kind)
        self._bins = self._bins + _bins_of(batch.over_mean)
        now_s = self._wall_clock()
        self._extreme.extend((now_s, score) for score in batch.extreme)
        for value in batch.over_mean.tolist():
            self.meter.observe(m.SCORE_OVER_MEAN, value)

    def delivery_failed(self) -> None:
        self.meter.add(m.SCORE_FAILURES)

    # The port reads

    @property
    def idle_s(self) -> float:
        return max(self._clock() - self._alive_s, 0.0)

    @property
    def ready(self) -> bool:
        return self.status.ready

    @property
    def doing(self) -> str:
        return self.status.doing

    def status_json(self) -> bytes:
        """What the page shows."""
        status, bins = self.status, self._bins.tolist()
        found = {
            "version": self.version,
            "group": self._who["group"],
            "topic": self._who["topic"],
            "at_s": self._wall_clock(),
            "started_at_s": self.started_at_s,
            "loop_idle_s": self.idle_s,
            "doing": status.doing,
            "ready": status.ready,
            "rows": self.rows,
            "written": self.written,
            "reported": dict(self.reported),
            "lag": None if status.lag is None else sum(status.lag.values()),
            "basis_made_at_s": status.basis_made_at_s,
            "basis_rows": status.basis_rows,
            "drift": {p: (each.change or each.turn) is not None for p, each in status.drift.items()},
            "histogram": [[2.0 ** (BIN_LEAST + at), rows] for at, rows in enumerate(bins) if rows],
            "extreme": [self._row_of(at_s, score) for at_s, score in reversed(list(self._extreme))],
        }
        return json.dumps(found, allow_nan=False).encode()

    def _row_of(self, at_s: float, score: Mapping[str, Any]) -> dict[str, Any]:
        """Includes a row's values only if excerpts of messages are allowed."""
        names = ("partition", "offset", "row", "reported", "p_value", "residual_over_mean", "t2")
        causes = {}
        for kind in ("residual", "t2"):
            fields = ("name", "share", "missing", *(("actual", "expected", "z") if self.excerpts else ()))
            found = score["causes"][kind]
            causes[kind] = [{name: cause[name] for name in fields if name in cause} for cause in found]
        return {"at_s": at_s, **{name: score[name] for name in names}, "causes": causes}

    def exposition(self) -> bytes:
        return labelled(self.meter, self._gauges, self._who)

    def _gauges(self) -> Iterator[Family]:
        yield from of_process(self, self.idle_s)
        status = self.status
        yield family_of(m.SCORE_LAG, [((str(p),), lag) for p, lag in (status.lag or {}).items()])
        made_at_s = status.basis_made_at_s
        age_s = None if made_at_s is None else max(self._wall_clock() - made_at_s, 0.0)
        yield family_of(m.SCORE_BASIS_AGE, [((), age_s)])
        yield family_of(m.SCORE_BASIS_ROWS, [((), status.basis_rows)])
        yield from _drift(status.drift)


def _bins_of(over_mean: Float) -> Int:
    """The number of values in each power of 2. Zero, too small and too large values count in the outer ones."""
    with np.errstate(divide="ignore"):
        powers = np.clip(np.floor(np.log2(over_mean)), BIN_LEAST, BIN_MOST)
    return np.bincount(powers.astype(np.int64) - BIN_LEAST, minlength=BIN_MOST - BIN_LEAST + 1)


def _drift(drift: Mapping[int, PartitionDrift]) -> Iterator[Family]:
    yield family_of(m.SCORE_DRIFT_BLOCKS, [((str(p),), each.shares.blocks) for p, each in drift.items()])
    shares = {str(p): (each.shares.baseline_mean, each.found) for p, each in drift.items() if each.found is not None}
    roots = {str(p): (each.roots.baseline_mean, each.turned) for p, each in drift.items() if each.turned is not None}
    for compared, values in ((shares, OF_SHARES), (roots, OF_ANGLES)):
        for metric, value in values.items():
            yield family_of(metric, [((p,), value(*each)) for p, each in compared.items()])


OF_SHARES: Mapping[m.Metric, Callable[[float, Significance], float]] = {
    m.SCORE_DRIFT_BASELINE: lambda mean, _: mean,
    m.SCORE_DRIFT_OUTSIDE: lambda mean, found: mean + found.change,
    m.SCORE_DRIFT_LOWER: lambda _, found: found.lower,
    m.SCORE_DRIFT_UPPER: lambda _, found: found.upper,
    m.SCORE_DRIFT_P_VALUE: lambda _, found: found.p_value,
    m.SCORE_DRIFT_SIGNIFICANT: lambda _, found: float(found.significant),
}
"""The value of each metric, by the mean of the baseline and what was found."""

OF_ANGLES: Mapping[m.Metric, Callable[[float, Significance], float]] = {
    m.SCORE_DRIFT_ANGLE_BASELINE: lambda root, _: angle_of(root),
    m.SCORE_DRIFT_ANGLE: lambda root, found: angle_of(root + found.change),
    m.SCORE_DRIFT_ANGLE_LOWER: lambda root, found: angle_of(root + found.lower),
    m.SCORE_DRIFT_ANGLE_UPPER: lambda root, found: angle_of(root + found.upper),
    m.SCORE_DRIFT_ANGLE_P_VALUE: lambda _, found: found.p_value,
    m.SCORE_DRIFT_ANGLE_SIGNIFICANT: lambda _, found: float(found.significant),
}
