"""What was read, as plain values."""

from __future__ import annotations

import json

from sfd_stream.reader.merged import merge
from sfd_stream.reader.report import numbers_of, ratio_of, report
from tests.unit.reader.made import rows_of, sketch_of, snapshot

MERGED = merge([snapshot(sketch_of(rows_of(0)), 0, partitions=2)], 1010.0)


def test_a_report_says_what_is_there_and_what_is_missing() -> None:
    found = json.loads(json.dumps(report(MERGED, k=2, columns=3)))
    assert (found["complete"], found["missing"], found["rows"]) == (False, ["rows/1"], 40)
    assert [part["age_s"] for part in found["partitions"]] == [10.0]
    assert [len(direction["columns"]) for direction in found["directions"]] == [3, 3]


def test_the_share_of_a_direction_holds_its_certified_range() -> None:
    for direction in report(MERGED, k=3, columns=1)["directions"]:
        low, high = direction["share"]
        assert low <= direction["singular_value"] ** 2 / MERGED.squared_frobenius <= high
    assert numbers_of(MERGED)["delta_ratio"] == ratio_of(MERGED) == MERGED.delta / MERGED.squared_frobenius
