"""Commands that read snapshots need a broker and a topic, and say what is missing."""

from __future__ import annotations

from pathlib import Path

import pytest

from sfd_stream.cli.snapshot_options import (
    client_properties,
    print_written,
    reader_of,
    some_settings,
    warn_if_incomplete,
)
from sfd_stream.errors import SettingsError
from tests.unit.cli.commands.published import SKETCHES, merged


def test_a_broker_is_required_and_has_a_short_option() -> None:
    with pytest.raises(SettingsError, match="which broker"):
        some_settings(None, None, None)
    assert some_settings(None, None, "b:1").kafka["bootstrap.servers"] == "b:1"


def test_a_topic_is_required_by_flag_or_settings() -> None:
    with pytest.raises(SettingsError, match="which topic"):
        reader_of(some_settings(None, None, "b:1"), None, None)
    with reader_of(some_settings(None, ["snapshot.topic=sketches"], "b:1"), None, None) as reader:
        assert reader.topic == "sketches"


def test_the_client_logs_errors_only_unless_the_settings_say_otherwise() -> None:
    assert client_properties(some_settings(None, None, "b:1"))["log_level"] == 2
    assert client_properties(some_settings(None, ["kafka.log_level=7"], "b:1"))["log_level"] == "7"


def test_a_missing_partition_is_named_on_standard_error(capsys: pytest.CaptureFixture[str]) -> None:
    warn_if_incomplete(merged())
    assert capsys.readouterr().err == ""
    warn_if_incomplete(merged(SKETCHES[1:]))
    assert capsys.readouterr().err == "INCOMPLETE: 1 of 2 partitions, no snapshot of rows/0\n"


def test_a_written_file_is_described(capsys: pytest.CaptureFixture[str]) -> None:
    print_written(Path("sketch.svg"), merged(), ["spectrum", "energy"], as_json=False)
    assert capsys.readouterr().out.startswith("sketch.svg: spectrum, energy of MergedSketch(")
