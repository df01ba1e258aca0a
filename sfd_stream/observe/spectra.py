"""Samples the sketches while they grow: spectrum, strongest columns, drift. Sampling does not change a state.

A sample of a state with rows in its buffer costs about one shrink. So samples are taken one at a time, in the
background, with a pause after each: all of them together take at most a small share of one core.
"""

from __future__ import annotations

from collections import ChainMap
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future
from dataclasses import dataclass
from typing import Any, NamedTuple, TypeAlias, cast

import numpy as np

from sfd_stream.observe.status import ColumnWeight, SpectrumStatus, rounded
from sfd_stream.sketch.builder import SketchBuilder
from sfd_stream.sketch.drift import Spectrum as Values
from sfd_stream.sketch.drift import mean_squared_sine, tilt
from sfd_stream.sketch.rows import Float
from sfd_stream.sketch.sketch import Sketch, at_most
from sfd_stream.state.partition import PartitionState
from sfd_stream.wire.columns import Columns, HashedColumns
from sfd_stream.wire.hashing import signed_columns

Compute: TypeAlias = Callable[..., "Future[Any]"]
"""Runs a function in the background: `Executor.submit`, or a computation that the exit waits for."""

EVERY_S = 2.0
SHARE_MAX = 0.05
"""Maximum share of one core for all samples together."""

VALUES_MAX = 64
"""Number of singular values published for a partition."""

DIRECTIONS, COLUMNS = 5, 7
NAME_CHARS = 80
DRIFT_K = 5
MERGE_BYTES_MAX = 64 * 2**20
"""Sketches that are larger than this together are not merged for the page. `sfd-stream merge` merges them."""


@dataclass(frozen=True, eq=False)
class Names:
    """The known names of hashed columns, and the seed of the hash, which gives each name its sign."""

    by_column: Mapping[int, str]
    seed: int | None

    @classmethod
    def of(cls, columns: Columns) -> Names:
        return cls(columns.names, columns.seed) if isinstance(columns, HashedColumns) else cls({}, None)

    def signs(self, columns: Sequence[int], d: int) -> Float:
        """The signs of these columns' names; 1 if the name is unknown or truncated."""
        texts = [self.by_column.get(column, "") for column in columns]
        if self.seed is None:
            return np.ones(len(texts))
        found, signs = signed_columns(texts, d, self.seed)
        return np.where([bool(text) for text in texts] & (found == columns), signs, 1.0)


@dataclass(frozen=True, eq=False)
class StateSample:
    """A state at one moment. The sketch thread copies or shares its arrays, so that another thread can sample it."""

    builder: SketchBuilder
    names: Names

    @classmethod
    def of(cls, state: PartitionState) -> StateSample:
        builder = state.builder
        return cls(SketchBuilder.resume(builder.parameters, *builder.state()), Names.of(state.columns))


@dataclass(frozen=True, eq=False)
class SpectrumSample:
    spectrum: SpectrumStatus
    sketch: Sketch | None
    """Kept for the merged view, if there is room."""
    names: Names


class Top(NamedTuple):
    """The first directions of a sketch, from which drift is measured."""

    directions: Float
    tilts: tuple[float, ...]
    """By number of directions: the maximum angle in radians between their span and that of the rows' own directions."""

    @classmethod
    def of(cls, sketch: Sketch, values: Float, directions: Float) -> Top:
        spectrum = Values(values, directions, sketch.delta + sketch.rounding, sketch.failure_probability)
        return cls(directions, tuple(tilt(spectrum, k) for k in range(1, len(directions) + 1)))


@dataclass(frozen=True, eq=False)
class _Reference:
    at_s: float
    top: Top
    drift: float | None
    angle: tuple[float, float] | None
    """The largest angle and its error, in degrees."""


