"""One partition's state: its sketch, the rows not yet shrunk, and the offset up to which both count.

Reading never mutates. `freeze` copies nothing large: arrays are replaced, never changed in place.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from typing import Any

from sfd_stream.errors import FormatError
from sfd_stream.sketch.buffer import joined
from sfd_stream.sketch.builder import Parameters, SketchBuilder
from sfd_stream.sketch.rows import Float, RowBlock
from sfd_stream.sketch.sketch import Sketch, widened
from sfd_stream.state.manifest import BlobRef, Manifest
from sfd_stream.state.protocol import NewState
from sfd_stream.wire.columns import Columns, GrowingColumns, HashedColumns
from sfd_stream.wire.frames import decode_arrays, encode_arrays
from sfd_stream.wire.rows.decode import DecodedBatch

SEGMENTS_MAX = 32
"""If the buffer has more segments than this, they are rewritten as one, so that manifests stay small."""

ENTRY_BYTES = 12
"""The size of a buffered non-zero: an int32 and a float64."""


@dataclass(frozen=True)
class Shape:
    """The settings of a partition: the columns with which it begins, and the sketch's parameters."""

    columns: Columns
    parameters: Parameters
    topic_failure_probability: float | None = None
    """The failure probability for the whole topic; `parameters` has the partition's share of it. None in states of
    older versions, whose parameters have no share."""

    def described(self, d: int | None = None) -> dict[str, Any]:
        """Plain values for a manifest. A later run compares them with its own settings."""
        p, columns = self.parameters, self.columns
        mapping = columns.mapping if isinstance(columns, HashedColumns) else None
        described: dict[str, Any] = {} if mapping is None else {"features": mapping.described()}
        if p.column_squares:
            described["column_squares"] = True
        return described | {
            "columns": columns.kind,
            "d": d or columns.d,
            "d_max": columns.d_max if isinstance(columns, GrowingColumns) else None,
            "hash_seed": columns.seed if isinstance(columns, HashedColumns) else None,
            "ell": p.ell,
            "method": p.method,
            "failure_probability": p.failure_probability,
            "topic_failure_probability": self.topic_failure_probability,
            "seed": list(p.seed) if isinstance(p.seed, tuple) else [p.seed],
            "buffer_factor": p.buffer_factor,
            "buffer_entries_max": p.buffer_entries_max,
            "half_life_rows": p.half_life_rows,
        }

    @property
    def d_most(self) -> int:
        """The largest number of columns that it can grow to."""
        return self.columns.d_max if isinstance(self.columns, GrowingColumns) else self.columns.d

    def memory_bytes(self) -> int:
        """The most memory of one partition: sketch, workspace of a shrink, and twice the buffer (once joined)."""
        ell, d = self.parameters.ell, self.d_most
        return 5 * (ell + 6 + self.parameters.column_squares) * d * 8 + 2 * self._entries_most() * ENTRY_BYTES

    def least_bytes(self, d: int) -> int:
        """The least memory that one partition with `d` columns needs when its matrix is full: a shrink holds the old
        matrix and the new one.
        """
        return 2 * self.parameters.ell * d * 8

    def _entries_most(self) -> int:
        """The most non-zeros and rows that the buffer can hold, by the limit that is reached first."""
        d = self.d_most
        capacity = replace(self.parameters, d=d).capacity(0)
        limits = [] if capacity.entries is None else [capacity.entries]
        if capacity.rows is not None:
            nnz = capacity.rows * d
            limits.append(capacity.rows + (nnz if capacity.nnz is None else min(nnz, capacity.nnz)))
        return min(limits)


@dataclass(frozen=True)
class Frozen:
    """The state at one moment. It shares the state's arrays."""

    next_offset: int
    leader_epoch: int | None
    counters: Mapping[str, Any]
    parameters: Mapping[str, Any]
    numbers: Mapping[str, Any]
    arrays: Mapping[str, Float]
    blocks: tuple[RowBlock, ...]
    columns: Columns

    @property
    def names(self) -> tuple[tuple[int, str], ...]:
        return tuple(self.columns.names.items()) if isinstance(self.columns, HashedColumns) else ()


