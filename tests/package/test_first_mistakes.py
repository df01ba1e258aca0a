"""What a new user gives to the library by habit or by mistake is accepted, or the error says what to do instead."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import msgpack
import numpy as np
import pandas as pd
import pytest

from sfd_stream import (
    FixedColumns,
    HashedColumns,
    SettingsError,
    SketchTransformer,
    SnapshotReader,
    SparseFrequentDirections,
    covariance_error,
    decode,
    encode_row,
    encode_rows,
    projection_error,
)

ROWS = [Counter(text.split()) for text in ("sun sea sun", "moon star", "sea moon", "star night")]


def sketcher(**changes: Any) -> SparseFrequentDirections:
    return SparseFrequentDirections(ell=4, features=HashedColumns(64), **changes)


@pytest.mark.parametrize(
    "rows", [tuple(ROWS), iter(ROWS), (row for row in ROWS), pd.Series(ROWS), np.array(ROWS, dtype=object)], ids=type
)
def test_rows_by_name_may_come_in_any_row_of_them(rows: Any) -> None:
    assert sketcher().fit(rows).sketch() == sketcher().fit(ROWS).sketch()


def test_queries_take_them_too() -> None:
    sketch = sketcher().fit(ROWS).sketch()
    for rows in (pd.Series(ROWS), iter(ROWS)):
        assert np.array_equal(sketch.project(rows, 2), sketch.project(ROWS, 2))
    assert sketcher().fit(ROWS).partial_fit([]).sketch().rows == 4


def test_one_mapping_is_no_list_of_rows() -> None:
    model = sketcher().fit(ROWS)
    for refuse in (
        model.partial_fit,
        model.transform,
        model.sketch().project,
        SketchTransformer(model.sketch(), 2).fit().transform,
    ):
        with pytest.raises(ValueError, match=r"one mapping is one row: give a list of them, \[row\]"):
            refuse(ROWS[0])


@pytest.mark.parametrize("texts", [["the sun", "the sea"], [["the", "sun"]]])
def test_text_is_no_row_and_the_error_says_what_is(texts: Any) -> None:
    with pytest.raises(ValueError, match="rows must be numbers, or mappings from names to values"):
        sketcher().fit(texts)


def test_a_data_frame_for_hashed_columns_is_told_how_to_keep_its_names() -> None:
    frame = pd.DataFrame(ROWS).fillna(0)
    with pytest.raises(ValueError, match=r"expecting 64 features as input.*to_dict\('records'\)"):
        sketcher().fit(frame)
    assert sketcher().fit(frame.to_dict("records")).sketch().rows == 4


def test_a_sketcher_is_no_sketch() -> None:
    model = sketcher().fit(ROWS)
    sketch = model.sketch()
    for ask in (
        sketch.merge,
        lambda other: sketch.drift(other, 1),
        lambda other: SketchTransformer(other, k=1).fit(),
        lambda other: covariance_error(np.eye(64), other),
        lambda other: projection_error(np.eye(64), other, 1),
    ):
        with pytest.raises(TypeError, match=r"not a SparseFrequentDirections: call its sketch\(\)"):
            ask(model)


def test_a_mapping_is_encoded_with_its_values() -> None:
    """It was taken for its names alone, and every value was 1."""
    assert msgpack.unpackb(encode_row({"sun": 2, "sea": 0.5}, packed=False)) == {"i": ["sun", "sea"], "v": [2, 0.5]}
    assert encode_row({3: 1.0, 17: 2.5}) == encode_row([3, 17], [1.0, 2.5])
    with pytest.raises(ValueError, match="a mapping has its values with it"):
        encode_row({"sun": 2}, [1.0], packed=False)


@pytest.mark.parametrize("rows_per_message", [None, 1, 3])
def test_a_list_of_mappings_is_encoded_row_by_row(rows_per_message: int | None) -> None:
    columns = HashedColumns(64)
    messages = list(encode_rows(ROWS, rows_per_message=rows_per_message))
    assert len(messages) == {None: 4, 1: 4, 3: 2}[rows_per_message]
    batch = decode(messages, columns)
    assert not batch.bad
    assert np.array_equal(batch.block.csr().toarray(), columns.block_of(ROWS)[0].csr().toarray())


def test_decode_says_what_it_takes() -> None:
    for value in (b"abc", "abc"):
        with pytest.raises(TypeError, match=r"messages must be a list of bytes, not .*: decode\(\[value\], columns\)"):
            decode(value, FixedColumns(4))  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="a message must be bytes, not str"):
        decode(["abc"], FixedColumns(4))  # type: ignore[list-item]
    with pytest.raises(TypeError, match=r"columns must be FixedColumns\(d\), GrowingColumns or HashedColumns, not int"):
        decode([b"abc"], 4)  # type: ignore[arg-type]


def test_a_file_that_can_not_be_written_is_named_as_it_was_given(tmp_path: Path) -> None:
    file = tmp_path / "nowhere" / "one.sketch"
    with pytest.raises(FileNotFoundError, match=r"No such file or directory: '.*/nowhere/one\.sketch'"):
        sketcher().fit(ROWS).sketch().save(file)


def test_a_topic_is_a_text() -> None:
    with pytest.raises(SettingsError, match="topic must be a text, not int"):
        SnapshotReader("localhost:1", 5)  # type: ignore[arg-type]


def test_sketches_without_directions_are_not_asked_for_drift() -> None:
    flat = SparseFrequentDirections(ell=4).fit(np.eye(8)).sketch()
    with pytest.raises(ValueError, match="k = 2, but one of the sketches has no directions"):
        flat.drift(flat, 2)
