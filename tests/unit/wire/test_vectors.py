"""The vectors of a reference and a merge in docs/reference/formats.md are right, and so is its rule of merging."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import Any

import numpy as np

from sfd_stream import Sketch
from sfd_stream.wire.snapshots import Reference, decode_message, decode_snapshot, resolve
from tests.docs.pages import ROOT
from tests.unit.reader.made import holds, rows_of, sketch_of

PAGE = (ROOT / "docs" / "reference" / "formats.md").read_text()


def vector(kind: str) -> bytes:
    (block,) = re.findall(rf"^```{kind}\n(.*?)^```$", PAGE, flags=re.DOTALL | re.MULTILINE)
    lines = [line.partition("#") for line in block.splitlines()]
    offset = 0
    for data, _, words in lines:
        assert int(words.partition(":")[0]) == offset, f"{kind}: {words}"
        offset += len(bytes.fromhex(data))
    return b"".join(bytes.fromhex(data) for data, _, _ in lines)


def test_the_reference_refers_to_the_snapshot_above_it() -> None:
    snapshot, found = vector("snapshot"), decode_message(vector("reference"))
    assert isinstance(found, Reference)
    assert (found.id.key, found.store, found.size) == ("g/t/0", "s3://bucket/prefix", len(snapshot))
    assert resolve(found, snapshot).sketch.matrix.tolist() == [[3.0, 4.0]]


def test_the_merge_has_the_rows_of_its_parts() -> None:
    one, found = decode_snapshot(vector("snapshot")), decode_snapshot(vector("merged"))
    assert found.id.key == "merge/m/0"
    assert found.sketch.matrix.tolist() == [*one.sketch.matrix.tolist(), [1.0, 0.0]]
    assert [(part.id.key, part.rows) for part in found.parts] == [("g/t/0", one.sketch.rows), ("g/t/1", 3)]
    assert found.sketch.rows == sum(part.rows for part in found.parts)
    assert found.sketch.delta == one.sketch.delta + 0.5


def test_stacking_keeps_the_guarantee_and_one_shrink_by_the_rule_too() -> None:
    """As the page says, in numpy alone."""
    matrices = [rows_of(seed) for seed in (0, 1, 2)]
    parts = [sketch_of(A) for A in matrices]
    stacked = _stacked(parts)
    assert holds(matrices, stacked)
    ell = parts[0].ell
    _, values, directions = np.linalg.svd(stacked.matrix, full_matrices=False)
    lost = float(values[ell] ** 2)
    small = np.sqrt(np.maximum(values[:ell] ** 2 - lost, 0))[:, None] * directions[:ell]
    shrunk = _with(stacked, small, stacked.delta + lost)
    assert holds(matrices, shrunk)
    assert not holds(matrices, _with(stacked, small, lost / 2)), "without the sum it would not"


def _with(sketch: Sketch, matrix: Any, delta: float) -> Sketch:
    return replace(sketch, matrix=matrix, ell=max(len(matrix), 1), delta=delta)


def _stacked(parts: list[Sketch]) -> Sketch:
    both = Sketch.merge_all(parts)  # for the counters, which the page sums up in the same way
    return _with(both, np.vstack([part.matrix for part in parts]), sum(part.delta for part in parts))