@dataclass(frozen=True)
class Durable:
    """The parts of a state that are already in the store, and their references."""

    B: Float
    shrinks: int
    spent: float
    blocks: int
    names: int
    sketch: BlobRef | None
    buffer: tuple[BlobRef, ...]

    @classmethod
    def of(cls, frozen: Frozen, manifest: Manifest) -> Durable:
        B, shrinks, spent = frozen.arrays["B"], frozen.numbers["shrinks"], frozen.numbers.get("spent", 0.0)
        return cls(B, shrinks, spent, len(frozen.blocks), len(frozen.names), manifest.sketch, manifest.buffer)

    def has_sketch_of(self, frozen: Frozen) -> bool:
        """Whether no shrink (even one with the same array), resize, growth or change of settings came since."""
        numbers = frozen.numbers
        unchanged = self.shrinks == numbers["shrinks"] and self.spent == numbers.get("spent", 0.0)
        return unchanged and self.B is frozen.arrays["B"]


class PartitionState:
    """Takes rows in the order of their offsets. Gives a sketch or a frozen state at any time."""

    def __init__(self, shape: Shape, next_offset: int, leader_epoch: int | None = None) -> None:
        self.shape = shape
        self.columns = shape.columns
        self.builder = SketchBuilder(shape.parameters)
        self.next_offset = next_offset
        self.leader_epoch = leader_epoch
        self.bad = 0
        self.tombstones = 0
        self._whole = True

    @property
    def rows(self) -> int:
        return self.builder.rows

    def apply(self, batch: DecodedBatch, next_offset: int, leader_epoch: int | None, tombstones: int) -> None:
        """Applies a batch of records: rows, what they add to the columns, and the counts of the other records."""
        assert next_offset > self.next_offset, "gaps are legal, going back is not"
        assert self._whole, "a batch before this one failed half-way"
        self._whole = False
        done = 0
        for row, d in batch.growth:
            self._absorb(batch.block.take(done, row))
            self.builder.grow(d)
            done = row
        self._absorb(batch.block.take(done, batch.block.rows) if done else batch.block)
        self.columns = batch.columns
        self.bad += len(batch.bad)
        self.tombstones += tombstones
        self.next_offset, self.leader_epoch = next_offset, leader_epoch
        self._whole = True

    def _absorb(self, block: RowBlock) -> None:
        self.builder.absorb(block if block.d == self.builder.d else replace(block, d=self.builder.d))

    def advance(self, next_offset: int) -> None:
        """Moves over offsets that hold no record for us (control records, compaction)."""
        self.next_offset = max(self.next_offset, next_offset)

    def sketch(self) -> Sketch:
        return self.builder.sketch()

    def counters(self) -> dict[str, Any]:
        builder = self.builder
        return {
            "rows": builder.rows,
            "nnz": builder.nnz,
            "bad": self.bad,
            "tombstones": self.tombstones,
            "shrinks": builder.shrinks,
            "retries": builder.retries,
            "delta": builder.totals.delta,
        }

    def freeze(self) -> Frozen:
        """Everything that is needed to continue from here. A state with half of a batch applied must not be frozen."""
        assert self._whole, "a batch failed half-way"
        numbers, arrays, blocks = self.builder.state()
        return Frozen(
            self.next_offset,
            self.leader_epoch,
            self.counters(),
            self.shape.described(self.builder.d),
            numbers,
            arrays,
            blocks,
            self.columns,
        )


def sketch_of(frozen: Frozen, shape: Shape) -> Sketch:
    """The sketch of a frozen state, with the pending rows: the same that its owner would compute."""
    own = frozen.parameters
    parameters = replace(shape.parameters, d=int(own["d"]), failure_probability=own["failure_probability"])
    return SketchBuilder.resume(parameters, frozen.numbers, frozen.arrays, frozen.blocks).sketch()


def encode(frozen: Frozen, durable: Durable | None) -> NewState:
    """The bytes to write: the rows since the last checkpoint and, after a shrink, the sketch."""
    sketch: bytes | BlobRef | None
    if durable is not None and durable.has_sketch_of(frozen):
        sketch, kept, blocks, names = durable.sketch, durable.buffer, durable.blocks, durable.names
        if len(kept) >= SEGMENTS_MAX:
            kept, blocks, names = (), 0, 0
    else:
        sketch = encode_arrays("sketch", {**frozen.numbers, "names": _names_out(frozen.names)}, frozen.arrays)
        kept, blocks, names = (), 0, len(frozen.names)
    fresh = frozen.blocks[blocks:]
    segment = (_encode_segment(joined(fresh, frozen.parameters["d"]), frozen.names[names:]),) if fresh else ()
    return NewState(
        next_offset=frozen.next_offset,
        leader_epoch=frozen.leader_epoch,
        sketch=sketch,
        buffer=(*kept, *segment),
        counters=frozen.counters,
        parameters=frozen.parameters,
        snapshot=None,
    )


