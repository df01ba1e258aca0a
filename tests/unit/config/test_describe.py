"""Settings for people and tools: the example and the schema say what the model says, every key of it."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
import yaml

from sfd_stream.config import load
from sfd_stream.config.describe import example, schema
from sfd_stream.config.load import SECTIONS
from sfd_stream.config.sources import OPEN_SECTIONS, TOP_LEVEL
from sfd_stream.config.types import parse_size
from sfd_stream.storage.open import open_store

FOLDER = Path(__file__).parents[3] / "config"
EXAMPLE = (FOLDER / "example.yaml").read_text()


def test_the_example_is_fresh() -> None:
    assert example() == EXAMPLE, "stale: sfd-stream config schema --example > config/example.yaml"


def test_every_key_stands_there_with_its_default_and_its_sentence() -> None:
    parsed = yaml.safe_load(EXAMPLE)
    assert set(parsed) == {*OPEN_SECTIONS, *TOP_LEVEL, *SECTIONS}
    joined = re.sub(r"\n  # ", " ", EXAMPLE)
    for section, model in SECTIONS.items():
        assert set(parsed[section]) == set(model.model_fields)
        for name, field in model.model_fields.items():
            value = parse_size(parsed[section][name]) if name.endswith("_bytes") else parsed[section][name]
            assert value == (field.examples[0] if field.examples else field.default), f"{section}.{name}"
            assert field.description
            assert field.description in joined, f"{section}.{name}"
            assert field.description.endswith(".")


@pytest.mark.parametrize("file", sorted(FOLDER.glob("*.yaml")), ids=lambda file: file.name)
def test_the_files_are_right_and_open_their_stores(file: Path) -> None:
    settings = load(file, environ={}).settings
    assert open_store(settings.checkpoint.url, {k: str(v) for k, v in settings.checkpoint.options.items()})


@pytest.mark.parametrize("file", sorted(FOLDER.glob("*.yaml")), ids=lambda file: file.name)
def test_no_file_holds_a_secret(file: Path) -> None:
    assert load(file, environ={}).settings.secret_values() == frozenset()


def test_the_files_that_are_promised_are_there() -> None:
    promised = {
        "example.yaml",
        "local.yaml",
        "production-s3.yaml",
        "sasl-ssl.yaml",
        "gcs.yaml",
        "json-events.yaml",
        "avro-registry.yaml",
    }
    assert promised <= {file.name for file in FOLDER.glob("*.yaml")}


def test_the_schema_knows_every_key_and_closes_every_section() -> None:
    found = schema()
    assert found["additionalProperties"] is False
    assert set(found["properties"]) == {*OPEN_SECTIONS, *TOP_LEVEL, *SECTIONS}
    for model in SECTIONS.values():
        section = found["$defs"][model.__name__]
        assert section["additionalProperties"] is False
        assert set(section["properties"]) == set(model.model_fields)
        assert all("description" in field for field in section["properties"].values())
