"""A partition's state: stopped and restored anywhere it goes on bit for bit; a checkpoint writes only what is new."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sfd_stream.errors import FormatError
from sfd_stream.sketch.builder import BUFFER_ENTRIES_MIN, Parameters
from sfd_stream.sketch.verify import topic_share
from sfd_stream.state.manifest import Binding, BlobRef, Kind, Manifest, StateId, decode_manifest, encode_manifest
from sfd_stream.state.partition import (
    SEGMENTS_MAX,
    Durable,
    Frozen,
    PartitionState,
    Shape,
    encode,
    restore,
    sketch_of,
)
from sfd_stream.state.protocol import plan_checkpoint
from sfd_stream.wire.columns import FixedColumns, GrowingColumns, HashedColumns
from sfd_stream.wire.rows.decode import decode
from sfd_stream.wire.rows.encode import encode_row

D, ELL = 24, 4
BINDING = Binding("cluster", "topic-id", "group", "rows", 0)


def parameters(d: int = D, **changes: Any) -> Parameters:
    return replace(Parameters(d=d, ell=ELL, seed=(3, 0), buffer_entries_max=150), **changes)


SHAPES = {
    "fixed": Shape(FixedColumns(D), parameters()),
    "growing": Shape(GrowingColumns(2, 64), parameters(d=2)),
    "hashed": Shape(HashedColumns(D, seed=5, names_max=20), parameters()),
    "half-life": Shape(FixedColumns(D), parameters(half_life_rows=37.5)),
    "squares": Shape(GrowingColumns(2, 64), parameters(d=2, column_squares=True)),
    "paper": Shape(FixedColumns(D), parameters(method="paper")),
}


def messages(count: int, seed: int, *, hashed: bool = False) -> list[bytes]:
    rng = np.random.default_rng(seed)
    found = []
    for number in range(count):
        columns = np.sort(rng.choice(D, size=rng.integers(0, 5), replace=False))
        values = rng.normal(size=len(columns))
        features = [f"word {column}" for column in columns] if hashed else columns
        found.append(b"bad" if number % 17 == 5 else encode_row(features, values, packed=not hashed))
    return found


def apply(state: PartitionState, values: list[bytes]) -> None:
    state.apply(decode(values, state.columns), state.next_offset + len(values), 7, tombstones=1)


@dataclass
class Shelf:
    """A store for one partition's states, which counts what is written."""

    manifest: Manifest
    blobs: dict[str, bytes] = field(default_factory=dict)
    written: list[dict[str, bytes]] = field(default_factory=list)

    @classmethod
    def empty(cls, shape: Shape) -> Shelf:
        genesis = Manifest(
            number=1,
            epoch=1,
            nonce="n1",
            parent=None,
            kind=Kind.GENESIS,
            binding=BINDING,
            next_offset=0,
            leader_epoch=None,
            sketch=None,
            buffer=(),
            counters={},
            parameters=shape.described(),
            state_id=StateId(1, 1),
            due=None,
            published=None,
            written_at_s=0.0,
        )
        return cls(genesis)

    def write(self, frozen: Frozen, durable: Durable | None) -> Durable:
        new = encode(frozen, durable)
        nonce = f"n{self.manifest.number + 1}"
        made, blobs = plan_checkpoint("p", self.manifest, new, published=None, nonce=nonce, written_at_s=0.0)
        self.blobs |= blobs
        self.written.append(blobs)
        self.manifest = decode_manifest(encode_manifest(made))
        return Durable.of(frozen, self.manifest)

    def read(self, shape: Shape) -> tuple[PartitionState, Durable]:
        def get(ref: BlobRef) -> bytes:
            return self.blobs[ref.key]

        manifest = self.manifest
        sketch = None if manifest.sketch is None else get(manifest.sketch)
        return restore(shape, manifest, sketch, tuple(map(get, manifest.buffer)))


def bits(state: PartitionState) -> dict[str, Any]:
    frozen = state.freeze()
    joined = state.builder.buffer.joined(state.builder.d)
    return {
        "plain": (frozen.next_offset, frozen.leader_epoch, frozen.counters, frozen.parameters, frozen.numbers),
        "names": frozen.names,
        "arrays": {name: array.tobytes() for name, array in frozen.arrays.items()},
        "buffer": [array.tobytes() for array in (joined.indptr, joined.indices, joined.values)],
        "columns": state.columns,
    }


