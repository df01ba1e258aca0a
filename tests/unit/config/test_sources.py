"""The sources of settings: a file, the environment, flags; what is malformed is told with its line."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from sfd_stream.config import load
from sfd_stream.config.sources import Sources
from sfd_stream.errors import SettingsError
from tests.unit.config.test_load import GOOD, problems, written

if TYPE_CHECKING:
    from pathlib import Path


def test_under_kafka_an_underscore_in_the_environment_is_a_dot_and_any_property_passes(
    tmp_path: Path,
) -> None:
    environ = {
        "SFD_KAFKA__BOOTSTRAP_SERVERS": "other:1",
        "SFD_KAFKA__SASL_OAUTHBEARER_TOKEN_ENDPOINT_URL": "https://h/t",
        "SFD_KAFKA__LOG_LEVEL": "3",
        "SFD_CHECKPOINT__OPTIONS__AWS_REGION": "eu-west-1",
    }
    settings = load(written(tmp_path), environ=environ, overrides=["kafka.isolation.level=read_uncommitted"]).settings
    assert dict(settings.kafka) == {
        "bootstrap.servers": "other:1",
        "group.id": "g",
        "sasl.oauthbearer.token.endpoint.url": "https://h/t",
        "log_level": "3",
        "isolation.level": "read_uncommitted",
    }
    assert dict(settings.checkpoint.options) == {"aws_region": "eu-west-1"}
    assert settings.group == "g"


def test_only_names_with_a_double_underscore_are_settings(tmp_path: Path) -> None:
    environ = {"SFD_TEST_BOOTSTRAP": "x", "SFD_CONFIG": "y", "SFDX__Y": "z", "OTHER__THING": "1"}
    assert load(written(tmp_path), environ=environ).settings.sketch.d == 1000


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ("a: [", "settings.yaml:2: not YAML: "),
        ("- a\n", "must hold `key: value` lines (settings.yaml:1)"),
        ("input: {topic: [a, b]}", "input.topic: must be a single value (settings.yaml:1)"),
        ("input: {topic: a}\ninput: {topic: b}", "input: given twice, first in line 1 (settings.yaml:2)"),
        (
            "kafka: {ssl: {ca: x}}",
            "kafka.ssl: write the whole name as one key, like ssl.ca.location (settings.yaml:1)",
        ),
        (
            "input: {topic: !!python/name:os.system x}",
            "settings.yaml:1: not YAML: could not determine a constructor",
        ),
    ],
)
def test_a_file_that_is_no_settings_file_is_told_by_line(tmp_path: Path, text: str, line: str) -> None:
    assert any(line in found or found.startswith(line) for found in problems(tmp_path, text + "\n"))


def test_an_absent_or_huge_file_is_a_clear_problem(tmp_path: Path) -> None:
    with pytest.raises(SettingsError, match="No such file"):
        load(tmp_path / "none.yaml", environ={})
    assert "larger than 1 MiB" in problems(tmp_path, "#" * (2**20 + 1))[0]


def test_anchors_merges_empty_sections_and_dates_read_as_one_would_expect(tmp_path: Path) -> None:
    text = (
        GOOD.replace("input:\n  topic: rows", "input: &i\n  topic: 2026-01-01") + "http:\nsnapshot:\n  <<: {topic: s}\n"
    )
    settings = load(written(tmp_path, text), environ={}).settings
    assert (settings.input.topic, settings.snapshot.topic, settings.http.port) == ("2026-01-01", "s", 9464)


def test_the_last_source_wins_key_by_key_and_each_value_keeps_its_origin() -> None:
    sources = Sources()
    sources.add_environment({"SFD_SKETCH__ELL": "5", "SFD_SKETCH__D": "100"})
    sources.add_overrides(["sketch.ell=7"])
    found = {key: (given.value, given.origin) for key, given in sources.newest().items()}
    assert found == {"sketch.ell": ("7", "--set"), "sketch.d": ("100", "SFD_SKETCH__D")}


def test_below_a_section_that_could_not_be_read_nothing_counts_as_missing(tmp_path: Path) -> None:
    sources, file = Sources(), tmp_path / "settings.yaml"
    file.write_text("kafka: 5\ninput: {topic: rows}\n")
    sources.add_file(file)
    assert sources.problems == [f"kafka: must hold `key: value` lines ({file}:1)"]
    assert (sources.was_read("kafka.group.id"), sources.was_read("input.topic")) == (False, True)
