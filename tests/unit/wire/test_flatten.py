"""Records to features: the table of `docs/reference/formats.md`, and the laws behind it."""

from __future__ import annotations

import random
from datetime import UTC, date, datetime
from decimal import Decimal
from enum import Enum
from typing import Any
from uuid import UUID

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from sklearn.feature_extraction import DictVectorizer

from sfd_stream import FeatureMap, RowDecodeError
from sfd_stream.wire.flatten import DEPTH_MAX, PATH_BYTES_MAX, Flattener


class Colour(Enum):
    RED = 1


def features(record: dict[str, Any], path: str | None = None, **settings: Any) -> list[tuple[str, float]]:
    return FeatureMap.from_settings(settings, path=path).features_of(record)


def fields(**options: Any) -> dict[str, Any]:
    return {"fields": options}


TABLE: list[tuple[dict[str, Any], dict[str, Any], list[tuple[str, float]]]] = [
    ({"a": 2.5, "b": 3, "c": 0}, {}, [("a", 2.5), ("b", 3.0)]),
    ({"a": 3}, fields(a="categorical"), [("a=3", 1.0)]),
    ({"a": 3.0, "b": 0.1, "c": True}, fields(**{"*": "categorical"}), [("a=3", 1.0), ("b=0.1", 1.0), ("c=true", 1.0)]),
    ({"a": 2**60 + 1}, fields(a="categorical"), [(f"a={2**60 + 1}", 1.0)]),
    ({"a": -(np.e - 1)}, fields(a="log1p"), [("a", -1.0)]),
    ({"a": 250}, fields(a={"scale": 0.01}), [("a", 2.5)]),
    ({"a": 250, "b": -4}, fields(**{"*": {"clip": [0, 100]}}), [("a", 100.0)]),
    ({"a": 1e9}, fields(a={"scale": 2, "clip": [0, 0], "log1p": True}), []),
    ({"a": 99.0}, fields(a={"clip": [0, np.e - 1], "log1p": True, "scale": 3}), [("a", 3.0)]),
    ({"a": "x", "b": ""}, {}, [("a=x", 1.0), ("b=", 1.0)]),
    ({"a": "The cat, the CAT_2"}, fields(a="text"), [(f"a:{w}", 1.0) for w in ("the", "cat", "the", "cat", "2")]),
    ({"a": "x"}, fields(a="ignore"), []),
    ({"a": True, "b": False}, {}, [("a", 1.0)]),
    ({"a": None}, {}, []),
    ({"a": ["x", "y", None, "x"]}, {}, [("a=x", 1.0), ("a=y", 1.0), ("a=x", 1.0)]),
    ({"a": [0.5, None, 2]}, fields(a="vector"), [("a[0]", 0.5), ("a[2]", 2.0)]),
    ({"a": [0.5, 2]}, fields(a={"vector": True, "scale": 2}), [("a[0]", 1.0), ("a[1]", 4.0)]),
    ({"a": [1, 1.0, "x"]}, fields(a="categorical"), [("a=1", 1.0), ("a=1", 1.0), ("a=x", 1.0)]),
    ({"v": {"i": [3, 9], "x": [0.5, 2]}}, fields(v={"indices": "i", "values": "x"}), [("v[3]", 0.5), ("v[9]", 2.0)]),
    ({"v": {"i": ["a", "b"]}}, fields(v={"indices": "i"}), [("v[a]", 1.0), ("v[b]", 1.0)]),
    ({"g": {"lat": 1, "at": {"city": "x"}}}, {}, [("g.at.city=x", 1.0), ("g.lat", 1.0)]),
    ({"l": [{"s": "x", "n": 2}, {"s": "x"}]}, fields(l="each"), [("l.n", 2.0), ("l.s=x", 1.0), ("l.s=x", 1.0)]),
    ({"l": [{"s": "x"}]}, fields(l="ignore"), []),
    ({"a": b"\x00", "b": [b"\x00"]}, {}, []),
    ({"a": 1, "b": {"c": 2, "d": 3}}, {"include": ["b"]}, [("b.c", 2.0), ("b.d", 3.0)]),
    ({"a": 1, "b": {"c": 2, "d": 3}}, {"include": ["b.c"]}, [("b.c", 2.0)]),
    ({"a_id": 1, "b": {"id": 2, "d": 3}}, {"exclude": ["*id"]}, [("b.d", 3.0)]),
    ({"b": {"c": [1.0], "d": 3}, "e": 1}, {"exclude": ["b"]}, [("e", 1.0)]),
    ({"a": 1, "b": [1.0]}, {"include": ["a"]}, [("a", 1.0)]),
    ({"a.b": 1, "a": {"b": 2}}, {}, [("a.b", 2.0), ("a.b", 1.0)]),
    ({"a": "b", "a=b": 2}, {}, [("a=b", 1.0), ("a=b", 2.0)]),
    ({"x1": 1, "x2": 1}, fields(**{"x*": "ignore", "x2": "categorical"}), [("x2=1", 1.0)]),
    ({"a": datetime(2026, 11, 18, 6, tzinfo=UTC), "b": date(2026, 11, 18)}, {},
     [("a=2026-11-18T06:00:00Z", 1.0), ("b=2026-11-18", 1.0)]),
    ({"a": Decimal("2.50"), "b": UUID(int=1), "c": Colour.RED, "d": np.float32(0.5), "e": (np.int64(3),)},
     fields(e="vector"),
     [("a", 2.5), ("b=00000000-0000-0000-0000-000000000001", 1.0), ("c=RED", 1.0), ("d", 0.5), ("e[0]", 3.0)]),
]  # fmt: skip