@pytest.mark.parametrize("name", SHAPES)
@given(seed=st.integers(0, 2**16), cuts=st.lists(st.booleans(), min_size=40, max_size=40))
@settings(max_examples=6, deadline=None)
def test_stopped_anywhere_it_goes_on_bit_for_bit(name: str, seed: int, cuts: list[bool]) -> None:
    shape = SHAPES[name]
    stream = messages(400, seed, hashed=name == "hashed")
    straight, broken = PartitionState(shape, 0), PartitionState(shape, 0)
    shelf, durable = Shelf.empty(shape), None
    for number, stop in enumerate(cuts):
        batch = stream[10 * number : 10 * number + 10]
        apply(straight, batch)
        apply(broken, batch)
        durable = shelf.write(broken.freeze(), durable) if stop or number % 3 == 0 else durable
        if stop:
            broken, durable = shelf.read(shape)
            assert bits(broken) == bits(straight)
    assert bits(broken) == bits(straight)
    assert broken.sketch() == straight.sketch()
    assert straight.builder.shrinks > 2


@pytest.mark.parametrize("name", SHAPES)
def test_how_rows_were_batched_leaves_no_trace(name: str) -> None:
    shape, stream = SHAPES[name], messages(300, 1, hashed=name == "hashed")
    one, many = PartitionState(shape, 0), PartitionState(shape, 0)
    apply(one, stream)
    for low in range(0, 300, 7):
        apply(many, stream[low : low + 7])
        many.freeze()
    many.tombstones = one.tombstones
    assert bits(many) == bits(one)


def filled(shape: Shape, rows: int) -> tuple[PartitionState, Shelf, Durable]:
    state, shelf = PartitionState(shape, 0), Shelf.empty(shape)
    apply(state, messages(rows, 2))
    return state, shelf, shelf.write(state.freeze(), None)


def test_between_shrinks_only_new_rows_are_written() -> None:
    shape = Shape(FixedColumns(D), parameters(buffer_entries_max=10**6))
    state, shelf, durable = filled(shape, 100)
    first = shelf.manifest
    apply(state, messages(10, 3))
    shelf.write(state.freeze(), durable)
    (name,) = shelf.written[-1]
    assert "buffer" in name
    assert len(shelf.written[-1][name]) < 2_000
    assert shelf.manifest.sketch == first.sketch
    assert shelf.manifest.buffer[:-1] == first.buffer


def test_after_a_shrink_the_sketch_and_what_is_left_of_the_buffer_are_written() -> None:
    state, shelf, durable = filled(SHAPES["fixed"], 20)
    shrinks = state.builder.shrinks
    while state.builder.shrinks == shrinks:
        apply(state, messages(10, state.next_offset))
    shelf.write(state.freeze(), durable)
    assert {name.rpartition("-")[2] for name in shelf.written[-1]} >= {"sketch"}
    assert len(shelf.manifest.buffer) <= 1


def test_a_shrink_of_nothing_but_zeros_is_not_taken_for_none() -> None:
    shape = SHAPES["fixed"]
    state, shelf = PartitionState(shape, 0), Shelf.empty(shape)
    durable = shelf.write(state.freeze(), None)
    for _ in range(40):
        apply(state, [encode_row([], [])] * 10)
        durable = shelf.write(state.freeze(), durable)
    assert state.builder.shrinks > 1
    assert bits(shelf.read(shape)[0]) == bits(state)


def test_many_segments_become_one_and_nothing_is_lost() -> None:
    shape = Shape(HashedColumns(D, names_max=20), parameters(buffer_entries_max=10**6))
    state, shelf, durable = PartitionState(shape, 0), Shelf.empty(shape), None
    most = 0
    for number in range(3 * SEGMENTS_MAX):
        apply(state, messages(3, number, hashed=True))
        durable = shelf.write(state.freeze(), durable)
        most = max(most, len(shelf.manifest.buffer))
    assert most == SEGMENTS_MAX
    assert bits(shelf.read(shape)[0]) == bits(state)


