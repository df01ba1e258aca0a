"""The newest of each key, and merging, without a broker: laws over any order and any tree."""

from __future__ import annotations

import copy
import itertools
import pickle
import sys
from dataclasses import fields, replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sfd_stream.cli.build import shape_of
from sfd_stream.config import load
from sfd_stream.errors import FormatError, UnmergeableError
from sfd_stream.reader.merged import MergedSketch, merge, read_later
from sfd_stream.reader.newest import Newest
from sfd_stream.sketch.rows import RowBlock
from sfd_stream.sketch.sketch import Sketch
from sfd_stream.state.partition import PartitionState
from sfd_stream.wire.columns import HashedColumns
from sfd_stream.wire.rows.decode import decode
from sfd_stream.wire.rows.encode import encode_row
from sfd_stream.wire.snapshots import Snapshot, decode_snapshot, encode_snapshot
from tests.support.slow import smoke_first
from tests.unit.reader.made import holds, message, rows_of, sketch_of, snapshot

GIVEN = ["kafka.bootstrap.servers=b:1", "kafka.group.id=g", "input.topic=t", "checkpoint.url=memory://x", "sketch.d=12"]


@pytest.mark.parametrize(("setting", "method"), smoke_first([(0.01, "fused"), (1e-6, "paper"), (0.9, "fused")]))
def test_the_merge_of_a_thousand_partitions_fails_no_more_often_than_the_setting_says(
    setting: float, method: str
) -> None:
    overrides = [*GIVEN, f"sketch.failure_probability={setting}", f"sketch.method={method}", "sketch.ell=4"]
    configured = load(None, environ={}, overrides=overrides).settings
    block = RowBlock.from_csr(rows_of(0, n=20))
    snapshots = []
    for partition in range(1000):
        state = PartitionState(shape_of(configured, partition), 0)
        state.builder.absorb(block)
        snapshots.append(snapshot(state.sketch(), partition, partitions=1000))
    merged = merge(snapshots, 0.0)
    assert merged.complete
    assert 0.99 * setting < merged.failure_probability <= setting
    assert merge(snapshots[:1], 0.0).failure_probability < setting


def test_the_failure_probabilities_of_two_topics_add_up() -> None:
    sketch = replace(sketch_of(rows_of(0)), failure_probability=0.01)
    merged = merge([snapshot(sketch, topic="one"), snapshot(sketch, topic="other")], 0.0)
    assert merged.failure_probability == 0.02


ORDERS = [(1, 5), (2, 3), (2, 9), (3, 1)]
MESSAGES = [message(snapshot(sketch_of(rows_of(0)), epoch=epoch, number=number)) for epoch, number in ORDERS]


@pytest.mark.parametrize("with_headers", [True, False])
def test_the_newest_wins_whatever_the_order_and_never_goes_back(with_headers: bool) -> None:
    for shuffled in itertools.permutations(range(4)):
        newest, best = Newest(), -1
        for index in [*shuffled, *shuffled]:
            one = MESSAGES[index]
            assert newest.offer(one.key, one.value, one.headers if with_headers else ()) == (index > best)
            best = max(best, index)
            (found,) = newest.all()
            assert found.id.order == ORDERS[best]


def test_headers_that_belie_their_value_are_noticed() -> None:
    newest = Newest()
    assert not newest.offer(MESSAGES[0].key, MESSAGES[0].value, MESSAGES[1].headers)
    with pytest.raises(FormatError, match="headers say"):
        newest.all()


def test_a_null_value_takes_its_key_away() -> None:
    newest = Newest()
    old, new = MESSAGES[0], MESSAGES[1]
    assert not newest.offer(new.key, None)
    newest.offer(new.key, new.value, new.headers)
    newest.offer(b"damaged", b"")
    assert newest.offer(new.key, None)
    assert not newest.offer(b"damaged", None)
    assert (len(newest), newest.ids) == (0, {})
    assert not newest.offer(new.key, None)
    assert newest.offer(old.key, old.value, old.headers)  # the order is forgotten too
    assert newest.offer(new.key, new.value, new.headers)
    assert [found.id.order for found in newest.all()] == [ORDERS[1]]


def test_damage_is_healed_by_publishing_the_same_again() -> None:
    stale, good = MESSAGES[0], MESSAGES[1]
    damaged = good.value[:-1] + bytes([good.value[-1] ^ 1])
    newest = Newest()
    assert not newest.offer(good.key, damaged, good.headers)
    with pytest.raises(FormatError, match=r"g/rows/0 \(2, 3\).*damaged"):
        newest.all()
    assert newest.offer(stale.key, stale.value, stale.headers)
    assert newest.offer(good.key, good.value, good.headers)
    assert [found.id.order for found in newest.all()] == [ORDERS[1]]
    assert not newest.offer(good.key, damaged, good.headers)  # what is sound stays
    assert len(newest.all()) == 1


def test_a_broken_message_of_another_group_is_none_of_ours() -> None:
    newest = Newest("g")
    assert not newest.offer(b"other/rows/0", b"damaged")
    assert newest.skipped == 0
    assert not newest.offer(b"g/rows/0", b"damaged")
    assert newest.skipped == 1
    with pytest.raises(FormatError, match="'g/rows/0'"):
        newest.all()


