"""Looks at the sketches while they grow: spectrum, strongest columns, drift. Never in the way, never a change.

A look at a state with pending rows costs about one shrink, so looks take turns, one at a time in the background,
with a rest after each, so that all of them together take at most a small share of one core.
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
"""Calls a function in the background: `Executor.submit`, or a computation that an exit waits for."""

EVERY_S = 2.0
SHARE_MAX = 0.05
"""Of one core, for all looks together."""

VALUES_MAX = 64
"""Number of singular values published for a partition."""

DIRECTIONS, COLUMNS = 5, 7
NAME_CHARS = 80
DRIFT_K = 5
MERGE_BYTES_MAX = 64 * 2**20
"""Sketches larger than this together are not merged for the page; `sfd-stream merge` does that."""


@dataclass(frozen=True, eq=False)
class Names:
    """Of hashed columns: what is known of them, and the seed, by which a name has its sign."""

    by_column: Mapping[int, str]
    seed: int | None

    @classmethod
    def of(cls, columns: Columns) -> Names:
        return cls(columns.names, columns.seed) if isinstance(columns, HashedColumns) else cls({}, None)

    def signs(self, columns: Sequence[int], d: int) -> Float:
        """Of these columns' names; 1 where none is known, or only the beginning of one."""
        texts = [self.by_column.get(column, "") for column in columns]
        if self.seed is None:
            return np.ones(len(texts))
        found, signs = signed_columns(texts, d, self.seed)
        return np.where([bool(text) for text in texts] & (found == columns), signs, 1.0)


@dataclass(frozen=True, eq=False)
class Shot:
    """A state at one moment: arrays shared or copied on the sketching thread, to be looked at elsewhere."""

    builder: SketchBuilder
    names: Names

    @classmethod
    def of(cls, state: PartitionState) -> Shot:
        builder = state.builder
        return cls(SketchBuilder.resume(builder.parameters, *builder.state()), Names.of(state.columns))


@dataclass(frozen=True, eq=False)
class Look:
    spectrum: SpectrumStatus
    sketch: Sketch | None
    """Kept for the merged view, where there is room."""
    names: Names


class Top(NamedTuple):
    """The first directions of a sketch, to measure drift by."""

    directions: Float
    tilts: tuple[float, ...]
    """By their number: at most how far, in radians, their span is from that of the rows' own."""

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
    """The largest, and its error, in degrees."""


