"""Rows given as mappings from names to values: the same columns, signs and names as a worker gives them."""

from __future__ import annotations

import pickle
from collections import Counter
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.base import clone
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import FunctionTransformer

from sfd_stream import (
    FrequentDirections,
    HashedColumns,
    MergedSketch,
    Sketch,
    SketchTransformer,
    SparseFrequentDirections,
    decode,
    encode_row,
)
from sfd_stream.reader.merged import merge
from tests.unit.reader.made import sketch_of, snapshot

WORDS = [f"word{n}" for n in range(12)]
TEXTS = [Counter(WORDS[n % 4 : n % 4 + 6 + n % 3]) for n in range(40)]
names = st.one_of(st.text(max_size=8), st.integers(-(2**63), 2**64 - 1))
mappings = st.lists(st.dictionaries(names, st.floats(-9, 9) | st.integers(-9, 9), max_size=9), min_size=1, max_size=9)


def on_the_wire(rows: list[Any], columns: HashedColumns) -> Any:
    batch = decode([encode_row(list(row), list(row.values()), packed=False) for row in rows], columns)
    assert not batch.bad
    return batch


def merged_of(rows: list[Any], columns: HashedColumns, ell: int = 8) -> MergedSketch:
    """As a reader gets it from a worker with hashed columns."""
    batch = on_the_wire(rows, columns)
    made = snapshot(sketch_of(batch.block.csr(), ell), columns="hashed", hash_seed=columns.seed)
    return merge([replace(made, names=batch.columns.names)], 2000.0)


@given(mappings, st.integers(1, 200), st.integers(0, 2**32 - 1))
@settings(deadline=None)
def test_mappings_become_the_rows_that_a_worker_makes_of_their_messages(rows: list[Any], d: int, seed: int) -> None:
    columns = HashedColumns(d, seed, names_max=20)
    block, after = columns.block_of(rows)
    batch = on_the_wire(rows, columns)
    for name in ("indptr", "indices", "values"):
        assert getattr(block, name).tobytes() == getattr(batch.block, name).tobytes()
    assert block.d == batch.block.d == d
    assert after == batch.columns
    assert list(after.names) == list(batch.columns.names)


@pytest.mark.parametrize("kind", [SparseFrequentDirections, FrequentDirections])
def test_a_sketcher_takes_mappings_and_its_sketch_knows_the_names(kind: Any) -> None:
    columns = HashedColumns(256, 3)
    model = kind(ell=8, features=columns).partial_fit(TEXTS[:25]).partial_fit(TEXTS[25:])
    wire = on_the_wire(TEXTS, columns)
    plain = kind(ell=8).partial_fit(wire.block.csr())
    sketch = model.sketch()
    assert np.array_equal(sketch.matrix, plain.sketch().matrix)
    assert sketch.rows == 40
    assert np.array_equal(abs(model.transform(TEXTS)), abs(plain.transform(wire.block.csr())))  # signs are by name
    assert {name for words in sketch.top(3) for name, _ in words} <= set(WORDS)
    assert columns.names == {}, "the parameter is not changed"
    assert model.fit(TEXTS[:2]).sketch().rows == 2


def test_numbers_and_mappings_may_come_in_turns() -> None:
    columns = HashedColumns(64)
    wire = on_the_wire(TEXTS, columns).block.csr()
    one = SparseFrequentDirections(8, features=columns).partial_fit(wire[:20]).partial_fit(TEXTS[20:]).sketch()
    assert one.matrix.tobytes() == SparseFrequentDirections(8).partial_fit(wire).sketch().matrix.tobytes()
    with pytest.raises(ValueError, match="X has 5 features, but SparseFrequentDirections is expecting 64"):
        SparseFrequentDirections(8, features=columns).partial_fit(np.ones((2, 5)))


def test_every_question_with_rows_takes_mappings() -> None:
    columns = HashedColumns(256, 3)
    merged = merged_of(TEXTS, columns)
    X = on_the_wire(TEXTS, columns).block.csr()
    for sketch in (merged, merged.sketch):
        assert np.array_equal(sketch.project(TEXTS, 3), sketch.project(X, 3))
        assert sketch.project([], 3).shape == (0, 3)
        for centre in (False, True):
            model = SketchTransformer(sketch, k=3, centre=centre).fit()
            assert np.array_equal(model.transform(TEXTS), model.transform(X))
    assert merged.project(({"word1": 1},), 3).shape == (1, 3)


