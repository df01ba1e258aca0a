"""One sketch of all partitions that says which partitions it has, of how many, and how old each is."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy.sparse.linalg import LinearOperator

from sfd_stream.errors import NoSnapshotError, UnmergeableError
from sfd_stream.sketch.drift import Drift
from sfd_stream.sketch.rows import Float
from sfd_stream.sketch.sketch import PCA, HasSketch, Interval, Sketch, signed
from sfd_stream.sketch.tables import frame_of, long_table, strongest
from sfd_stream.wire.hashing import signed_columns
from sfd_stream.wire.snapshot_ids import Part
from sfd_stream.wire.snapshots import Snapshot


@dataclass(frozen=True, eq=False)
class MergedSketch:
    """Answers what a `Sketch` answers, for `sketch`; `missing` is empty when every partition is in it."""

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
        return self.sketch.d

    @property
    def rows(self) -> int:
        return self.sketch.rows

    @property
    def nnz(self) -> int:
        return self.sketch.nnz

    @property
    def squared_frobenius(self) -> float:
        return self.sketch.squared_frobenius

    @property
    def matrix(self) -> Float:
        return self.sketch.matrix

    @property
    def ell(self) -> int:
        return self.sketch.ell

    @property
    def column_sums(self) -> Float | None:
        return self.sketch.column_sums

    @property
    def weight(self) -> float:
        return self.sketch.weight

    @property
    def shrinks(self) -> int:
        return self.sketch.shrinks

    @property
    def delta(self) -> float:
        return self.sketch.delta

    @property
    def failure_probability(self) -> float:
        return self.sketch.failure_probability

    @property
    def rounding(self) -> float:
        return self.sketch.rounding

    @property
    def mean(self) -> Float:
        return self.sketch.mean

    def singular_values(self, k: int | None = None) -> Float:
        return self.sketch.singular_values(k)

    def components(self, k: int | None = None) -> Float:
        return self.sketch.components(k)

    def project(self, X: Any, k: int | None = None) -> Float:
        return self.sketch.project(X, k)

    def explained(self, k: int) -> Interval:
        return self.sketch.explained(k)

    def covariance(self, i: int, j: int) -> Interval:
        return self.sketch.covariance(i, j)

    def gram(self) -> LinearOperator:
        return self.sketch.gram()

    def pca(self, k: int) -> PCA:
        return self.sketch.pca(k)

    def drift(self, other: Sketch | HasSketch, k: int) -> Drift:
        return self.sketch.drift(other, k)

    # Sketches made of it: of which partitions they are, they do not know

    def merge(self, other: Sketch | HasSketch) -> Sketch:
        return self.sketch.merge(other if isinstance(other, Sketch) else other.sketch)

    def resized(self, ell: int) -> Sketch:
        return self.sketch.resized(ell)

    def padded(self, d: int) -> Sketch:
        return self.sketch.padded(d)

    def astype(self, dtype: Any) -> Sketch:
        return self.sketch.astype(dtype)

    # By name

    def name(self, column: int) -> str:
        """The column's name where one is known, else its number."""
        return self.names.get(column, str(column))

    def components_by_name(self, k: int | None = None) -> Float:
        """The components, without the signs that hashing gave to columns: an entry is the weight of the column's name.

        A feature x enters column h(x) with the sign of its hash. The sign of a whole direction means nothing; it is
        chosen so that the largest weight is positive.
        """
        return signed(self.components(k) * self._hash_signs())

    def _hash_signs(self) -> Float:
        """Of every column's name; 1 where there is none, or where it was cut so that its hash is not known."""
        signs = np.ones(self.d)
        if self.hash_seed is not None and self.names:
            columns = np.fromiter(self.names, dtype=np.int64, count=len(self.names))
            found, of_names = signed_columns(list(self.names.values()), self.d, self.hash_seed)
            same = found == columns
            signs[columns[same]] = of_names[same]
        return signs

    def to_table(self, k: int | None = None, top: int | None = None) -> dict[str, Any]:
        """Components by name as a long table: `component` (from 1), `column`, `name`, `weight`; `top` of each, or all.

        The columns of the dict are arrays of one length: `pandas.DataFrame(...)` and `pyarrow.table(...)` take it as
        it is.
        """
        return long_table(self.components_by_name(k), self.name, top)

    def to_frame(self, k: int | None = None, top: int | None = None) -> Any:
        """The same as a pandas.DataFrame; pandas must be installed."""
        return frame_of(self.to_table(k, top))

    def top(self, k: int = 10, columns: int = 10) -> list[list[tuple[str, float]]]:
        """The k strongest directions, each by the names and weights of its strongest columns."""
        found = self.components_by_name(k)
        return [
            [(self.name(int(column)), float(direction[column])) for column in chosen]
            for direction, chosen in zip(found, strongest(found, columns), strict=True)
        ]


def merge(snapshots: Sequence[Snapshot], read_at_s: float, *, ell: int | None = None) -> MergedSketch:
    """All of them as one, narrower ones padded with zero columns. UnmergeableError where that would not add up."""
    if not snapshots:
        raise NoSnapshotError("there is no snapshot to merge")
    _check_meaning(snapshots)
    parts = tuple(part for snapshot in snapshots for part in snapshot.parts)
    _check_rows_once(parts)
    d = max(snapshot.sketch.d for snapshot in snapshots)
    sketch = Sketch.merge_all(snapshot.sketch.padded(d) for snapshot in snapshots)
    names: dict[int, str] = {}
    for snapshot in reversed(snapshots):  # the first to name a column keeps it
        names.update(snapshot.names)
    return MergedSketch(
        sketch=sketch if ell is None else sketch.resized(ell),
        parts=parts,
        missing=_missing(parts),
        names=names,
        columns=snapshots[0].columns,
        hash_seed=snapshots[0].hash_seed,
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


def _words(snapshot: Snapshot) -> str:
    seed = f", hash seed {snapshot.hash_seed}" if snapshot.hash_seed is not None else ""
    return f"{snapshot.columns}{seed}, d = {snapshot.sketch.d}"


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
    label = _label_of(parts)
    missing = []
    for of_topic in topics.values():
        count = max(part.partitions for part in of_topic)
        held = {part.id.partition for part in of_topic}
        missing += [label(of_topic[0], p) for p in range(count) if p not in held]
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
