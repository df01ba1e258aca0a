"""One sketch of all partitions that says which partitions it has, of how many, and how old each is."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from scipy.sparse.linalg import LinearOperator

from sfd_stream.errors import NoSnapshotError, UnmergeableError
from sfd_stream.sketch.drift import Drift
from sfd_stream.sketch.features import Features
from sfd_stream.sketch.intervals import Interval
from sfd_stream.sketch.rows import Float
from sfd_stream.sketch.scoring.score import Scorer
from sfd_stream.sketch.sketch import PCA, HasSketch, Sketch, coordinates
from sfd_stream.wire.columns import HashedColumns
from sfd_stream.wire.features import FeatureMap
from sfd_stream.wire.sketch_files import load_snapshot, save_snapshot, sketch_in
from sfd_stream.wire.snapshot_ids import Part, SnapshotId
from sfd_stream.wire.snapshots import Snapshot


@dataclass(frozen=True, eq=False)
class MergedSketch:
    """One sketch of all partitions, which answers what a `Sketch` answers, for `sketch`.

    `parts` are the snapshots in it, `missing` names the partitions without one: empty when it is complete. The examples
    of the methods continue this one:

    >>> from sfd_stream import SnapshotReader
    >>> with SnapshotReader("localhost:9092", "sketches") as reader:
    ...     sketch = reader.merged()
    >>> sketch
    MergedSketch(all 1 partitions; oldest ... s; Sketch(ell=4, d=1,024, rows=9, ...))
    """

    sketch: Sketch
    parts: tuple[Part, ...]
    missing: tuple[str, ...]
    names: Mapping[int, str]
    columns: str
    hash_seed: int | None
    read_at_s: float
    dtype: str = "float64"

    def __repr__(self) -> str:
        held, whole = len(self.parts), len(self.parts) + len(self.missing)
        some = ", ".join(self.missing[:4]) + (", ..." if len(self.missing) > 4 else "")
        state = f"all {whole} partitions" if self.complete else f"INCOMPLETE: {held} of {whole} partitions, no {some}"
        return f"MergedSketch({state}; oldest {max(self.ages_s.values()):.0f} s; {self.sketch!r})"

    @property
    def complete(self) -> bool:
        """Whether every partition is in it."""
        return not self.missing

    @property
    def partitions(self) -> tuple[str, ...]:
        """`topic/partition` of all that is in it."""
        return tuple(self.ages_s)

    @property
    def ages_s(self) -> dict[str, float]:
        """Seconds from a part's making to this reading, by `topic/partition`."""
        labels = _labels(self.parts)
        return {labels(part): max(self.read_at_s - part.made_at_s, 0.0) for part in self.parts}

    # What a Sketch answers

    @property
    def d(self) -> int:
        """The number of columns."""
        return self.sketch.d

    @property
    def k_max(self) -> int:
        """The largest k that can be asked for."""
        return self.sketch.k_max

    @property
    def rows(self) -> int:
        """The number of rows, exactly."""
        return self.sketch.rows

    @property
    def nnz(self) -> int:
        """The number of non-zeros, exactly."""
        return self.sketch.nnz

    @property
    def squared_frobenius(self) -> float:
        """The sum of all squared values, ||A||F^2."""
        return self.sketch.squared_frobenius

    @property
    def matrix(self) -> Float:
        """B, the sketch's matrix (at most ell x d)."""
        return self.sketch.matrix

    @property
    def ell(self) -> int:
        """The most rows that B may have."""
        return self.sketch.ell

    @property
    def column_sums(self) -> Float | None:
        """The sum of each column; None where the snapshots were published without them."""
        return self.sketch.column_sums

    @property
    def weight(self) -> float:
        """The number of rows, less where old rows count less."""
        return self.sketch.weight

    @property
    def shrinks(self) -> int:
        """How often rows were shrunk."""
        return self.sketch.shrinks

    @property
    def delta(self) -> float:
        """The certified error: no eigenvalue of A'A - B'B exceeds it."""
        return self.sketch.delta

    @property
    def failure_probability(self) -> float:
        """The probability with which delta may not hold."""
        return self.sketch.failure_probability

    @property
    def rounding(self) -> float:
        """How far below 0 rounding may bring an eigenvalue of A'A - B'B."""
        return self.sketch.rounding

    @property
    def mean(self) -> Float:
        """The rows' exact (weighted) mean."""
        return self.sketch.mean

    @property
    def total_variance(self) -> float:
        """The sum of the variances of all columns."""
        return self.sketch.total_variance

    def singular_values(self, k: int | None = None) -> Float:
        return self.sketch.singular_values(k)

    def components(self, k: int | None = None) -> Float:
        return self.sketch.components(k)

    def project(self, X: Any, k: int | None = None) -> Float:
        """Rows of X in the coordinates of the k strongest directions (not centred).

        Where columns grow, rows may be narrower than the sketch, as from before it grew: they are zero in the rest.

        >>> abs(sketch.project([{"sun": 1}, {"moon": 1}], 2)).round(2).tolist()
        [[0.89, 0.0], [0.0, 0.89]]
        """
        return coordinates(X, self.components(k), self.features, growing=self.columns == "growing")

    def explained(self, k: int) -> Interval:
        return self.sketch.explained(k)

    def covariance(self, i: int | str, j: int | str) -> Interval:
        return self.sketch.covariance(i, j)

    def gram(self) -> LinearOperator:
        return self.sketch.gram()

    def pca(self, k: int) -> PCA:
        return self.sketch.pca(k)

    def drift(self, other: Sketch | HasSketch, k: int) -> Drift:
        return self.sketch.drift(other, k)

    def scorer(self, k: int | None = None, centred: bool = True, *, growing: bool | None = None) -> Scorer:
        """A basis of the k strongest directions that scores rows, as of `Sketch.scorer`.

        Where columns grow, rows may have fewer or more columns than the sketch, unless `growing` is False.

        >>> sketch.scorer().score([{"sun": 2, "sea": 1}, {"sun": 2, "rain": 9}]).residual_share.round(2).tolist()
        [0.0, 0.99]
        """
        return self.sketch.scorer(k, centred, growing=self.columns == "growing" if growing is None else growing)

    # Sketches made of it: of which partitions they are, they do not know

    def merge(self, other: Sketch | HasSketch) -> Sketch:
        return self.sketch.merge(other)

    def resized(self, ell: int) -> Sketch:
        return self.sketch.resized(ell)

    def padded(self, d: int) -> Sketch:
        return self.sketch.padded(d)

    def astype(self, dtype: Any) -> Sketch:
        return self.sketch.astype(dtype)

    # In a file

    def save(self, file: str | os.PathLike[str]) -> None:
        """Write the sketch to a file, with its partitions and names. `load` and `Sketch.load` read it.

        >>> sketch.save("days.sketch")
        """
        first = self.parts[0].id
        own = SnapshotId(first.cluster, "saved", first.topic, 0, 1, 1)
        dtype = "float32" if self.sketch.matrix.dtype == np.float32 else "float64"
        save_snapshot(replace(snapshot_of_merge(self, own, self.read_at_s), dtype=dtype), file)

    @classmethod
    def load(cls, file: str | os.PathLike[str], *, max_bytes: int | None = None) -> MergedSketch:
        """The merged sketch that `save` has written, with the ages that its parts had then.

        FormatError if the file holds none, is damaged, or would need more than `max_bytes` (1 GiB if not given).

        >>> from sfd_stream import MergedSketch
        >>> sketch.save("days.sketch")
        >>> MergedSketch.load("days.sketch").partitions
        ('rows/0',)
        """
        found = load_snapshot(file, max_bytes)
        return replace(merge([found], found.made_at_s), sketch=sketch_in(found))

    # By name

    @property
    def features(self) -> Features | None:
        """What the columns stand for, where they have names."""
        return self.sketch.features

    @property
    def mapping(self) -> FeatureMap | None:
        """How records became features, where rows were records."""
        return self.features.mapping if isinstance(self.features, HashedColumns) else None

    def name(self, column: int) -> str:
        return self.sketch.name(column)

    def components_by_name(self, k: int | None = None, *, centre: bool = False) -> Float:
        return self.sketch.components_by_name(k, centre=centre)

    def by_name(self, components: Float) -> Float:
        return self.sketch.by_name(components)

    def top(self, k: int | None = None, columns: int = 10, *, centre: bool = False) -> list[list[tuple[str, float]]]:
        return self.sketch.top(k, columns, centre=centre)

    def to_table(self, k: int | None = None, top: int | None = None, *, centre: bool = False) -> dict[str, Any]:
        return self.sketch.to_table(k, top, centre=centre)

    def to_frame(self, k: int | None = None, top: int | None = None, *, centre: bool = False) -> Any:
        return self.sketch.to_frame(k, top, centre=centre)