def test_mappings_are_refused_where_columns_have_no_names() -> None:
    plain = sketch_of(np.eye(4))
    for refuse in (
        plain.project,
        merge([snapshot(plain)], 2000.0).project,
        SketchTransformer(plain, k=2).fit().transform,
    ):
        with pytest.raises(ValueError, match="rows given as mappings need a sketch of hashed columns"):
            refuse([{"god": 1}])
    with pytest.raises(ValueError, match=r"rows given as mappings need hashed columns.* features=HashedColumns\(d\)"):
        SparseFrequentDirections(ell=4).partial_fit([{"god": 1}])


@pytest.mark.parametrize(
    ("row", "reason"),
    [
        ({"god": "one"}, "row 1: the value of 'god' is a str, not a number"),
        ({"god": None}, "row 1: the value of 'god' is a NoneType, not a number"),
        ({"god": 1j}, "row 1: the value of 'god' is a complex, not a number"),
        ({2.5: 1}, "row 1: the name 2.5 is a float, not a string or a whole number"),
        ({True: 1}, "row 1: the name True is a bool, not a string or a whole number"),
        ({b"god": 1}, "row 1: the name b'god' is a bytes, not a string or a whole number"),
        ({"\ud800": 1}, "row 1: the name .* is no valid Unicode text"),
        ({"god": float("nan")}, "row 1 has a value that is NaN or infinite"),
        ({"god": 10**400}, "row 1: the value of 'god' is too large"),
        (["god"], "row 1 is a list, not a mapping"),
    ],
)
def test_a_mapping_that_is_no_row_is_refused_by_its_number(row: Any, reason: str) -> None:
    model = SparseFrequentDirections(ell=4, features=HashedColumns(16)).partial_fit([{"sun": 1}])
    for refuse in (model.partial_fit, model.transform, model.sketch().project):
        with pytest.raises(ValueError, match=reason):
            refuse([{"fine": 1}, row])
    assert model.sketch().rows == 1
    assert model.sketch().top(1)[0][0][0] == "sun"
    assert len(model.sketch().features.names) == 1, "a refused batch teaches no name"


def test_values_of_numpy_and_booleans_are_numbers() -> None:
    columns = HashedColumns(64)
    rows = [{"a": np.float32(2), "b": np.int8(3), "c": True, np.str_("e"): 1, np.int64(7): 0.5}]
    plain = [{"a": 2.0, "b": 3.0, "c": 1.0, "e": 1.0, 7: 0.5}]
    assert np.array_equal(columns.block_of(rows)[0].csr().toarray(), columns.block_of(plain)[0].csr().toarray())


def test_words_that_come_together_have_one_sign_by_name_in_every_answer() -> None:
    model = SparseFrequentDirections(ell=4, features=HashedColumns(4096, 3)).fit([dict.fromkeys(WORDS, 1.0)] * 5)
    sketch = model.sketch()
    assert [weight for _, weight in sketch.top(1, 12)[0]] == pytest.approx([12**-0.5] * 12)
    assert (sketch.components(1) < 0).any()
    assert sketch.to_table(1, top=12)["name"].tolist() == [name for name, _ in sketch.top(1, 12)[0]]


def test_principal_components_have_names_too() -> None:
    """Half the rows have some words, half have others: around the mean, one group is against the other."""
    rows = [dict.fromkeys(WORDS[:6], 1.0), dict.fromkeys(WORDS[6:], 1.0)] * 10
    sketch = SparseFrequentDirections(ell=4, features=HashedColumns(4096, 3)).fit(rows).sketch()
    (top,) = sketch.top(1, 12, centre=True)
    signs = {name: np.sign(weight) for name, weight in top}
    assert {signs[word] for word in WORDS[:6]} == {-signs[WORDS[6]]}
    assert {signs[word] for word in WORDS[6:]} == {signs[WORDS[6]]}
    weights = sketch.components_by_name(1, centre=True)
    assert np.allclose(np.abs(weights), np.abs(sketch.pca(1).components))
    table = sketch.to_table(1, top=12, centre=True)
    assert table["name"].tolist() == [name for name, _ in top]
    assert sketch.to_frame(1, top=12, centre=True)["weight"].tolist() == [weight for _, weight in top]


def test_a_merged_sketch_has_the_same_names_as_its_sketch() -> None:
    merged = merged_of(TEXTS, HashedColumns(256, 3))
    assert merged.top(3) == merged.sketch.top(3)
    assert merged.top(3, centre=True) == merged.sketch.top(3, centre=True)
    assert merged.name(5) == merged.sketch.name(5)
    assert merged.to_table(2, centre=True)["name"].tolist() == merged.sketch.to_table(2, centre=True)["name"].tolist()


