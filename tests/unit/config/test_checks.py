"""Settings that are right one by one and wrong together: each problem names the keys that it is about."""

from __future__ import annotations

from typing import Any

import pytest

from sfd_stream.config.checks import problems
from sfd_stream.config.model import Settings

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
