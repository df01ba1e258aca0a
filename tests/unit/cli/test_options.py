"""The settings of a command: its file, this process's environment, its --set flags; the last wins."""

from __future__ import annotations

from pathlib import Path

import pytest

from sfd_stream.cli.options import settings_from
from sfd_stream.errors import SettingsError

EXAMPLE = Path(__file__).parents[3] / "config" / "example.yaml"


def test_a_flag_wins_over_the_environment_and_the_environment_over_the_file(monkeypatch: pytest.MonkeyPatch) -> None:
    in_file = settings_from(EXAMPLE, None).settings.sketch.ell
    monkeypatch.setenv("SFD_SKETCH__ELL", str(in_file + 1))
    assert settings_from(EXAMPLE, None).settings.sketch.ell == in_file + 1
    assert settings_from(EXAMPLE, [f"sketch.ell={in_file + 2}"]).settings.sketch.ell == in_file + 2


def test_without_a_file_the_error_says_how_to_begin_one() -> None:
    with pytest.raises(SettingsError, match='"sfd-stream config schema --example" prints one to begin with'):
        settings_from(None, None)
    with pytest.raises(SettingsError) as refused:
        settings_from(EXAMPLE, ["sketch.el=5"])
    assert "--example" not in str(refused.value)