def test_covariance_of_two_names_is_that_of_their_columns_with_their_signs() -> None:
    rows = [{word: float(n + at) for at, word in enumerate(WORDS)} for n in range(5)]
    sketch = SparseFrequentDirections(ell=20, features=HashedColumns(4096, 3)).fit(rows).sketch()
    values = np.array([list(row.values()) for row in rows])
    truth = np.cov(values.T)
    for i, one in enumerate(WORDS):
        for j, other in enumerate(WORDS):
            low, estimate, high = sketch.covariance(one, other)
            assert low <= estimate <= high
            assert low - 1e-6 <= truth[i, j] <= high + 1e-6


def test_sketches_of_one_hashing_merge_and_of_another_are_refused() -> None:
    def sketch(d: int, seed: int, rows: Any) -> Sketch:
        return SparseFrequentDirections(ell=4, features=HashedColumns(d, seed)).fit(rows).sketch()

    both = sketch(64, 0, [{"sun": 1}]).merge(sketch(64, 0, [{"moon": 1}]))
    assert sorted(both.features.names.values()) == ["moon", "sun"]
    assert both.project([{"moon": 1}]).shape == (1, 2)
    with pytest.raises(ValueError, match=r"hash seed 0.* hash seed 1"):
        sketch(64, 0, [{"sun": 1}]).merge(sketch(64, 1, [{"sun": 1}]))
    for d, seed in ((64, 1), (128, 0)):
        with pytest.raises(ValueError, match="columns of the two sketches do not mean the same"):
            sketch(64, 0, [{"sun": 1}]).drift(sketch(d, seed, [{"sun": 1}]), 1)
    assert both.padded(100).features is None, "hashed to another number of columns, a name has another column"


def test_it_is_a_part_of_a_scikit_learn_pipeline() -> None:
    model = SparseFrequentDirections(ell=4, features=HashedColumns(64, 3))
    pipeline = make_pipeline(FunctionTransformer(lambda texts: [Counter(text.split()) for text in texts]), model)
    assert pipeline.fit_transform(["sun moon", "moon star"]).shape == (2, 2)
    assert clone(model).get_params() == model.get_params()


def test_state_goes_on_with_the_names() -> None:
    model = SparseFrequentDirections(ell=4, features=HashedColumns(64, 3)).fit(TEXTS[:20])
    resumed = SparseFrequentDirections.from_state(pickle.loads(pickle.dumps(model.get_state())))  # noqa: S301 - ours
    assert resumed.partial_fit(TEXTS[20:]).sketch() == model.partial_fit(TEXTS[20:]).sketch()
    assert pickle.loads(pickle.dumps(resumed.sketch())).top(2) == model.sketch().top(2)  # noqa: S301 - our own bytes


@pytest.mark.parametrize(("d", "seed", "reason"), [(0, 0, "d must be"), (2.5, 0, "d must be"), (8, -1, "seed must be")])
def test_hashed_columns_say_what_is_wrong_with_them(d: Any, seed: Any, reason: str) -> None:
    with pytest.raises(ValueError, match=reason):
        HashedColumns(d, seed)


def test_features_that_are_none_are_refused() -> None:
    with pytest.raises(ValueError, match=r"features must be HashedColumns\(d\) or None, not 64"):
        SparseFrequentDirections(ell=4, features=64).partial_fit(np.eye(64))  # type: ignore[arg-type]


def test_features_can_not_change_under_rows() -> None:
    model = SparseFrequentDirections(ell=4, features=HashedColumns(64)).fit([{"sun": 1}])
    model.set_params(features=HashedColumns(64, seed=1))
    with pytest.raises(ValueError, match="features can't be changed after the first rows: call fit"):
        model.partial_fit([{"sun": 1}])
    assert model.fit([{"sun": 1}]).sketch().rows == 1


@pytest.mark.parametrize("centre", [False, True])
@pytest.mark.parametrize("seed", range(6))
def test_coordinates_have_the_sign_of_the_directions_by_name(seed: int, centre: bool) -> None:
    """A row of the words that a direction is strongest in lies on its positive side, whatever their hashes' signs."""
    sketch = SparseFrequentDirections(ell=8, features=HashedColumns(4096, seed)).fit(TEXTS).sketch()
    weights = sketch.components_by_name(3, centre=centre)
    raw = sketch.pca(3).components if centre else sketch.components(3)
    assert np.array_equal(raw * sketch.features.signs(), weights)  # type: ignore[union-attr]
    for number, words in enumerate(sketch.top(3, 1, centre=centre)):
        assert words[0][1] > 0
        if not centre:
            assert sketch.project([{words[0][0]: 1.0}], 3)[0, number] == pytest.approx(words[0][1])