def test_a_trickle_of_single_rows_does_not_pile_up_as_crumbs() -> None:
    shape = Shape(FixedColumns(D), parameters(buffer_entries_max=10**6))
    state, shelf, durable = PartitionState(shape, 0), Shelf.empty(shape), None
    for number, message in enumerate(messages(1_000, 4)):
        apply(state, [message])
        if number % 100 == 99:
            durable = shelf.write(state.freeze(), durable)
    assert len(state.builder.buffer.blocks) == 10
    assert len(shelf.manifest.buffer) == 10


def test_freezing_copies_nothing_large_and_later_rows_do_not_reach_what_was_frozen() -> None:
    state = PartitionState(SHAPES["fixed"], 0)
    apply(state, messages(200, 5))
    frozen, before = state.freeze(), bits(state)
    assert frozen.arrays["B"] is state.builder.B
    apply(state, messages(200, 6))
    again, shelf = PartitionState(SHAPES["fixed"], 0), Shelf.empty(SHAPES["fixed"])
    shelf.write(frozen, None)
    again, _ = shelf.read(SHAPES["fixed"])
    assert bits(again) == before


@pytest.mark.parametrize("ell", [2, 9])
def test_another_ell_is_adopted_once_and_the_same_way_each_time(ell: int) -> None:
    state, shelf, _ = filled(SHAPES["fixed"], 300)
    other = Shape(FixedColumns(D), parameters(ell=ell))
    one, two = shelf.read(other)[0], shelf.read(other)[0]
    assert bits(one) == bits(two)
    assert one.builder.parameters.ell == ell
    assert len(one.builder.B) <= ell
    assert one.builder.totals.delta >= state.builder.totals.delta
    durable = shelf.read(other)[1]
    apply(one, messages(50, 8))
    shelf.write(one.freeze(), durable)
    assert bits(shelf.read(other)[0]) == bits(one)


def test_other_settings_add_their_failure_probability_to_that_of_the_old_and_it_is_kept() -> None:
    state, shelf, _ = filled(SHAPES["fixed"], 300)
    before = state.sketch().failure_probability
    other = Shape(FixedColumns(D), parameters(failure_probability=0.001))
    changed, durable = shelf.read(other)
    assert changed.sketch().failure_probability == before + 0.001
    changed.advance(changed.next_offset + 1)
    shelf.write(changed.freeze(), durable)  # no shrink since, no new row
    again, _ = shelf.read(other)
    assert bits(again) == bits(changed)
    assert again.sketch().failure_probability == before + 0.001


TOPIC = 0.01
SHARED = Shape(FixedColumns(D), parameters(failure_probability=topic_share(3, TOPIC)), TOPIC)
"""Today's shape of partition 3: its parameters have a share of the topic's failure probability."""


def of_earlier_version(shelf: Shelf) -> None:
    """A manifest of the version in which the setting meant one partition."""
    found = {name: value for name, value in shelf.manifest.parameters.items() if name != "topic_failure_probability"}
    shelf.manifest = replace(shelf.manifest, parameters=found)


def test_a_state_in_which_the_setting_meant_one_partition_keeps_its_own_failure_probability() -> None:
    state, shelf, _ = filled(Shape(FixedColumns(D), parameters(failure_probability=TOPIC)), 300)
    of_earlier_version(shelf)
    for rows in (50, 300):  # through several checkpoints and owners
        found, durable = shelf.read(SHARED)
        assert found.sketch() == state.sketch()
        assert found.sketch().failure_probability == TOPIC
        for one in (state, found):
            apply(one, messages(rows, 8))
        assert sketch_of(found.freeze(), SHARED) == found.sketch() == state.sketch()
        shelf.write(found.freeze(), durable)