@pytest.mark.parametrize(("record", "settings", "expected"), TABLE)
def test_each_kind_of_value_becomes_the_features_of_the_table(
    record: dict[str, Any], settings: dict[str, Any], expected: list[tuple[str, float]]
) -> None:
    found = features(record, **settings)
    assert [name for name, _ in found] == [name for name, _ in expected]
    np.testing.assert_allclose([value for _, value in found], [value for _, value in expected], rtol=1e-15)


REFUSED: list[tuple[dict[str, Any], dict[str, Any], str]] = [
    ({"a": [1.0]}, {}, "bad_field"),
    ({"a": [True]}, {}, "bad_field"),
    ({"a": [{"b": 1}]}, {}, "bad_field"),
    ({"a": [["x"]]}, {}, "bad_field"),
    ({"a": ["x", 1]}, {}, "bad_field"),
    ({"a": [1, "x"]}, fields(a="vector"), "bad_field"),
    ({"a": [[1]]}, fields(a="vector"), "bad_field"),
    ({"a": [1]}, fields(a="each"), "bad_field"),
    ({"v": {"i": [1], "x": [1, 2]}}, fields(v={"indices": "i", "values": "x"}), "bad_length"),
    ({"v": {"i": 1, "x": [1]}}, fields(v={"indices": "i", "values": "x"}), "bad_field"),
    ({"v": {"i": [1.5]}}, fields(v={"indices": "i"}), "bad_field"),
    ({"v": {"i": [1], "x": ["y"]}}, fields(v={"indices": "i", "values": "x"}), "bad_field"),
    ({"a": 10**400}, {}, "too_large"),
    ({"a": 10**400}, fields(a="categorical"), "too_large"),
    ({"a": float("inf")}, fields(a="categorical"), "not_finite"),
    ({"a": object()}, {}, "bad_field"),
    ({"a" * (PATH_BYTES_MAX + 1): 1}, {}, "over_limit"),
    ({"é" * (PATH_BYTES_MAX // 2 + 1): 1}, {}, "over_limit"),
    ({"\ud800": 1}, {}, "malformed"),
]


@pytest.mark.parametrize(("record", "settings", "reason"), REFUSED)
def test_what_the_settings_give_no_meaning_to_is_bad_with_a_reason(
    record: dict[str, Any], settings: dict[str, Any], reason: str
) -> None:
    with pytest.raises(RowDecodeError) as caught:
        features(record, **settings)
    assert caught.value.reason == reason


scalars = st.one_of(
    st.text(max_size=5), st.floats(-9, 9), st.integers(-9, 9), st.lists(st.text(max_size=3), max_size=3)
)
records = st.recursive(
    st.dictionaries(st.text("abcd", min_size=1, max_size=2), scalars | st.none() | st.booleans(), max_size=5),
    lambda inner: st.dictionaries(st.text("abcd", min_size=1, max_size=2), inner, max_size=3),
    max_leaves=6,
)


@settings(suppress_health_check=[HealthCheck.too_slow])
@given(st.dictionaries(st.text("abc=.", min_size=1, max_size=4), scalars, max_size=6))
def test_the_defaults_are_those_of_dict_vectorizer(record: dict[str, Any]) -> None:
    vectorizer = DictVectorizer(sparse=False)
    row = vectorizer.fit_transform([record])[0]
    theirs = {name: row[column] for name, column in vectorizer.vocabulary_.items() if row[column]}
    found: dict[str, float] = {}
    for name, value in features(record):
        found[name] = found.get(name, 0.0) + value
    ours = {name: value for name, value in found.items() if value}
    assert ours.keys() == theirs.keys()
    if len(found) == len(features(record)):  # DictVectorizer keeps the last of two equal names, not their sum
        assert ours == theirs


@given(records, st.randoms(use_true_random=False))
def test_the_order_of_fields_changes_nothing(record: dict[str, Any], rng: random.Random) -> None:
    def shuffled(value: Any) -> Any:
        if not isinstance(value, dict):
            return value
        keys = list(value)
        rng.shuffle(keys)
        return {key: shuffled(value[key]) for key in keys}

    assert features(shuffled(record)) == features(record)


def test_a_record_may_be_nested_only_so_deep() -> None:
    record: dict[str, Any] = {"a": 1}
    for _ in range(DEPTH_MAX - 1):
        record = {"": record}
    assert len(features(record)) == 1
    with pytest.raises(RowDecodeError, match="levels deep"):
        features({"": record})


def test_a_value_may_be_longer_than_a_path_and_is_hashed_as_a_whole() -> None:
    text = "x" * 10_000
    assert features({"a": text}) == [(f"a={text}", 1.0)]


def test_a_verdict_does_not_depend_on_what_was_seen_before() -> None:
    mapping, path = FeatureMap(), "a" * 20
    assert mapping.features_of({path: 1}) == [(path, 1.0)]
    narrow = Flattener(mapping, path_bytes_max=10)
    with pytest.raises(RowDecodeError, match="20 bytes"):
        narrow.add({path: 1})