def published(merged: MergedSketch, **ids: Any) -> Snapshot:
    """A merge as `sfd-stream merge` would publish it, through its bytes."""
    made = snapshot(merged.sketch, **ids, columns=merged.columns, hash_seed=merged.hash_seed, merged_from=merged.parts)
    return decode_snapshot(encode_snapshot(made))


@st.composite
def trees(draw: st.DrawFn) -> Any:
    """A list of leaves, folded into nested lists in any shape."""
    layer: list[Any] = list(range(draw(st.integers(2, 9))))
    while len(layer) > 1:
        at = draw(st.integers(0, len(layer) - 2))
        width = draw(st.integers(2, 4))
        layer[at : at + width] = [layer[at : at + width]]
    return layer[0]


def leaves_of(tree: Any) -> list[int]:
    return [tree] if isinstance(tree, int) else [leaf for branch in tree for leaf in leaves_of(branch)]


@settings(max_examples=40, deadline=None)
@given(trees(), st.sampled_from(["float64", "float32"]))
def test_a_merge_over_any_tree_keeps_the_bound_and_the_exact_counters(tree: Any, dtype: str) -> None:
    leaves = leaves_of(tree)
    matrices = {p: rows_of(p, n=5 + 7 * (p % 3), d=6 + p % 4) for p in leaves}
    numbers = itertools.count(1)

    def merged_of(node: Any) -> Snapshot:
        if isinstance(node, int):
            made = snapshot(sketch_of(matrices[node], 5), node, partitions=len(leaves), columns="growing", dtype=dtype)
            return decode_snapshot(encode_snapshot(made))
        below = merge([merged_of(branch) for branch in node], 2000.0)
        return published(below, topic="merged", number=next(numbers))

    world = merge([merged_of(tree)], 2000.0)
    assert holds(list(matrices.values()), world.sketch)
    assert world.complete
    assert sorted(part.id.partition for part in world.parts) == sorted(leaves)


def test_what_is_missing_is_told_through_a_tree() -> None:
    east = merge([snapshot(sketch_of(rows_of(p)), p, partitions=3, cluster="east") for p in (0, 1)], 2000.0)
    west = merge([snapshot(sketch_of(rows_of(p)), p, partitions=2, cluster="west") for p in (0, 1)], 2000.0)
    world = merge([published(east, topic="east"), published(west, topic="west")], 2000.0)
    assert world.missing == ("east:rows/2",)
    assert world.partitions == ("east:rows/0", "east:rows/1", "west:rows/0", "west:rows/1")


def test_a_merge_beside_its_own_part_would_count_twice() -> None:
    parts = [snapshot(sketch_of(rows_of(p)), p, partitions=2) for p in (0, 1)]
    both = published(merge(parts, 2000.0), topic="merged")
    with pytest.raises(UnmergeableError, match="g/rows/0 and g/rows/0 are sketches of the same rows"):
        merge([both, parts[0]], 2000.0)


def test_without_column_sums_in_one_part_there_are_none_in_the_whole() -> None:
    bare = snapshot(replace(sketch_of(rows_of(0)), column_sums=None), 0, partitions=2)
    merged = merge([bare, snapshot(sketch_of(rows_of(1)), 1, partitions=2)], 2000.0)
    assert merged.components(3).shape == (3, 12)
    with pytest.raises(ValueError, match="no column sums"):
        merged.pca(2)


# -- by name -------------------------------------------------------------------------------------------------


def named() -> MergedSketch:
    made = [
        snapshot(sketch_of(rows_of(p)), p, partitions=2, columns="hashed", hash_seed=0, names=names)
        for p, names in enumerate([{0: "sun", 3: "moon"}, {0: "son", 5: "star"}])
    ]
    return merge(made, 2000.0)


def test_the_first_to_name_a_column_keeps_it_and_the_rest_have_numbers() -> None:
    assert [named().name(column) for column in (0, 3, 5, 7)] == ["sun", "moon", "star", "7"]


def test_what_a_sketch_answers_a_merged_one_answers_too() -> None:
    merged = named()
    public = {name for name in dir(merged.sketch) if not name.startswith("_")} - {"merge_all"}
    assert public <= set(dir(merged))
    for field in fields(merged.sketch):
        assert getattr(merged, field.name) is getattr(merged.sketch, field.name)
    for other in (merged, merged.sketch):
        assert merged.drift(other, 2).angles[0] < 1e-6
        assert merged.sketch.drift(other, 2).angles[0] < 1e-6
        assert merged.merge(other) == merged.sketch.merge(merged.sketch)
    assert merged.resized(3) == merged.sketch.resized(3)
    assert merged.padded(20).d == 20
    assert merged.astype("float32").matrix.dtype == np.float32


def test_a_sketch_made_of_a_merged_one_claims_no_partitions() -> None:
    """Its rows may be others: `parts` and `missing` would be wrong."""
    merged = named()
    assert isinstance(merged, Sketch)
    made = [merged.merge(merged), merged.sketch.merge(merged), merged.resized(3), merged.resized(merged.ell)]
    made += [merged.padded(20), merged.padded(merged.d), merged.astype("float32"), merged.astype("float64")]
    assert all(type(each) is Sketch for each in [*made, merged.sketch])


