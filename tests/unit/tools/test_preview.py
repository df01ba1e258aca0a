"""A preview of features: what is said about a sample is true of it."""

from __future__ import annotations

import json
from collections import Counter
from typing import Any

import numpy as np
import pytest

from sfd_stream import FeatureMap, HashedColumns
from sfd_stream.tools.preview import SHARING_MAX, chao, preview, recommended, sharing
from sfd_stream.wire.formats.from_json import read_json
from sfd_stream.wire.formats.records import PlainReader
from sfd_stream.wire.rows.part import RowLimits

EVENTS: list[dict[str, Any]] = [
    {"id": f"x{n}", "user": f"u{n % 5}", "price": 100.0, "clicks": 1, "raw": None, "secret": "s"} for n in range(100)
]


def previewed(records: list[Any], d: int = 1024, **settings: Any) -> Any:
    columns = HashedColumns(d, mapping=FeatureMap.from_settings(settings))
    messages = [record if isinstance(record, bytes) else json.dumps(record).encode() for record in records]
    return preview(messages, PlainReader(read_json), columns, RowLimits(nnz_max=1_000))


def test_the_first_rows_are_shown_as_a_worker_adds_them() -> None:
    found = previewed(EVENTS, exclude=["id", "secret"])
    columns = HashedColumns(1024, mapping=FeatureMap.from_settings({"exclude": ["id", "secret"]}))
    block, _ = columns.block_of(EVENTS[:3])
    shown = {each["column"]: each["value"] for each in found.first_rows[0]}
    end = block.indptr[1]
    assert shown == dict(zip(block.indices[:end].tolist(), block.values[:end].tolist(), strict=True))
    assert len(found.first_rows) == 3


def test_features_are_counted_and_dominating_ones_ids_and_ignored_fields_are_named() -> None:
    found = previewed(EVENTS, exclude=["secret"])
    assert (found.messages, found.rows, found.features) == (100, 100, 107)
    assert [each["feature"] for each in found.dominant] == ["price"]
    assert found.like_ids == [{"field": "id", "values": 100, "rows": 100}]
    assert found.ignored == {"secret": "excluded"}
    assert [line.partition(" ")[0] for line in found.warnings()][:2] == ["id", "price"]


def test_bad_records_have_their_reason_and_the_others_count() -> None:
    found = previewed([*EVENTS[:5], {"a": [1.0]}, *EVENTS[:5], {"a": [2.0]}, 7])
    assert found.rows == 10
    assert [(each["reason"], each["messages"], each["first"]) for each in found.bad] == [
        ("bad_field", 2, 5),
        ("bad_path", 1, 12),
    ]
    assert found.warnings()[0].startswith("3 of 13 messages are bad: a list of numbers needs vector")


@pytest.mark.parametrize(
    ("message", "reason"),
    [
        ({"a": 1e101}, "too_large"),
        ({"a": [1] * 1_001}, "over_limit"),
        ({"a": [5e99, 6e99], "a[0]": 1e100}, "too_large"),
    ],
)
def test_a_message_is_bad_in_the_preview_if_it_is_for_a_worker(message: Any, reason: str) -> None:
    found = previewed([message, {"a": "x"}], fields={"a": "vector"})
    assert [(each["reason"], each["first"]) for each in found.bad] == [(reason, 0)]
    assert found.features == 1


def test_bad_messages_that_differ_only_in_numbers_are_one_line() -> None:
    found = previewed([b'{"a": NaN}', b'{"abc": NaN}'])
    assert [each["messages"] for each in found.bad] == [2]
    assert "write null" in found.bad[0]["words"]


def test_paths_of_the_settings_that_no_record_has_are_named() -> None:
    records = [{"price": 1, "lines": [{"sku": "a"}], "geo": {"lat": None}}]
    fields = {"lines": "each", "lines.sku": "ignore", "geo.lat": "ignore", "pirce": "log1p"}
    found = previewed(records, fields=fields, exclude=["user"])
    assert found.unmatched == ["user", "pirce"]
    assert "input.features names pirce, which no record of the sample has" in found.warnings()


def test_a_sample_without_messages_is_a_warning() -> None:
    assert previewed([]).warnings() == ["there are no messages in the sample"]


def test_collisions_are_those_of_the_sample_and_a_recommended_d_has_few() -> None:
    found = previewed([{"word": [f"w{n}" for n in range(400)]}], d=256)
    places = Counter(HashedColumns(256).column_of(f"word=w{n}")[0] for n in range(400))
    assert found.sharing == sum(count for count in places.values() if count > 1)
    assert sharing(found.features_estimated, found.d_recommended) <= SHARING_MAX
    assert sharing(found.features_estimated, found.d_recommended // 2) > SHARING_MAX
    assert any("consider sketch.d" in line for line in found.warnings())


def test_the_estimate_of_the_topics_features_is_near_for_a_uniform_vocabulary() -> None:
    rng = np.random.default_rng(0)
    seen = Counter(map(str, rng.integers(0, 1000, 1500).tolist()))
    assert len(seen) < 800
    assert 850 < chao(seen) < 1150
    assert recommended(0) == 2
