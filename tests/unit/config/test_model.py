"""The settings as one tree: frozen, equal by value, checked also when built in code."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from pydantic import ValidationError

from sfd_stream.config import Settings, load
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