def test_such_a_state_takes_its_share_when_a_setting_changes_and_the_old_stays_at_stake() -> None:
    _, shelf, _ = filled(Shape(FixedColumns(D), parameters(failure_probability=TOPIC)), 300)
    of_earlier_version(shelf)
    larger = replace(SHARED, parameters=replace(SHARED.parameters, ell=7))
    assert shelf.read(larger)[0].sketch().failure_probability == TOPIC + topic_share(3, TOPIC)
    stricter = Shape(FixedColumns(D), parameters(failure_probability=topic_share(3, 1e-4)), 1e-4)
    assert shelf.read(stricter)[0].sketch().failure_probability == TOPIC + topic_share(3, 1e-4)


def test_a_state_without_rows_has_nothing_at_stake_and_takes_its_share() -> None:
    shelf = Shelf.empty(Shape(FixedColumns(D), parameters(failure_probability=TOPIC)))
    of_earlier_version(shelf)
    assert shelf.read(SHARED)[0].sketch().failure_probability == topic_share(3, TOPIC)


def test_a_state_of_today_keeps_its_share() -> None:
    state, shelf, _ = filled(SHARED, 300)
    assert shelf.read(SHARED)[0].sketch() == state.sketch()
    assert state.sketch().failure_probability == topic_share(3, TOPIC)


def test_more_columns_are_zero_so_far() -> None:
    state, shelf, _ = filled(SHAPES["fixed"], 300)
    wider, durable = shelf.read(Shape(FixedColumns(D + 9), parameters(d=D + 9)))
    assert wider.sketch().d == D + 9
    assert np.array_equal(wider.sketch().column_sums[:D], state.sketch().column_sums)
    assert wider.rows == state.rows
    shelf.write(wider.freeze(), durable)
    again, _ = shelf.read(Shape(FixedColumns(D + 9), parameters(d=D + 9)))
    assert bits(again) == bits(wider)


def test_blobs_that_are_not_the_manifests_are_refused() -> None:
    _, shelf, _ = filled(SHAPES["fixed"], 300)
    shelf.manifest = replace(shelf.manifest, counters={**shelf.manifest.counters, "rows": 299})
    with pytest.raises(FormatError, match=r"manifest has 299 rows, its blobs have"):
        shelf.read(SHAPES["fixed"])


def test_half_of_a_batch_is_never_frozen() -> None:
    state = PartitionState(SHAPES["fixed"], 0)
    apply(state, messages(20, 9))

    def fail(_: Any) -> int:
        raise MemoryError

    state.builder.absorb = fail  # type: ignore[method-assign]
    with pytest.raises(MemoryError):
        apply(state, messages(20, 10))
    with pytest.raises(AssertionError, match="half-way"):
        state.freeze()
    with pytest.raises(AssertionError, match="half-way"):
        apply(state, messages(20, 11))


def test_going_back_is_a_bug_and_passing_over_is_not() -> None:
    state = PartitionState(SHAPES["fixed"], 100)
    state.advance(90)
    assert state.next_offset == 100
    state.advance(110)
    assert state.next_offset == 110
    with pytest.raises(AssertionError, match="going back"):
        state.apply(decode([], state.columns), 110, None, 0)


def test_memory_is_that_of_the_widest_it_may_become() -> None:
    small, large = Shape(GrowingColumns(2, 64), parameters(d=2)), Shape(GrowingColumns(2, 6400), parameters(d=2))
    assert large.memory_bytes() > 10 * small.memory_bytes()


@pytest.mark.parametrize("method", ["fused", "paper", "sparse-shrink", "dense"])
def test_memory_is_that_of_the_limit_which_fills_the_buffer_first(method: str) -> None:
    """A large buffer_max_bytes costs nothing where non-zeros or rows end the buffer long before."""
    d, ell = 1000, 50
    buffered = [
        Shape(FixedColumns(d), Parameters(d=d, ell=ell, method=method, buffer_entries_max=most)).memory_bytes()
        - 5 * (ell + 6) * d * 8
        for most in (1 << 24, 10_000)
    ]
    entries = {"fused": 4 * ell * d, "dense": 2 * ell * (d + 1)}.get(method, ell * d + d)
    assert buffered[0] == 2 * 12 * max(entries, BUFFER_ENTRIES_MIN if method == "fused" else 0)
    assert buffered[1] == 2 * 12 * (entries if method == "dense" else 10_000)
