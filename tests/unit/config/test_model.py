"""The settings as one tree: frozen, equal by value, checked also when built in code."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from pydantic import ValidationError

from sfd_stream.config import Settings, load
from sfd_stream.config.model import CheckpointSettings, InputSettings, SketchSettings
from tests.unit.config.test_load import written

if TYPE_CHECKING:
    from pathlib import Path


def test_settings_are_frozen_and_equal_by_value(tmp_path: Path) -> None:
    one, two = (load(written(tmp_path), environ={}).settings for _ in range(2))
    assert one == two
    assert hash(one) == hash(two)
    with pytest.raises(ValidationError):
        one.sketch.ell = 3  # type: ignore[misc]
    with pytest.raises(TypeError):
        one.kafka["group.id"] = "x"  # type: ignore[index]


def test_the_tree_checks_itself_when_built_in_code() -> None:
    tree: dict[str, Any] = {
        "kafka": {"bootstrap.servers": "h:1", "group.id": "g"},
        "input": {"topic": "rows"},
        "sketch": {"d": 10},
        "checkpoint": {"url": "memory://"},
    }
    with pytest.raises(ValidationError, match=r"sketch\.ell must be at most sketch\.d"):
        Settings.model_validate(tree)
    tree["sketch"]["ell"] = 10
    assert Settings.model_validate(tree).sketch.ell == 10


def test_the_scorer_has_a_group_and_a_topic_of_states_next_to_those_that_are_set() -> None:
    settings = Settings.model_validate(
        {
            "kafka": {"bootstrap.servers": "h:1", "group.id": "g"},
            "input": {"topic": "rows"},
            "sketch": {"d": 100},
            "checkpoint": {"url": "memory://"},
            "snapshot": {"topic": "sketches"},
            "score": {"topic": "scores"},
        }
    )
    assert (settings.group, settings.score_group, settings.score_state_topic) == ("g", "g-score", "scores-state")


def test_each_setting_has_a_description_of_one_line() -> None:
    for section in (InputSettings, SketchSettings, CheckpointSettings):
        for name, field in section.model_fields.items():
            assert field.description, name
            assert "\n" not in field.description, name