def test_merged_sketches_are_equal_if_their_rows_and_their_partitions_are() -> None:
    merged = named()
    assert merged == named()
    assert hash(merged) == hash(named())
    assert merged != replace(merged, missing=("rows/9",))
    assert merged != replace(merged, delta=merged.delta + 1.0)
    assert merged != merged.sketch
    assert merged.sketch != merged


def test_a_merged_sketch_read_again_is_older_and_has_the_same_sketch() -> None:
    merged = named()
    later = read_later(merged, merged.read_at_s + 5.0)
    assert later.sketch is merged.sketch
    assert {name: age - merged.ages_s[name] for name, age in later.ages_s.items()} == dict.fromkeys(merged.ages_s, 5.0)


def test_copies_of_a_merged_sketch_are_whole_and_frozen() -> None:
    merged = named()
    for copied in (copy.deepcopy(merged), pickle.loads(pickle.dumps(merged))):  # noqa: S301 - our own bytes
        assert copied == merged
        assert not copied.matrix.flags.writeable


def test_the_table_is_a_data_frame_as_it_is(monkeypatch: pytest.MonkeyPatch) -> None:
    import pandas as pd

    merged = named()
    for one in (merged, merged.sketch):
        table, frame = one.to_table(3, top=4), one.to_frame(3, top=4)
        pd.testing.assert_frame_equal(frame, pd.DataFrame(table))
        assert list(frame.columns) == ["component", "column", "name", "weight"]
        wide = one.to_frame(3).pivot_table(index="component", columns="column", values="weight").to_numpy()
        assert np.array_equal(np.abs(wide), np.abs(one.components(3)))
    plain = sketch_of(rows_of(0)).to_table(1)
    assert plain["name"].tolist() == list(map(str, plain["column"]))
    monkeypatch.setitem(sys.modules, "pandas", None)
    with pytest.raises(ImportError, match="to_frame needs pandas: pip install pandas"):
        merged.to_frame(3)


def test_the_long_table_is_the_components() -> None:
    merged = named()
    table = merged.to_table(3)
    assert list(table) == ["component", "column", "name", "weight"]
    assert {len(values) for values in table.values()} == {3 * 12}
    rebuilt = np.zeros((3, 12))
    rebuilt[table["component"] - 1, table["column"]] = table["weight"]
    assert np.array_equal(rebuilt, merged.components_by_name(3))
    assert np.array_equal(np.abs(rebuilt), np.abs(merged.components(3)))
    assert all(type(name) is str for name in table["name"])


def test_words_that_come_together_have_one_sign_whatever_their_hashes() -> None:
    """In the columns their signs are those of the hash; by name they must agree."""
    words = [f"word{n}" for n in range(12)]
    columns = HashedColumns(4096, 3)
    batch = decode([encode_row(words, [1.0] * 12, packed=False)] * 5, columns)
    sketch = sketch_of(batch.block.csr(), 4)
    assert isinstance(batch.columns, HashedColumns)
    made = snapshot(sketch, columns="hashed", hash_seed=3, names=batch.columns.names)
    merged = merge([made], 2000.0)
    (top,) = merged.top(1, 12)
    assert {name for name, _ in top} == set(words)
    assert [weight for _, weight in top] == pytest.approx([12**-0.5] * 12)
    assert (np.sign(merged.components(1)[0]) < 0).any()


def test_the_strongest_columns_come_first() -> None:
    merged = named()
    table = merged.to_table(4, top=5)
    weights = np.abs(table["weight"]).reshape(4, 5)
    assert np.all(np.diff(weights, axis=1) <= 0)
    assert np.array_equal(weights[:, 0], np.abs(merged.components(4)).max(axis=1))
    assert merged.top(4, 5) == [
        list(zip(table["name"][i : i + 5], table["weight"][i : i + 5], strict=True)) for i in range(0, 20, 5)
    ]


def test_top_has_all_directions_that_there_are_and_refuses_more() -> None:
    merged = named()
    assert len(merged.top()) == merged.k_max == 6
    assert [len(words) for words in merged.top(2, columns=99)] == [12, 12]
    with pytest.raises(ValueError, match="k = 7, but this sketch has 6 directions"):
        merged.top(7)
    with pytest.raises(ValueError, match="columns must be a whole number of at least 1, not -1"):
        merged.top(2, columns=-1)


def test_a_merged_sketch_answers_what_its_sketch_answers() -> None:
    merged = named()
    X = rows_of(9)
    assert np.array_equal(merged.project(X, 2), merged.sketch.project(X, 2))
    assert merged.explained(2) == merged.sketch.explained(2)
    assert merged.covariance(1, 2) == merged.sketch.covariance(1, 2)
    assert np.array_equal(merged.pca(2).components, merged.sketch.pca(2).components)
    assert np.array_equal(merged.gram() @ np.ones(12), merged.sketch.gram() @ np.ones(12))
    assert merged.drift(merged, 2).angles.max() < 1e-7