class SpectrumSampler:
    """The loop calls `consider` once a second. `fields` and `merged` have the last samples.

    Sketches of published snapshots are passed to `offer`. They cost no shrink, so they are sampled first, and drift is
    measured from one snapshot to the next. Without snapshots it is measured between samples `drift_every_s` apart.
    """

    def __init__(
        self,
        compute: Compute,
        clock: Callable[[], float],
        wall_clock: Callable[[], float],
        *,
        drift_every_s: float | None = None,
    ) -> None:
        self.merged: SpectrumStatus | None = None
        self._compute = compute
        self._clock = clock
        self._wall_clock = wall_clock
        self._drift_every_s = drift_every_s
        self._united: frozenset[int] = frozenset()
        self._samples: dict[int, SpectrumSample] = {}
        self._references: dict[int, _Reference] = {}
        self._given: dict[int, tuple[Sketch, Names]] = {}
        self._job: Future[None] | None = None
        self._copying: tuple[int, Future[StateSample]] | None = None
        self._rest_until_s = 0.0

    def fields(self, partition: int) -> dict[str, Any]:
        """The fields of a partition's status that come from its last samples."""
        sample, reference = self._samples.get(partition), self._references.get(partition)
        degrees, error_degrees = (reference and reference.angle) or (None, None)
        return {
            "spectrum": sample and sample.spectrum,
            "drift": reference and reference.drift,
            "drift_degrees": degrees,
            "drift_error_degrees": error_degrees,
        }

    def offer(self, partition: int, sketch: Sketch, columns: Columns) -> None:
        """Takes the sketch of a snapshot. Any thread may call it. The memory for waiting sketches is limited.

        If there is no room for a sketch, only its first directions are kept, from which drift is measured.
        """
        self._given.pop(partition, None)
        waiting = sum(given.matrix.nbytes for given, _ in list(self._given.values()))
        if waiting + sketch.matrix.nbytes <= MERGE_BYTES_MAX:
            self._given[partition] = sketch, Names.of(columns)
        else:
            self._set_reference(partition, first_directions(sketch, DRIFT_K))

    def consider(self, rows: Mapping[int, int], copy_state: Callable[[int], Future[StateSample]]) -> None:
        """Starts to sample the partition with the oldest sample, if one has changed and the pause is over."""
        for known in (self._samples, self._references, self._given):
            for released in list(known.keys() - rows.keys()):
                known.pop(released, None)
        if self._clock() < self._rest_until_s or (self._job is not None and not self._job.done()):
            return
        assigned = tuple(rows)
        if self._copying is not None:
            self._sample_when_copied(assigned)
            return
        changed = [p for p, count in rows.items() if p not in self._samples or self._samples[p].spectrum.rows != count]
        if waiting := list(self._given):
            partition = min(waiting, key=self._sampled_at)
            given = self._given.pop(partition, None)  # None: `offer` is replacing it with a newer one
            if given is not None:
                self._start(assigned, self._sample_sketch, partition, *given)
        elif changed:
            partition = min(changed, key=self._sampled_at)
            self._copying = partition, copy_state(partition)
            self._sample_when_copied(assigned)
        elif self._united != rows.keys():  # a partition was released, and nothing else has changed
            self._start(assigned, self._unite)

    def _sample_when_copied(self, assigned: tuple[int, ...]) -> None:
        """Samples the state if its copy is ready, else at the next call: no thread waits for the sketch thread."""
        assert self._copying is not None
        partition, copying = self._copying
        if not copying.done():
            return
        self._copying = None
        taken = not copying.cancelled() and copying.exception() is None
        if taken and partition in assigned:
            self._start(assigned, self._sample_state, partition, copying.result())

    def _sampled_at(self, partition: int) -> float:
        sample = self._samples.get(partition)
        return sample.spectrum.at_s if sample is not None else 0.0

    def _start(self, assigned: tuple[int, ...], task: Callable[..., None], *args: Any) -> None:
        """Runs the task in the background. After it there is a pause, in proportion to what it cost."""

        def run() -> None:
            began_s = self._clock()
            task(assigned, *args)
            cost_s = self._clock() - began_s
            self._rest_until_s = self._clock() + max(EVERY_S / max(len(assigned), 1), cost_s * (1 / SHARE_MAX - 1))

        self._job = self._compute(run)

    # In the background

    def _sample_state(self, assigned: tuple[int, ...], partition: int, state: StateSample) -> None:
        top = self._set_sample(assigned, partition, state.builder.sketch(), state.names)
        before = self._references.get(partition)
        if self._drift_every_s is not None and (
            before is None or self._clock() - before.at_s >= self._drift_every_s or not _comparable(before.top, top)
        ):
            self._set_reference(partition, top)

    def _sample_sketch(self, assigned: tuple[int, ...], partition: int, sketch: Sketch, names: Names) -> None:
        self._set_reference(partition, self._set_sample(assigned, partition, sketch, names))

    def _set_sample(self, assigned: tuple[int, ...], partition: int, sketch: Sketch, names: Names) -> Top:
        """Stores the sample and returns its first directions. A sketch older than the newest sample is not stored."""
        top = Top.of(sketch, sketch.singular_values(), sketch.components(at_most(DRIFT_K, sketch)))
        before = self._samples.get(partition)
        if before is None or before.spectrum.rows <= sketch.rows:
            room = MERGE_BYTES_MAX // max(len(assigned), 1)
            spectrum = spectrum_of(sketch, names, self._wall_clock())
            self._samples[partition] = SpectrumSample(spectrum, sketch if sketch.matrix.nbytes <= room else None, names)
            self._unite(assigned)
        return top

    def _set_reference(self, partition: int, top: Top) -> None:
        """Measures drift from the last reference. A new state may have fewer columns and is not compared."""
        before, moved, angle = self._references.get(partition), None, None
        if before is not None and _comparable(before.top, top):
            moved, angle = mean_squared_sine(before.top.directions, top.directions), angle_between(before.top, top)
        self._references[partition] = _Reference(self._clock(), top, moved, angle)

    def _unite(self, assigned: tuple[int, ...]) -> None:
        samples = [self._samples.get(partition) for partition in assigned]
        kept = [(sample.sketch, sample.names) for sample in samples if sample is not None and sample.sketch is not None]
        whole = bool(assigned) and len(kept) == len(assigned)  # every partition is sampled and small enough to be kept
        self.merged, self._united = _merged(kept, self._wall_clock()) if whole else None, frozenset(assigned)