def snapshot_of_merge(merged: MergedSketch, snapshot_id: SnapshotId, made_at_s: float) -> Snapshot:
    """As a snapshot of one partition of one: what is below it stands in its parts. As wide as its widest part."""
    return Snapshot(
        id=snapshot_id,
        partitions=1,
        next_offset=0,
        made_at_s=made_at_s,
        sketch=merged.sketch,
        columns=merged.columns,
        hash_seed=merged.hash_seed,
        names=merged.names,
        mapping=merged.mapping,
        merged_from=merged.parts,
        dtype=merged.dtype,
    )


MISSING_MAX = 1_000_000
"""The most partitions that are named as missing."""


for _name, _answer in vars(MergedSketch).items():
    # What a Sketch answers is documented there; help() shows it here too.
    if not _name.startswith("_") and callable(getattr(Sketch, _name, None)) and not _answer.__doc__:
        _answer.__doc__ = getattr(Sketch, _name).__doc__


def merge(
    snapshots: Sequence[Snapshot], read_at_s: float, *, ell: int | None = None, max_bytes: int | None = None
) -> MergedSketch:
    """All of them as one, narrower ones padded with zero columns. UnmergeableError where that would not add up.

    `max_bytes` is what the padded ones may take in memory.
    """
    if not snapshots:
        raise NoSnapshotError("there is no snapshot to merge")
    _check_meaning(snapshots)
    parts = tuple(part for snapshot in snapshots for part in snapshot.parts)
    _check_rows_once(parts)
    d = max(snapshot.sketch.d for snapshot in snapshots)
    _check_padding(snapshots, d, max_bytes)
    try:
        sketch = Sketch.merge_all(snapshot.sketch.padded(d) for snapshot in snapshots)
    except OverflowError as error:
        raise UnmergeableError(f"the sketches can't be merged: {error}") from error
    names: dict[int, str] = {}
    for snapshot in reversed(snapshots):  # the first to name a column keeps it
        names.update(snapshot.names)
    columns, seed = snapshots[0].columns, snapshots[0].hash_seed
    if columns == "hashed" and seed is not None:
        sketch = replace(sketch, features=HashedColumns(d, seed, names=names, mapping=snapshots[0].mapping).known())
    return MergedSketch(
        sketch=sketch if ell is None else sketch.resized(ell),
        parts=parts,
        missing=_missing(parts),
        names=names,
        columns=columns,
        hash_seed=seed,
        read_at_s=read_at_s,
        dtype="float32" if all(snapshot.dtype == "float32" for snapshot in snapshots) else "float64",
    )