def _encode_segment(block: RowBlock, names: tuple[tuple[int, str], ...]) -> bytes:
    arrays: dict[str, Any] = {"indptr": block.indptr, "indices": block.indices, "values": block.values}
    return encode_arrays("segment", {"d": block.d, "names": _names_out(names)}, arrays)


def _names_out(names: tuple[tuple[int, str], ...]) -> list[list[Any]]:
    return [[column for column, _ in names], [name for _, name in names]]


def restore(
    shape: Shape, manifest: Manifest, sketch: bytes | None, segments: tuple[bytes, ...]
) -> tuple[PartitionState, Durable]:
    """The state that a manifest describes, under today's settings, and the parts of it that are stored already."""
    stored = manifest.parameters
    state = PartitionState(_stored_shape(shape, stored), manifest.next_offset, manifest.leader_epoch)
    names: dict[int, str] = {}
    if sketch is not None:
        read = decode_arrays(sketch, kind="sketch")
        names.update(_names_in(read.numbers))
        # Growing columns may have grown since the sketch's blob was written.
        arrays = {name: widened(array, stored["d"]) for name, array in read.arrays.items()}
        state.builder = SketchBuilder.resume(state.shape.parameters, read.numbers, arrays, ())
    blocks = [_decode_segment(segment, names) for segment in segments]
    state.builder.buffer = type(state.builder.buffer)(blocks)
    state.bad = int(manifest.counters.get("bad", 0))
    state.tombstones = int(manifest.counters.get("tombstones", 0))
    _check_counters(state, manifest)
    if isinstance(state.columns, HashedColumns) and names:
        state.columns = replace(state.columns, names=names)
    durable = Durable.of(state.freeze(), manifest)
    _adapt(state, shape, stored)
    return state, durable


def _stored_shape(shape: Shape, stored: Mapping[str, Any]) -> Shape:
    """The stored settings: the state is loaded with them, then adapted to today's."""
    today = shape.parameters
    then = {field.name: stored[field.name] for field in fields(Parameters) if field.name in stored}
    seed = tuple(then.get("seed", ()))
    then["seed"] = seed if seed and seed != (today.seed,) else today.seed
    return Shape(replace(shape.columns, d=int(stored["d"])), replace(today, **then))


def _adapt(state: PartitionState, shape: Shape, stored: Mapping[str, Any]) -> None:
    """Adapts to other parameters (a smaller ell is one shrink, delta grows by it) or more columns (all zero so far)."""
    builder = state.builder
    wider = max(shape.columns.d, builder.d)
    own = replace(shape.parameters, failure_probability=builder.parameters.failure_probability)
    was_per_partition = stored.get("topic_failure_probability") is None and builder.rows > 0
    same_setting = own.failure_probability == shape.topic_failure_probability
    own = replace(own, d=wider, column_squares=builder.parameters.column_squares)
    if was_per_partition and same_setting and own == builder.parameters:
        # The old setting was for one partition: today's share would be added to it, not replace it.
        own = replace(own, column_squares=shape.parameters.column_squares)
        shape = replace(shape, parameters=own, topic_failure_probability=None)
    builder.change(replace(shape.parameters, d=wider))
    if wider > state.columns.d:
        state.columns = replace(state.columns, d=wider)
    state.shape = shape


def _decode_segment(data: bytes, names: dict[int, str]) -> RowBlock:
    read = decode_arrays(data, kind="segment")
    names.update(_names_in(read.numbers))
    try:
        return RowBlock(read.arrays["indptr"], read.arrays["indices"], read.arrays["values"], int(read.numbers["d"]))
    except KeyError as missing:
        raise FormatError(f"a segment of the buffer lacks {missing}") from missing


def _names_in(numbers: Mapping[str, Any]) -> dict[int, str]:
    columns, names = numbers["names"]
    return dict(zip(columns, names, strict=True))


def _check_counters(state: PartitionState, manifest: Manifest) -> None:
    for name in ("rows", "nnz", "shrinks"):
        stated, found = manifest.counters.get(name, 0), state.counters()[name]
        if stated != found:
            raise FormatError(f"the manifest has {stated} {name}, its blobs have {found}")
