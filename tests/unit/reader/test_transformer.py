"""The transformer: scikit-learn's manners, and a refresh that changes nothing but the directions."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from sklearn.base import clone
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import MaxAbsScaler

from sfd_stream.reader.merged import merge
from sfd_stream.reader.transformer import SketchTransformer
from tests.unit.reader.made import rows_of, sketch_of, snapshot

SKETCH = sketch_of(rows_of(0))


def test_coordinates_are_those_of_the_sketch() -> None:
    X = rows_of(5)
    model = SketchTransformer(SKETCH, k=3).fit()
    assert np.array_equal(model.transform(X), SKETCH.project(X, 3))
    assert np.allclose(model.transform(X.toarray()), model.transform(X))
    assert model.n_features_in_ == 12
    assert list(model.get_feature_names_out()) == ["sketch0", "sketch1", "sketch2"]


def test_centred_rows_have_the_mean_at_the_origin() -> None:
    model = SketchTransformer(SKETCH, k=3, centre=True).fit()
    assert model.mean_ is not None
    assert np.allclose(model.transform(model.mean_[None]), 0)
    assert np.allclose(model.inverse_transform(np.zeros((1, 3))), model.mean_)


def test_it_takes_whatever_gives_a_merged_sketch() -> None:
    merged = merge([snapshot(SKETCH)], 2000.0)

    class Reader:
        def merged(self) -> object:
            return merged

    for source in (merged, Reader()):
        assert np.array_equal(SketchTransformer(source, k=2).fit().components_, SKETCH.components(2))  # type: ignore[arg-type]


def test_it_lives_in_a_pipeline_and_can_be_cloned() -> None:
    X = rows_of(5)
    model = make_pipeline(MaxAbsScaler(), SketchTransformer(SKETCH, k=2))
    assert model.fit_transform(X).shape == (40, 2)
    assert clone(model)[-1].get_params() == model[-1].get_params() | {"source": clone(model)[-1].source}


def test_before_fit_it_says_what_to_do() -> None:
    with pytest.raises(ValueError, match="call fit or refresh first"):
        SketchTransformer(SKETCH).transform(rows_of(0))


def test_a_refresh_does_not_flip_what_stayed() -> None:
    model = SketchTransformer(SKETCH, k=4).fit()
    before = model.components_
    grown = replace(SKETCH, matrix=np.vstack([SKETCH.matrix, 1e-3 * np.eye(12)[:1]]))
    after = model.refresh(grown).components_
    assert np.all(np.sum(before * after, axis=1) > 0)
    model._state = model._state._replace(components=-before)
    assert np.all(np.sum(model.refresh(SKETCH).components_ * before, axis=1) < 0)


@pytest.mark.parametrize("centre", [False, True])
def test_rows_from_before_the_columns_grew_are_zero_in_the_rest_and_wider_ones_are_refused(centre: bool) -> None:
    merged = merge([snapshot(SKETCH, columns="growing")], 2000.0)
    model = SketchTransformer(merged, k=2, centre=centre).fit()
    X = rows_of(5, d=7)
    wide = np.pad(X.toarray(), ((0, 0), (0, 5)))
    assert np.allclose(model.transform(X), model.transform(wide))
    assert np.allclose(merged.project(X, 2), merged.project(wide, 2))
    for refuse in (model.transform, merged.project):
        with pytest.raises(ValueError, match="rows of 13 columns, but the sketch has 12"):
            refuse(np.zeros((1, 13)))


@pytest.mark.parametrize("columns", ["fixed", "hashed"])
def test_narrow_rows_are_refused_where_columns_do_not_grow(columns: str) -> None:
    merged = merge([snapshot(SKETCH, columns=columns, hash_seed=0 if columns == "hashed" else None)], 2000.0)
    for refuse in (SketchTransformer(merged, k=2).fit().transform, merged.project):
        with pytest.raises(ValueError, match="rows of 5 columns, but the sketch has 12"):
            refuse(np.ones((1, 5)))


@pytest.mark.parametrize("centre", [False, True])
def test_more_directions_than_the_sketch_has_are_refused(centre: bool) -> None:
    for source in (SKETCH, merge([snapshot(SKETCH)], 2000.0)):
        model = SketchTransformer(source, k=500, centre=centre)
        with pytest.raises(ValueError, match=r"k = 500, but this sketch has . directions.*: ask for at most"):
            model.fit()
        with pytest.raises(ValueError, match="k = 500"):
            model.refresh(SKETCH)


def test_coordinates_of_another_number_of_directions_are_refused() -> None:
    with pytest.raises(ValueError, match=r"coordinates of shape \(1, 5\), but there are 3 directions"):
        SketchTransformer(SKETCH, k=3).fit().inverse_transform(np.ones((1, 5)))


def test_what_is_no_sketch_is_refused() -> None:
    with pytest.raises(TypeError, match="a sketch or a SnapshotReader is needed, not a str"):
        SketchTransformer("sketches").fit()  # type: ignore[arg-type]