def _check_meaning(snapshots: Sequence[Snapshot]) -> None:
    first = snapshots[0]
    for other in snapshots[1:]:
        if other.meaning != first.meaning:
            raise UnmergeableError(
                f"the columns of {other.id.key} ({_words(other)}) do not mean what those of {first.id.key} "
                f"({_words(first)}) mean: they can't be merged; choose one group by group=, or take latest()"
            )


def _check_padding(snapshots: Sequence[Snapshot], d: int, max_bytes: int | None) -> None:
    """One snapshot of very many columns makes all others as wide."""
    needed = sum(8 * d * (len(each.sketch.matrix) + 1) for each in snapshots if each.sketch.d < d)
    if max_bytes is not None and needed > max_bytes:
        widest = max(snapshots, key=lambda each: each.sketch.d)
        raise UnmergeableError(
            f"merging to the {d:,} columns of {widest.id.key} needs {needed:,} bytes of memory, more than the "
            f"{max_bytes:,} that the reader allows; choose one group by group=, or raise max_total_bytes"
        )


def _words(snapshot: Snapshot) -> str:
    seed = f", hash seed {snapshot.hash_seed}" if snapshot.hash_seed is not None else ""
    mapped = "" if snapshot.mapping is None else f", input.features {snapshot.mapping.described()}"
    return f"{snapshot.columns}{seed}, d = {snapshot.sketch.d}{mapped}"


def _check_rows_once(parts: Iterable[Part]) -> None:
    """Rows of one partition must not count twice: two groups that sketch a topic, or a merge beside its own parts."""
    seen: dict[Any, Part] = {}
    for part in parts:
        twin = seen.setdefault(part.id.rows_of, part)
        if twin is not part:
            raise UnmergeableError(
                f"{part.id.key} and {twin.id.key} are sketches of the same rows, which would count twice: "
                "choose one group by group="
            )


def _missing(parts: Iterable[Part]) -> tuple[str, ...]:
    """Of every topic that has a part, the partitions without one; the newest part knows best how many there are."""
    parts = tuple(parts)
    topics: dict[tuple[Any, ...], list[Part]] = {}
    for part in parts:
        topics.setdefault((part.id.cluster, part.id.group, part.id.topic, part.id.window), []).append(part)
    counts = {key: max(part.partitions for part in of_topic) for key, of_topic in topics.items()}
    if (whole := sum(counts.values()) - len(parts)) > MISSING_MAX:
        most = topics[max(counts, key=lambda key: counts[key])][0]
        raise UnmergeableError(
            f"{whole:,} partitions are missing, more than a topic has: {most.id.key} says that there are "
            f"{most.partitions:,}; choose one group by group="
        )
    label = _label_of(parts)
    missing = []
    for key, of_topic in topics.items():
        held = {part.id.partition for part in of_topic}
        missing += [label(of_topic[0], p) for p in range(counts[key]) if p not in held]
    return tuple(missing)


def _labels(parts: Iterable[Part]) -> Any:
    label = _label_of(parts)
    return lambda part: label(part, part.id.partition)


def _label_of(parts: Iterable[Part]) -> Any:
    """`topic/partition`; with the cluster before it where one topic's name stands for several."""
    clusters: dict[str, set[Any]] = {}
    for part in parts:
        clusters.setdefault(part.id.topic, set()).add(part.id.cluster)

    def label(part: Part, partition: int) -> str:
        several = len(clusters[part.id.topic]) > 1
        window = "" if part.id.window is None else f"@{part.id.window}"
        return f"{part.id.cluster}:" * several + f"{part.id.topic}/{partition}{window}"

    return label
