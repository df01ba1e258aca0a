"""`config check|show|schema`."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING

import yaml

from sfd_stream.cli import main
from sfd_stream.cli.commands.config import COMMANDS

if TYPE_CHECKING:
    import pytest

SECRET = "hunter2-hunter2"
EXAMPLE = str(Path(__file__).parents[4] / "config" / "example.yaml")


def test_the_group_has_these_commands() -> None:
    assert list(COMMANDS) == ["check", "show", "schema"]


def test_check_says_yes_or_lists_everything_that_is_wrong(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["config", "check", "--config", EXAMPLE]) == 0
    assert capsys.readouterr() == ("the settings are right\n", "")
    assert main(["config", "check", "--config", EXAMPLE, "--set", "sketch.el=5", "--set", "http.port=-1"]) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert err == (
        "error: 2 settings are wrong:\n"
        "  sketch.el is not a setting; did you mean sketch.ell? (--set)\n"
        "  http.port must be at least 0, not '-1' (--set)\n"
    )


def test_check_answers_in_json_with_the_same_exit_code(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["config", "check", "-c", EXAMPLE, "--json"]) == 0
    assert json.loads(capsys.readouterr().out) == {"ok": True, "problems": []}
    assert main(["config", "check", "-c", EXAMPLE, "--set", "sketch.el=5", "--json"]) == 2
    out, err = capsys.readouterr()
    assert json.loads(out)["problems"] == ["sketch.el is not a setting; did you mean sketch.ell? (--set)"]
    assert err == ""


def test_show_tells_values_and_origins_and_no_secret(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SFD_KAFKA__SASL_PASSWORD", SECRET)
    arguments = ["config", "show", "-c", EXAMPLE, "--set", f"checkpoint.url=s3://key:{SECRET}@bucket"]
    arguments += ["--set", "checkpoint.options.region=eu"]
    assert main(arguments) == 0
    assert main([*arguments, "--json"]) == 0
    out = capsys.readouterr().out
    assert SECRET not in out
    shown = json.loads(out[out.index("{\n") :])
    assert shown["kafka.sasl.password"] == {"value": "***", "origin": "SFD_KAFKA__SASL_PASSWORD"}
    assert shown["checkpoint.url"] == {"value": "s3://***@bucket", "origin": "--set"}
    assert shown["checkpoint.options.region"] == {"value": "eu", "origin": "--set"}
    assert shown["sketch.ell"]["origin"].startswith(EXAMPLE + ":")
    assert "***" in out[: out.index("{\n")]


def test_the_file_may_be_named_in_the_environment(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SFD_CONFIG", EXAMPLE)
    assert main(["config", "check"]) == 0
    capsys.readouterr()


def test_schema_is_json_and_the_example_is_yaml(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["config", "schema"]) == 0
    assert json.loads(capsys.readouterr().out)["title"] == "Settings"
    assert main(["config", "schema", "--example"]) == 0
    assert yaml.safe_load(capsys.readouterr().out)["sketch"]["ell"] == 50
    assert main(["config", "schema", "--example", "--json"]) == 2
