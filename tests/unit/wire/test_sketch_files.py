"""A sketch that was saved is loaded bit for bit, with its names; what is no such file is refused by a FormatError."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sfd_stream import FormatError, HashedColumns, MergedSketch, Sketch, SparseFrequentDirections
from sfd_stream.reader.merged import merge
from sfd_stream.wire.sketch_files import load_snapshot, save_snapshot
from sfd_stream.wire.snapshots import decode_snapshot
from tests.unit.reader.made import rows_of, sketch_of, snapshot
from tests.unit.sketch.matrices import Case, cases, examples


def test_a_snapshot_keeps_its_partition_and_offset_in_a_file(tmp_path: Path) -> None:
    published = snapshot(sketch_of(rows_of(3)), 3, partitions=4, next_offset=77)
    save_snapshot(published, tmp_path / "one.sketch")
    found = load_snapshot(tmp_path / "one.sketch")
    assert (found.id, found.partitions, found.next_offset) == (published.id, 4, 77)
    assert [file.name for file in tmp_path.iterdir()] == ["one.sketch"], "no temporary file is left"


@given(cases(rows=(1, 60)), st.booleans(), st.booleans())
@examples(20)
def test_a_saved_sketch_is_loaded_bit_for_bit(
    tmp_path_factory: pytest.TempPathFactory, case: Case, single: bool, sums: bool
) -> None:
    file = tmp_path_factory.getbasetemp() / "one.sketch"
    sketch = case.built().sketch().astype("float32" if single else "float64")
    sketch = sketch if sums else replace(sketch, column_sums=None)
    sketch.save(file)
    assert Sketch.load(file) == sketch
    assert Sketch.load(str(file)).matrix.dtype == sketch.matrix.dtype


def test_integers_in_float32_lose_nothing_by_saving(tmp_path: Path) -> None:
    sketch = sketch_of(np.eye(3)).astype("float32")
    sketch.save(tmp_path / "one")
    assert Sketch.load(tmp_path / "one") == sketch
    assert sketch.astype("float32") == sketch


def test_a_sketch_without_rows_is_loaded_too(tmp_path: Path) -> None:
    sketch = sketch_of(np.zeros((0, 5)))
    sketch.save(tmp_path / "one")
    assert Sketch.load(tmp_path / "one") == sketch


def test_names_are_kept(tmp_path: Path) -> None:
    model = SparseFrequentDirections(ell=4, features=HashedColumns(64, 3)).fit([{"sun": 2, "sea": 1}, {"moon": 1}])
    model.sketch().save(tmp_path / "one")
    loaded = Sketch.load(tmp_path / "one")
    assert loaded == model.sketch()
    assert loaded.top(1)[0][:2] == model.sketch().top(1)[0][:2]
    assert loaded.project([{"sun": 1}]).tolist() == model.sketch().project([{"sun": 1}]).tolist()


def test_a_merged_sketch_keeps_its_partitions(tmp_path: Path) -> None:
    parts = [snapshot(sketch_of(rows_of(p)), p, partitions=3, columns="hashed", hash_seed=1) for p in (0, 1)]
    merged = merge([replace(part, names={p: f"word{p}"}) for p, part in enumerate(parts)], 2000.0)
    merged.save(tmp_path / "one")
    loaded = MergedSketch.load(tmp_path / "one")
    assert loaded.sketch == merged.sketch
    for name in ("parts", "missing", "names", "columns", "hash_seed", "partitions", "ages_s", "complete"):
        assert getattr(loaded, name) == getattr(merged, name), name
    assert Sketch.load(tmp_path / "one") == merged.sketch


def test_the_file_is_a_snapshot_as_it_is_published(tmp_path: Path) -> None:
    sketch = sketch_of(rows_of(0))
    sketch.save(tmp_path / "one")
    assert decode_snapshot((tmp_path / "one").read_bytes()).sketch == sketch


@given(st.binary(max_size=200) | st.integers(0, 10**6), st.integers(0, 255))
@settings(max_examples=100, deadline=None)
def test_junk_and_damage_are_format_errors(
    tmp_path_factory: pytest.TempPathFactory, junk: bytes | int, byte: int
) -> None:
    file = tmp_path_factory.getbasetemp() / "junk.sketch"
    if isinstance(junk, int):
        sketch_of(rows_of(0)).save(file)
        data = bytearray(file.read_bytes())
        data[junk % len(data)] ^= byte or 1
        file.write_bytes(data)
    else:
        file.write_bytes(junk)
    for load in (Sketch.load, MergedSketch.load):
        with pytest.raises(FormatError, match=r"junk\.sketch"):
            load(file)


def test_no_more_is_read_or_allocated_than_allowed(tmp_path: Path) -> None:
    file = tmp_path / "one"
    sketch_of(rows_of(0)).save(file)
    with pytest.raises(FormatError, match="max_bytes"):
        Sketch.load(file, max_bytes=500)
    with pytest.raises(FormatError, match="max_bytes"):
        Sketch.load(file, max_bytes=50)
    os.mkfifo(tmp_path / "fifo")
    with pytest.raises(FormatError, match="is not a regular file"):
        Sketch.load(tmp_path / "fifo")
    with pytest.raises(FileNotFoundError):
        Sketch.load(tmp_path / "nothing")


def test_saving_replaces_the_file_as_a_whole(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / "one"
    sketch_of(rows_of(0)).save(file)
    sketch_of(rows_of(1)).save(file)
    assert Sketch.load(file) == sketch_of(rows_of(1))

    def full(*_: Any) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(Path, "replace", full)
    with pytest.raises(OSError, match="No space left"):
        sketch_of(rows_of(2)).save(file)
    assert Sketch.load(file) == sketch_of(rows_of(1))
    assert [one.name for one in tmp_path.iterdir()] == ["one"]