class Looker:
    """`consider` once a second from the loop; what was seen last is in `spectra`, `drifts` and `merged`.

    Where snapshots are published their sketches are given to `see`: they cost no shrink, so they come first, and drift
    is from one snapshot to the next. Elsewhere (`drift_every_s`) it is from one look to another so much later.
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
        self._looks: dict[int, Look] = {}
        self._references: dict[int, _Reference] = {}
        self._given: dict[int, tuple[Sketch, Names]] = {}
        self._job: Future[None] | None = None
        self._shooting: tuple[int, Future[Shot]] | None = None
        self._rest_until_s = 0.0

    @property
    def spectra(self) -> Mapping[int, SpectrumStatus]:
        return {partition: look.spectrum for partition, look in list(self._looks.items())}

    @property
    def drifts(self) -> Mapping[int, float | None]:
        return {partition: reference.drift for partition, reference in list(self._references.items())}

    @property
    def angles(self) -> Mapping[int, tuple[float, float]]:
        """By partition: the largest angle of its drift, and how much of it may be the sketches' error, in degrees."""
        known = list(self._references.items())
        return {partition: reference.angle for partition, reference in known if reference.angle is not None}

    def see(self, partition: int, sketch: Sketch, columns: Columns) -> None:
        """A sketch that was made anyway, for a snapshot. From any thread; there is room for a limited number.

        Of one that finds no room the first directions are kept, at once: drift is from one snapshot to the next.
        """
        self._given.pop(partition, None)
        waiting = sum(given.matrix.nbytes for given, _ in list(self._given.values()))
        if waiting + sketch.matrix.nbytes <= MERGE_BYTES_MAX:
            self._given[partition] = sketch, Names.of(columns)
        else:
            self._refer(partition, first_directions(sketch, DRIFT_K))

    def consider(self, rows: Mapping[int, int], shoot: Callable[[int], Future[Shot]]) -> None:
        """Begin a look at the partition that has waited longest, if one has changed and it is time."""
        for known in (self._looks, self._references, self._given):
            for gone in list(known.keys() - rows.keys()):
                known.pop(gone, None)
        if self._clock() < self._rest_until_s or (self._job is not None and not self._job.done()):
            return
        if self._shooting is not None:
            self._look_when_shot(tuple(rows))
            return
        changed = [p for p, count in rows.items() if p not in self._looks or self._looks[p].spectrum.rows != count]
        if waiting := list(self._given):
            partition = min(waiting, key=self._seen_at)
            given = self._given.pop(partition, None)  # None: `see` withdraws it at this moment, to give a newer one
            if given is not None:
                self._job = self._compute(self._look_at, partition, *given, tuple(rows))
        elif changed:
            partition = min(changed, key=self._seen_at)
            self._shooting = partition, shoot(partition)
            self._look_when_shot(tuple(rows))
        elif self._united != rows.keys():  # one has gone, and nothing else has changed
            self._job = self._compute(self._unite_again, tuple(rows))

    def _look_when_shot(self, assigned: tuple[int, ...]) -> None:
        """No thread waits for the sketch thread: a sample that is not ready is taken next time."""
        assert self._shooting is not None
        partition, shooting = self._shooting
        if not shooting.done():
            return
        self._shooting = None
        taken = not shooting.cancelled() and shooting.exception() is None
        if taken and partition in assigned:
            self._job = self._compute(self._look, partition, shooting.result(), assigned)

    def _seen_at(self, partition: int) -> float:
        look = self._looks.get(partition)
        return look.spectrum.at_s if look is not None else 0.0

    # In the background

    def _look(self, partition: int, shot: Shot, assigned: tuple[int, ...]) -> None:
        began_s = self._clock()
        top = self._show(partition, shot.builder.sketch(), shot.names, assigned)
        before = self._references.get(partition)
        if self._drift_every_s is not None and (
            before is None or self._clock() - before.at_s >= self._drift_every_s or not _comparable(before.top, top)
        ):
            self._refer(partition, top)
        self._rest(began_s, assigned)

    def _look_at(self, partition: int, sketch: Sketch, names: Names, assigned: tuple[int, ...]) -> None:
        began_s = self._clock()
        self._refer(partition, self._show(partition, sketch, names, assigned))
        self._rest(began_s, assigned)

    def _show(self, partition: int, sketch: Sketch, names: Names, assigned: tuple[int, ...]) -> Top:
        """Its first directions. A snapshot that is older than the newest sample is not published."""
        top = Top.of(sketch, sketch.singular_values(), sketch.components(at_most(DRIFT_K, sketch)))
        before = self._looks.get(partition)
        if before is None or before.spectrum.rows <= sketch.rows:
            room = MERGE_BYTES_MAX // max(len(assigned), 1)
            spectrum = spectrum_of(sketch, names, self._wall_clock())
            self._looks[partition] = Look(spectrum, sketch if sketch.matrix.nbytes <= room else None, names)
            self._unite(assigned)
        return top

    def _rest(self, began_s: float, assigned: tuple[int, ...]) -> None:
        cost_s = self._clock() - began_s
        self._rest_until_s = self._clock() + max(EVERY_S / max(len(assigned), 1), cost_s * (1 / SHARE_MAX - 1))

    def _refer(self, partition: int, top: Top) -> None:
        """A new state may have fewer columns, and is not compared."""
        before, moved, angle = self._references.get(partition), None, None
        if before is not None and _comparable(before.top, top):
            moved, angle = mean_squared_sine(before.top.directions, top.directions), angle_between(before.top, top)
        self._references[partition] = _Reference(self._clock(), top, moved, angle)

    def _unite_again(self, assigned: tuple[int, ...]) -> None:
        began_s = self._clock()
        self._unite(assigned)
        self._rest(began_s, assigned)

    def _unite(self, assigned: tuple[int, ...]) -> None:
        looks = [self._looks.get(partition) for partition in assigned]
        kept = [(look.sketch, look.names) for look in looks if look is not None and look.sketch is not None]
        whole = bool(assigned) and len(kept) == len(assigned)  # every partition sampled, and small enough to be kept
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
    """With the data's signs, not the hash's, and the first weight above 0: as `Sketch.top` has them."""
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
    """As `Sketch.components`, by the rows' Gram matrix: no second copy of what is too large to keep, and less work."""
    matrix = sketch.matrix
    squares, turns = np.linalg.eigh(matrix @ matrix.T)
    first = [index for index in range(len(squares) - 1, -1, -1) if squares[index] > 1e-12 * squares[-1]][:k]
    directions = np.asarray(turns[:, first].T @ matrix / np.sqrt(squares[first])[:, None])
    return Top.of(sketch, np.sqrt(np.maximum(squares[::-1], 0.0)), directions)


def _comparable(before: Top, after: Top) -> bool:
    return bool(before.directions.shape[1] <= after.directions.shape[1])


def angle_between(before: Top, after: Top) -> tuple[float, float] | None:
    """As `Sketch.drift`: the largest principal angle and its error, in degrees. None where there is no direction."""
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