def _merged(parts: Sequence[tuple[Sketch, Names]], at_s: float) -> SpectrumStatus:
    d = max(sketch.d for sketch, _ in parts)
    merged = Sketch.merge_all(sketch.padded(d) if sketch.d < d else sketch for sketch, _ in parts)
    names = ChainMap(*(cast("dict[int, str]", each.by_column) for _, each in parts))  # only read
    return spectrum_of(merged, Names(names, parts[0][1].seed), at_s)


def spectrum_of(sketch: Sketch, names: Names, at_s: float) -> SpectrumStatus:
    values = sketch.singular_values()
    kept = int(np.count_nonzero(values > 0))
    directions = tuple(
        _strongest(direction, names) for direction in sketch.components(at_most(DIRECTIONS, sketch))[:kept]
    )
    return SpectrumStatus(
        rows=sketch.rows,
        d=sketch.d,
        ell=sketch.ell,
        singular_values=tuple(rounded(float(value)) for value in values[: min(kept, VALUES_MAX)]),
        kept=kept,
        delta=rounded(sketch.delta),
        squared_frobenius=rounded(sketch.squared_frobenius),
        directions=directions,
        at_s=at_s,
    )


def _strongest(direction: Float, names: Names) -> tuple[ColumnWeight, ...]:
    """The strongest columns as in `Sketch.top`: signs are those of the data, not of the hash; the first is positive."""
    count = min(COLUMNS, len(direction))
    found = np.argpartition(-np.abs(direction), count - 1)[:count]
    found = found[np.argsort(-np.abs(direction[found]), kind="stable")]
    columns = found.tolist()
    weights = direction[found] * names.signs(columns, len(direction))
    weights = weights if weights[0] >= 0 else -weights
    return tuple(
        ColumnWeight(column, _short(names.by_column.get(column)), rounded(weight))
        for column, weight in zip(columns, weights.tolist(), strict=True)
        if weight != 0
    )


def _short(name: str | None) -> str | None:
    return name if name is None or len(name) <= NAME_CHARS else name[: NAME_CHARS - 1] + "…"


def first_directions(sketch: Sketch, k: int) -> Top:
    """The same as `Sketch.components`, from the Gram matrix of B's rows: less work, no copy of a large sketch."""
    matrix = sketch.matrix
    squares, turns = np.linalg.eigh(matrix @ matrix.T)
    first = [index for index in range(len(squares) - 1, -1, -1) if squares[index] > 1e-12 * squares[-1]][:k]
    directions = np.asarray(turns[:, first].T @ matrix / np.sqrt(squares[first])[:, None])
    return Top.of(sketch, np.sqrt(np.maximum(squares[::-1], 0.0)), directions)


def _comparable(before: Top, after: Top) -> bool:
    return bool(before.directions.shape[1] <= after.directions.shape[1])


def angle_between(before: Top, after: Top) -> tuple[float, float] | None:
    """The same as `Sketch.drift`: the largest principal angle and its error, in degrees. None without directions."""
    V, W = before.directions, after.directions
    k = min(len(V), len(W))
    if k == 0:
        return None
    V, W = np.pad(V[:k], ((0, 0), (0, W.shape[1] - V.shape[1]))), W[:k]
    cosines = W @ V.T
    rest = W - cosines @ V  # its norm is the largest sine, which is exact where the angle is small
    angle = np.arctan2(np.sqrt(np.linalg.norm(rest @ rest.T, 2)), np.linalg.svd(cosines, compute_uv=False)[-1])
    error = min(before.tilts[k - 1] + after.tilts[k - 1], np.pi / 2)
    return rounded(float(np.degrees(angle))), rounded(float(np.degrees(error)))
