"""docs/reference/formats.md says what the code does: every example and every number on its page about rows."""

from __future__ import annotations

import ast
import doctest
import json
import re
from pathlib import Path
from typing import Any

import pytest

from sfd_stream import FeatureMap
from sfd_stream.config import load
from sfd_stream.loop.intake import Intake
from sfd_stream.wire.columns import Columns, FixedColumns, HashedColumns
from sfd_stream.wire.formats.from_json import read_json
from sfd_stream.wire.formats.records import PlainReader, RecordDecoder
from sfd_stream.wire.hashing import signed_columns
from sfd_stream.wire.reasons import Reason
from sfd_stream.wire.rows import encode
from sfd_stream.wire.rows.decode import decode
from sfd_stream.wire.rows.part import RowLimits
from tests.docs.paste import limits_table

PAGE = (Path(__file__).parents[4] / "docs" / "reference" / "formats.md").read_text(encoding="utf-8")
EXAMPLES = re.findall(r"^```rows\n(.*?)^```$", PAGE, flags=re.DOTALL | re.MULTILINE)
FEATURES = re.findall(r"^\| (`.*?`) \| (\d+) \| (-?\d+) \| (\d+) \| ([+-]) \|$", PAGE, flags=re.MULTILINE)

RECORDS = re.findall(r"^```records\n(.*?)^```$", PAGE, flags=re.DOTALL | re.MULTILINE)
OF_REGISTRIES = {Reason.UNKNOWN_SCHEMA, Reason.BAD_SCHEMA}
"""Reasons that need a registry: tests/unit/wire/formats has them."""


def _parsed(example: str) -> tuple[bytes, Columns, str]:
    comment = " ".join(line for line in example.splitlines() if line.startswith("#"))
    body, expected = re.sub(r"^#.*$", "", example, flags=re.MULTILINE).split("->")
    hashed = re.search(r"hashed to (\d+) columns with seed (\d+)", comment)
    columns = HashedColumns(int(hashed[1]), int(hashed[2])) if hashed else FixedColumns(20)
    return bytes.fromhex(body), columns, expected.strip()


@pytest.mark.parametrize("crowd", [1, 50])
@pytest.mark.parametrize("example", EXAMPLES)
def test_each_example_decodes_as_the_page_says(example: str, crowd: int) -> None:
    message, columns, expected = _parsed(example)
    batch = decode([message] * crowd, columns)
    if expected in set(Reason):
        assert [(number, error.reason) for number, error in batch.bad] == [(n, expected) for n in range(crowd)]
        return
    rows = [ast.literal_eval(row) for row in re.findall(r"\{.*?\}", expected)]
    cuts = zip(batch.block.indptr[:-1], batch.block.indptr[1:], strict=True)
    decoded = [
        dict(zip(batch.block.indices[a:b].tolist(), batch.block.values[a:b].tolist(), strict=True)) for a, b in cuts
    ]
    assert decoded == rows * crowd
    assert not batch.bad


def _named(text: str) -> list[tuple[str, float]]:
    return [(name, float(value)) for name, value in re.findall(r"(\S.*?): (\S+?)(?:, |$)", text)]


@pytest.mark.parametrize("example", RECORDS)
def test_each_record_has_the_features_that_the_page_says(example: str) -> None:
    said = dict(re.findall(r"^# (input\.\w+) (.*)$", example, flags=re.MULTILINE))
    body, expected = re.sub(r"^#.*$", "", example, flags=re.MULTILINE).split("\n-> ")
    settings = json.loads(said.get("input.features", "{}"))
    mapping = FeatureMap.from_settings(settings, path=said.get("input.path"))
    columns = HashedColumns(2**20, mapping=mapping)
    batch = RecordDecoder(PlainReader(read_json)).decode([body.strip().encode()], columns, RowLimits())
    if expected.strip() in set(Reason):
        assert [error.reason for _, error in batch.bad] == [expected.strip()]
    else:
        assert not batch.bad
        assert mapping.features_of(mapping.records_of(read_json(body.encode()))[0]) == _named(expected.strip())


def test_the_page_has_an_example_of_every_reason() -> None:
    records = {example.rpartition("-> ")[2].strip() for example in RECORDS}
    assert {_parsed(example)[2] for example in EXAMPLES} | records >= set(Reason) - OF_REGISTRIES
    assert len(RECORDS) > 9
    assert len(EXAMPLES) > 30


def test_the_page_lists_just_the_reasons_there_are() -> None:
    section = PAGE.split("### Bad messages")[1].split("###")[0]
    assert set(re.findall(r"^\| `(\w+)` \|", section, flags=re.MULTILINE)) == set(Reason)


@pytest.mark.parametrize(("cell", "seed", "_hash", "column", "sign"), FEATURES)
def test_each_feature_has_the_column_of_the_page(cell: str, seed: str, _hash: str, column: str, sign: str) -> None:
    features = [ast.literal_eval(text) for text in re.findall(r"`(.*?)`", cell)]
    columns, signs = signed_columns(features, 1000, int(seed))
    assert columns.tolist() == [int(column)] * len(features)
    assert signs.tolist() == [float(sign + "1")] * len(features)
    assert int(column) == abs(int(_hash)) % 1000


def test_the_page_gives_the_settings_and_their_defaults() -> None:
    assert limits_table() in PAGE, "stale: make docs"
    assert len(FEATURES) == 7


def test_the_library_has_the_limits_of_a_worker() -> None:
    """`decode` refuses what a worker with default settings refuses."""
    given = load(None, environ={}, overrides=["kafka.bootstrap.servers=b:1", "kafka.group.id=g", "input.topic=t",
                                              "sketch.d=5", "sketch.ell=2", "checkpoint.url=memory://x"])  # fmt: skip
    intake: Any = Intake(given.settings.input, None, None)  # type: ignore[arg-type]
    assert intake.settings.limits == RowLimits()


def test_the_examples_in_docstrings_run() -> None:
    assert doctest.testmod(encode).attempted
    assert not doctest.testmod(encode).failed
