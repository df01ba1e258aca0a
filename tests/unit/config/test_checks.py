"""Settings that are right one by one and wrong together: each problem names the keys that it is about."""

from __future__ import annotations

from typing import Any

import pytest

from sfd_stream.config.checks import P_MIN, problems
from sfd_stream.config.model import Settings
from sfd_stream.config.types import Thresholds
from sfd_stream.wire.score_states import RECENT_ROWS

KAFKA = {"bootstrap.servers": "b:1", "group.id": "g"}
GOOD: dict[str, Any] = {
    "kafka": KAFKA,
    "input": {"topic": "rows"},
    "sketch": {"d": 100},
    "checkpoint": {"url": "memory://x"},
}


def found(**changes: Any) -> list[str]:
    return [problem.keys[0] for problem in problems(Settings.model_construct(**sections(**changes)))]


def sections(**changes: Any) -> dict[str, Any]:
    whole = Settings.model_validate(GOOD)
    given = {name: getattr(whole, name) for name in Settings.model_fields}
    return given | {name: given[name].model_copy(update=value) for name, value in changes.items()}


def test_good_settings_have_no_problem() -> None:
    assert found() == []


@pytest.mark.parametrize(
    ("changes", "key"),
    [
        ({"sketch": {"d": None}}, "sketch.d"),
        ({"snapshot": {"topic": "rows"}}, "snapshot.topic"),
        ({"sketch": {"buffer_max_bytes": 2**40}}, "sketch.buffer_max_bytes"),
    ],
)
def test_a_problem_names_the_key_to_correct(changes: dict[str, Any], key: str) -> None:
    assert found(**changes) == [key]


SCORES = {"snapshot": {"topic": "sketches"}, "score": {"topic": "scores"}}


@pytest.mark.parametrize(
    ("changes", "key"),
    [
        ({"score": {"topic": "rows"}}, "score.topic"),
        ({"score": {"state_topic": "scores"}}, "score.state_topic"),
        ({"snapshot": {"topic": None}}, "snapshot.topic"),
        ({"snapshot": {"column_sums": False}}, "score.centred"),
        ({"score": {"group": "g"}}, "score.group"),
        ({"score": {"pinned": "abc"}}, "score.pinned"),
        ({"score": {"topic": None}, "drift": {"reference": "abc"}}, "drift.reference"),
        ({"score": {"k": 101}, "sketch": {"ell": 100}}, "score.k"),
        ({"score": {"when": Thresholds(p_max=1e-6)}}, "score.when"),
    ],
)
def test_a_scorer_that_could_not_score_or_report_is_refused(changes: dict[str, Any], key: str) -> None:
    given = {name: {**SCORES.get(name, {}), **changes.get(name, {})} for name in {**SCORES, **changes}}
    assert found(**given) == [key]


@pytest.mark.parametrize(
    "score",
    [{"k": 100}, {"k": 101, "basis": "pinned"}, {"when": Thresholds(p_max=P_MIN)}, {"when": Thresholds(t2_min=1e-9)}],
)
def test_a_scorer_that_can_score_has_no_problem(score: dict[str, Any]) -> None:
    assert found(**{**SCORES, "score": {**SCORES["score"], **score}, "sketch": {"ell": 100}}) == []


def test_the_least_p_value_is_that_of_the_longest_histogram() -> None:
    assert pytest.approx(3 / (2 * RECENT_ROWS)) == P_MIN
