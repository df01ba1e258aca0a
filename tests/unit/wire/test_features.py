"""The settings that say which fields of a record become features, and what a sketch does with them."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from sfd_stream import FeatureMap, HashedColumns, MergedSketch, RowDecodeError, Sketch, SparseFrequentDirections
from sfd_stream.wire.features import _RULES_MAX


def test_ever_new_paths_do_not_fill_the_memory() -> None:
    mapping = FeatureMap()
    for number in range(_RULES_MAX + 100):
        mapping.features_of({f"key{number}": 1})
    assert len(mapping._rules) == _RULES_MAX


PATHS: list[tuple[Any, str | None, Any]] = [
    ({"x": 1}, None, [{"x": 1}]),
    ([{"x": 1}, {"x": 2}], None, [{"x": 1}, {"x": 2}]),
    ([], None, []),
    ({"data": {"x": 1}}, "data", [{"x": 1}]),
    ({"data": [{"x": 1}, {"x": 2}]}, "data", [{"x": 1}, {"x": 2}]),
    ([{"data": {"x": 1}}, {"data": {"x": 2}}], "data", [{"x": 1}, {"x": 2}]),
    ({"payload": {"after": None}}, "payload.after", []),
    ({"payload": None}, "payload.after", []),
    ({"payload": {}}, "payload.after", "bad_path"),
    ({"payload": 3}, "payload.after", "bad_path"),
    ({"data": 3}, "data", "bad_path"),
    (7, None, "bad_path"),
    ([7], None, "bad_path"),
    ([[{"x": 1}]], None, [{"x": 1}]),
]


@pytest.mark.parametrize(("message", "path", "expected"), PATHS)
def test_the_path_picks_the_records_of_a_message(message: Any, path: str | None, expected: Any) -> None:
    mapping = FeatureMap(path=path)
    if isinstance(expected, str):
        with pytest.raises(RowDecodeError) as caught:
            mapping.records_of(message)
        assert caught.value.reason == expected
    else:
        assert mapping.records_of(message) == expected


SETTINGS: dict[str, Any] = {
    "include": ["a*", "v"],
    "exclude": ["a.id"],
    "fields": {"a.n": {"log1p": True, "scale": 0.5, "clip": [0, 9]}, "v": {"indices": "i", "values": "x"}, "t": "text"},
}


def test_a_description_means_the_same_map() -> None:
    mapping = FeatureMap.from_settings(SETTINGS, path="data")
    assert FeatureMap.from_description(mapping.described()) == mapping
    assert hash(FeatureMap.from_description(mapping.described())) == hash(mapping)


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"inlcude": []}, "unknown key 'inlcude'"),
        ({"include": [3]}, "include must be a list of paths"),
        ({"fields": ["a"]}, "fields must hold"),
        ({"fields": {"a": "logp1"}}, "unknown option 'logp1'"),
        ({"fields": {"a": 3}}, "fields.a must be a word"),
        ({"fields": {"a": {"categorical": True, "text": True}}}, "either categorical or text"),
        ({"fields": {"a": {"scale": "x"}}}, "scale must be a finite number"),
        ({"fields": {"a": {"clip": [3, 1]}}}, "lower one first"),
        ({"fields": {"a": {"clip": 3}}}, "two numbers"),
        ({"fields": {"a": {"values": "x"}}}, "values without indices"),
        ({"fields": {"a": {"indices": 3, "values": "x"}}}, "must name a field"),
        ({"fields": {"a": {"text": 3}}}, "must be true or false"),
        ("a", "must hold include"),
    ],
)
def test_a_mistake_in_the_settings_is_named(settings: Any, words: str) -> None:
    with pytest.raises(ValueError, match=words):
        FeatureMap.from_settings(settings)


# -- in the library --------------------------------------------------------------------------------------

EVENTS = [
    {"user": f"u{n % 7}", "items": ["tea", f"i{n % 5}"], "price": n / 3, "geo": {"lat": n % 90}, "id": n}
    for n in range(200)
]
COLUMNS = HashedColumns(64, mapping=FeatureMap.from_settings({"exclude": ["id"], "fields": {"price": "log1p"}}))


def test_a_sketcher_takes_records_and_a_sketch_projects_them() -> None:
    sketch = SparseFrequentDirections(ell=8, features=COLUMNS).fit(EVENTS).sketch()
    names = [dict(pairs) for event in EVENTS for pairs in [_added(event)]]
    plain = SparseFrequentDirections(ell=8, features=HashedColumns(64)).fit(names).sketch()
    assert np.array_equal(sketch.matrix, plain.matrix)
    assert np.array_equal(sketch.project(EVENTS[:3]), plain.project(names[:3]))
    assert sketch.project(EVENTS[:3]).shape == (3, 8)


def _added(event: dict[str, Any]) -> dict[str, float]:
    assert COLUMNS.mapping is not None
    found: dict[str, float] = {}
    for name, value in COLUMNS.mapping.features_of(event):
        found[name] = found.get(name, 0.0) + value
    return found


def test_a_saved_sketch_still_takes_records(tmp_path: Any) -> None:
    sketch = SparseFrequentDirections(ell=8, features=COLUMNS).fit(EVENTS).sketch()
    sketch.save(tmp_path / "events.sketch")
    for loaded in (Sketch.load(tmp_path / "events.sketch"), MergedSketch.load(tmp_path / "events.sketch")):
        assert np.array_equal(loaded.project(EVENTS[:3]), sketch.project(EVENTS[:3]))


def test_sketches_of_other_mappings_are_not_merged() -> None:
    one = SparseFrequentDirections(ell=8, features=COLUMNS).fit(EVENTS).sketch()
    other = SparseFrequentDirections(ell=8, features=HashedColumns(64, mapping=FeatureMap())).fit(EVENTS).sketch()
    with pytest.raises(ValueError, match=r"fields\.price was log1p and is not set"):
        one.merge(other)


def test_a_bad_record_is_named_by_its_row() -> None:
    with pytest.raises(ValueError, match="row 1: a list of numbers needs vector"):
        COLUMNS.block_of([{"a": 1}, {"b": [1.0]}])
    with pytest.raises(ValueError, match=r"row 0: .*Unicode"):
        COLUMNS.block_of([{"a": "\ud800"}])
    with pytest.raises(ValueError, match=r"row 0: input\.path must lead to one record"):
        HashedColumns(64, mapping=FeatureMap(path="p")).block_of([{"p": None}])
