"""Merges the sketches of all partitions into one, which names its partitions, their ages, and the missing ones."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from functools import cached_property
from typing import Any

import numpy as np

from sfd_stream.errors import NoSnapshotError, UnmergeableError
from sfd_stream.sketch.rows import Float
from sfd_stream.sketch.scoring.score import Scorer
from sfd_stream.sketch.sketch import Sketch, coordinates
from sfd_stream.wire.columns import HashedColumns
from sfd_stream.wire.features import FeatureMap
from sfd_stream.wire.sketch_files import load_snapshot, save_snapshot, sketch_in
from sfd_stream.wire.snapshot_ids import SnapshotId, SnapshotPart
from sfd_stream.wire.snapshots import Snapshot


@dataclass(frozen=True, eq=False, repr=False, kw_only=True)
class MergedSketch(Sketch):
    """One sketch of all partitions that knows which partitions it has.

    `parts` are the snapshots in it, `missing` names the partitions without one: empty when it is complete. The examples
    of the methods continue this one:

    >>> from sfd_stream import SnapshotReader
    >>> with SnapshotReader("localhost:9092", "sketches") as reader:
    ...     sketch = reader.merged()
    >>> sketch
    MergedSketch(all 1 partitions; oldest ... s; Sketch(ell=4, d=1,024, rows=9, ...))
    """

    parts: tuple[SnapshotPart, ...]
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
        label = _label_of(self.parts)
        return {label(p, p.id.partition): max(self.read_at_s - p.made_at_s, 0.0) for p in self.parts}

    @cached_property
    def sketch(self) -> Sketch:
        """The same without its partitions."""
        return self._derived()

    # Queries of a Sketch that also accept rows with fewer columns, if columns grow

    def project(self, X: Any, k: int | None = None) -> Float:
        """Rows of X in the coordinates of the k strongest directions (not centred).

        Where columns grow, rows may be narrower than the sketch, as from before it grew: they are zero in the rest.

        >>> abs(sketch.project([{"sun": 1}, {"moon": 1}], 2)).round(2).tolist()
        [[0.89, 0.0], [0.0, 0.89]]
        """
        return coordinates(X, self.components(k), self.features, growing=self.columns == "growing")

    def scorer(self, k: int | None = None, centred: bool = True, *, growing: bool | None = None) -> Scorer:
        """A basis of the k strongest directions that scores rows, as of `Sketch.scorer`.

        Where columns grow, rows may have fewer or more columns than the sketch, unless `growing` is False.

        >>> sketch.scorer().score([{"sun": 2, "sea": 1}, {"sun": 2, "rain": 9}]).residual_share.round(2).tolist()
        [0.0, 0.99]
        """
        return self.sketch.scorer(k, centred, growing=self.columns == "growing" if growing is None else growing)

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
        return replace(merge([found], found.made_at_s), **_values(sketch_in(found)))

    # By name

    @property
    def mapping(self) -> FeatureMap | None:
        """How records became features, where rows were records."""
        return self.features.mapping if isinstance(self.features, HashedColumns) else None


def snapshot_of_merge(merged: MergedSketch, snapshot_id: SnapshotId, made_at_s: float) -> Snapshot:
    """The merged sketch as a snapshot of partition 0 of 1, as wide as its widest part. Its parts list the inputs."""
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
"""Maximum number of partitions that are listed as missing."""


def read_later(merged: MergedSketch, read_at_s: float) -> MergedSketch:
    """The same sketch, read at a later time. Only the ages differ; the arrays are shared."""
    later = replace(merged, read_at_s=read_at_s)
    vars(later)["sketch"] = merged.sketch
    return later


def _values(sketch: Sketch) -> dict[str, Any]:
    """The fields that every sketch has."""
    return {field.name: getattr(sketch, field.name) for field in fields(Sketch)}


def merge(
    snapshots: Sequence[Snapshot], read_at_s: float, *, ell: int | None = None, max_bytes: int | None = None
) -> MergedSketch:
    """Merges the snapshots into one sketch. UnmergeableError if their columns differ in meaning or they share rows.

    Narrower sketches are padded with zero columns; `max_bytes` limits the memory of that.
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
    for snapshot in reversed(snapshots):  # the first name of a column is kept
        names.update(snapshot.names)
    first = snapshots[0]
    sketch = replace(sketch, features=replace(first, names=names).features)
    return MergedSketch(
        **_values(sketch if ell is None else sketch.resized(ell)),
        parts=parts,
        missing=_missing(parts),
        names=names,
        columns=first.columns,
        hash_seed=first.hash_seed,
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
    """Limits the memory of padding: one snapshot with very many columns makes all others as wide."""
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


def _check_rows_once(parts: Iterable[SnapshotPart]) -> None:
    """Refuses parts that count rows twice: two groups that sketch one topic, or a merge together with its own parts."""
    seen: dict[Any, SnapshotPart] = {}
    for part in parts:
        twin = seen.setdefault(part.id.rows_of, part)
        if twin is not part:
            raise UnmergeableError(
                f"{part.id.key} and {twin.id.key} are sketches of the same rows, which would count twice: "
                "choose one group by group="
            )


def _missing(parts: Iterable[SnapshotPart]) -> tuple[str, ...]:
    """The partitions without a part, of every topic that has one. The newest part has the number of partitions."""
    parts = tuple(parts)
    topics: dict[tuple[Any, ...], list[SnapshotPart]] = {}
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


def _label_of(parts: Iterable[SnapshotPart]) -> Any:
    """`topic/partition`, after the cluster if several clusters have a topic of that name."""
    clusters: dict[str, set[Any]] = {}
    for part in parts:
        clusters.setdefault(part.id.topic, set()).add(part.id.cluster)

    def label(part: SnapshotPart, partition: int) -> str:
        several = len(clusters[part.id.topic]) > 1
        window = "" if part.id.window is None else f"@{part.id.window}"
        return f"{part.id.cluster}:" * several + f"{part.id.topic}/{partition}{window}"

    return label
