"""The status of a worker: one frozen value, and the JSON that says the same."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

from sfd_stream.observe.status import SpectrumStatus, age_s, as_json, rounded
from tests.support.watched import Stage


def test_the_status_is_json_that_says_what_the_value_says() -> None:
    stage = Stage()
    stage.feed(0, 50)
    stage.watch.dead_letter(1, 9, "bad_index", 'column "<b>" outside', b"\x00<script>\xff")
    stage.tick()
    [worker] = json.loads(as_json(stage.watch.status, 1.25, 4096))["workers"]
    assert worker["loop_idle_s"] == 1.25
    assert worker["partitions"][0]["rows"] == 50
    assert worker["newest_dead_letters"][0]["preview"] == "\\x00<script>\\xff"
    assert worker["dead_letters"] == {"bad_index": 1}


@pytest.mark.parametrize(
    ("value", "written"), [(0.123456789, 0.123457), (float("nan"), 0.0), (float("inf"), 0.0), (-2.0, -2.0)]
)
def test_numbers_have_six_digits_and_are_always_json(value: float, written: float) -> None:
    assert rounded(value) == written
    assert json.loads(json.dumps(rounded(value), allow_nan=False)) == written


def test_an_age_is_that_of_the_oldest_and_0_without_any() -> None:
    assert age_s(100.0, 90.0, None, 70.0) == 30.0
    assert age_s(100.0, None) == 0.0


def test_a_sample_without_rows_has_no_error() -> None:
    empty = SpectrumStatus(0, 12, 4, (), 0, 0.0, 0.0, (), 0.0)
    assert empty.delta_ratio == 0.0
    assert replace(empty, delta=1.0, squared_frobenius=4.0).delta_ratio == 0.25
