"""From settings to a decoder: msgpack rows by default, and events in a format that settings name."""

from __future__ import annotations

import json
import logging
from pathlib import Path
from typing import Any

import pytest

from sfd_stream.cli.decoder import decoder_of
from sfd_stream.config import load
from sfd_stream.errors import SettingsError
from sfd_stream.wire.formats.records import MsgpackDecoder, RecordDecoder

GIVEN = ["kafka.bootstrap.servers=b:1", "kafka.group.id=g", "input.topic=rows", "sketch.ell=4"]
NAMED = ["input.columns=hashed", "sketch.d=16"]
LOG: Any = logging.getLogger(__name__)


def decoder(*overrides: str) -> Any:
    given = [*GIVEN, "checkpoint.url=memory://x", *overrides]
    return decoder_of(load(None, environ={}, overrides=given).settings, LOG)


def test_rows_are_msgpack_unless_the_settings_name_a_format() -> None:
    assert isinstance(decoder("sketch.d=10"), MsgpackDecoder)
    assert isinstance(decoder(*NAMED, "input.format=json"), RecordDecoder)


def test_an_avro_schema_is_read_from_its_file(tmp_path: Path) -> None:
    schema = tmp_path / "click.avsc"
    schema.write_text(json.dumps({"type": "record", "name": "click", "fields": [{"name": "item", "type": "string"}]}))
    assert isinstance(decoder(*NAMED, "input.format=avro", f"input.schema={schema}"), RecordDecoder)
    schema.write_text('{"type": "recrod"}')
    with pytest.raises(SettingsError, match=r"input\.schema .*click\.avsc: "):
        decoder(*NAMED, "input.format=avro", f"input.schema={schema}")


def test_a_schema_file_that_cannot_be_read_is_named(tmp_path: Path) -> None:
    with pytest.raises(SettingsError, match="give the path of a readable file"):
        decoder(*NAMED, "input.format=avro", f"input.schema={tmp_path / 'missing.avsc'}")
