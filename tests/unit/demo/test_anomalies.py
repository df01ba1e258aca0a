"""Odd rows of the demo: each planted row is found, and explained by what makes it odd."""

from __future__ import annotations

import pytest

from sfd_stream.demo import anomalies, checks
from sfd_stream.sketch.sketch import Sketch

pytestmark = pytest.mark.xdist_group("claims")  # the library is read once


def test_every_planted_row_is_found_and_explained_by_what_makes_it_odd(
    truth: checks.Truth, sketch: Sketch, strongest: list[str]
) -> None:
    found = anomalies.find(truth, sketch, strongest, 6)
    assert len(found.rows) == 3
    assert max(row.p_value for row in found.rows) <= anomalies.P_MAX
    assert len(found.t2) == len(found.over_mean) == found.ordinary + 3
    assert found.false_alarms <= 5
    repeated, _, extreme = found.rows
    assert repeated.cause.share > 0.9
    assert abs(repeated.cause.actual) == 30.0
    assert extreme.reason.startswith("T²"), "only T^2 sees it: its residual is ordinary"


def test_a_planted_row_that_is_not_odd_or_is_explained_by_another_column_ends_the_demo(
    truth: checks.Truth, sketch: Sketch, strongest: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def plant(bag: checks.Bag, odd: list[str]) -> None:
        monkeypatch.setattr(anomalies, "planted", lambda *_: [anomalies.Planted("it", bag, odd)])

    ordinary = truth.kept[-1]
    plant(ordinary, list(ordinary))
    with pytest.raises(checks.DemoError, match="it was not found: its p-value is "):
        anomalies.find(truth, sketch, strongest, 6)
    plant({**ordinary, "zebra": 50}, ["giraffe"])
    with pytest.raises(checks.DemoError, match="it was explained by"):
        anomalies.find(truth, sketch, strongest, 6)


def test_the_rows_that_are_kept_back_are_not_fed_in(truth: checks.Truth) -> None:
    assert truth.rows == len(truth.messages) > 3 * (len(truth.kept) - 1)
    kept = {message.value for message in truth.encode(truth.kept)}
    repeated = sum(message.value in kept for message in truth.messages)
    assert repeated < len(kept) / 10, "some docstrings have the same words"
