"""Snapshots on the wire: whole and certified after the journey, every damage an error, version 1 for ever."""

from __future__ import annotations

import hashlib
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import msgpack
import numpy as np
import pytest
import zstandard
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from sfd_stream.errors import ChecksumError, FormatError, NewerFormatError
from sfd_stream.sketch.sketch import Sketch
from sfd_stream.wire import snapshots
from sfd_stream.wire.columns import FixedColumns, GrowingColumns, HashedColumns
from sfd_stream.wire.snapshot_ids import SnapshotId, SnapshotPart
from sfd_stream.wire.snapshots import (
    Reference,
    Snapshot,
    SnapshotEncoder,
    decode_message,
    decode_snapshot,
    encode_reference,
    encode_snapshot,
    message_of,
    reference_to,
    resolve,
)

GOLDEN = Path(__file__).parent / "golden"
PAGE = (Path(__file__).parents[3] / "docs" / "reference" / "formats.md").read_text()
ID = SnapshotId("cluster-1", "words", "rows", 3, 7, 41)
SKETCH = Sketch(
    matrix=np.array([[3.0, 0.0, -0.1], [0.0, 1e-300, 2.0]]),
    ell=2,
    delta=0.25,
    failure_probability=0.01,
    rows=12,
    nnz=30,
    squared_frobenius=13.5,
    column_sums=np.array([3.0, 0.0, 2.0]),
    weight=12.0,
    shrinks=4,
    rounding=1e-14,
)
SNAPSHOT = Snapshot(ID, 8, 2**40, 1700000000.25, SKETCH, "hashed", 5, {0: "sun", 2: "moon \u263e"})
MERGED = replace(
    SNAPSHOT,
    id=replace(ID, topic="world", partition=0),
    partitions=1,
    merged_from=tuple(SnapshotPart(replace(ID, partition=p), 8, 100 + p, 6, 1700000000.0) for p in (0, 3)),
    dtype="float32",
)
REFERENCE = Reference(ID, "s3://bucket/prefix", "words/rows/3/blobs/x-snapshot", 1234, bytes(range(16)))
GOLDENS = {"snapshot-1.bin": SNAPSHOT, "merged-1.bin": MERGED}


def same(a: Snapshot, b: Snapshot) -> bool:
    return replace(a, sketch=None) == replace(b, sketch=None) and a.sketch == b.sketch  # type: ignore[arg-type]


# -- round trips ---------------------------------------------------------------------------------------------


@settings(max_examples=40, deadline=None)
@given(
    hnp.arrays(np.float64, st.tuples(st.integers(0, 4), st.integers(1, 6)), elements=st.floats(-1e150, 1e150)),
    st.booleans(),
    st.integers(0, 2**64 - 1),
    st.text(min_size=1, max_size=5),
)
def test_what_is_encoded_comes_back_bit_for_bit(B: Any, with_sums: bool, offset: int, name: str) -> None:
    d = B.shape[1]
    sums = np.arange(float(d)) if with_sums else None
    made = replace(
        SNAPSHOT,
        next_offset=offset,
        sketch=replace(SKETCH, matrix=B, ell=4, column_sums=sums),
        names={d - 1: name},
        id=replace(ID, group=name, window=name),
    )
    assert same(decode_snapshot(encode_snapshot(made)), made)


@pytest.mark.parametrize("rows", [1, 40, 400])
def test_the_seal_is_what_any_msgpack_writes(rows: int) -> None:
    """Bodies of every size of length: the seal is put together by hand."""
    matrix = np.random.default_rng(0).standard_normal((rows, 30))
    encoded = encode_snapshot(replace(SNAPSHOT, sketch=replace(SKETCH, matrix=matrix, column_sums=None), names={}))
    assert msgpack.packb(msgpack.unpackb(encoded)) == encoded
    reference = encode_reference(REFERENCE._replace(key="k"))
    assert msgpack.packb(msgpack.unpackb(reference)) == reference
    assert len(msgpack.unpackb(reference)["body"]) < 256


def test_without_column_sums_and_names_there_are_none() -> None:
    columns = HashedColumns(3, 5, names={0: "sun"})
    encoder = SnapshotEncoder("snapshots", "", 0, column_sums=False, column_names=False)
    found = decode_snapshot(encoder.encode(SKETCH, columns, ID, partitions=8, next_offset=1, made_at_s=1.0))
    assert (found.sketch.column_sums, found.names, found.hash_seed) == (None, {}, 5)


@pytest.mark.parametrize(
    ("columns", "said"),
    [(FixedColumns(3), "fixed"), (GrowingColumns(3, 9), "growing"), (HashedColumns(3, 5, names={1: "x"}), "hashed")],
)
def test_the_columns_mode_travels(columns: Any, said: str) -> None:
    encoder = SnapshotEncoder("snapshots", "", 0)
    found = decode_snapshot(encoder.encode(SKETCH, columns, ID, partitions=8, next_offset=1, made_at_s=1.0))
    assert found.columns == said
    assert (found.hash_seed, found.names) == ((5, {1: "x"}) if said == "hashed" else (None, {}))


@settings(max_examples=60, deadline=None)
@given(hnp.arrays(np.float64, (4, 5), elements=st.floats(-1e6, 1e6, width=64)))
def test_float32_is_within_the_delta_that_it_publishes(A: Any) -> None:
    """B = A has no error of its own; rounded, the error must be within what was added to delta and rounding."""
    sketch = replace(SKETCH, matrix=A, ell=4, column_sums=None, delta=0.0, rounding=0.0)
    found = decode_snapshot(encode_snapshot(replace(SNAPSHOT, sketch=sketch, names={}, dtype="float32"))).sketch
    assert found.matrix.dtype == np.float64
    values = np.linalg.eigvalsh(A.T @ A - found.matrix.T @ found.matrix)
    dust = 1e-13 * float(np.sum(A * A))
    assert values[-1] <= found.delta + dust
    assert values[0] >= -found.rounding - dust


def test_what_float32_can_not_hold_is_published_in_float64() -> None:
    sketch = replace(SKETCH, matrix=np.array([[1e39, 0.0, 1.0]]))
    found = decode_snapshot(encode_snapshot(replace(SNAPSHOT, sketch=sketch, dtype="float32")))
    assert (found.dtype, found.sketch) == ("float64", sketch)


def test_the_id_is_in_key_headers_and_value() -> None:
    message = message_of(encode_snapshot(SNAPSHOT))
    assert message.key == b"words/rows/3"
    headers = dict(message.headers)
    assert headers["sfd-schema"] == b"sfd-snapshot/1"
    assert (headers["sfd-epoch"], headers["sfd-number"], headers["sfd-cluster"]) == (b"7", b"41", b"cluster-1")
    assert SnapshotId.from_headers(message.headers) == decode_snapshot(message.value).id == ID


def test_a_window_has_room_in_key_and_id() -> None:
    windowed = replace(ID, window="2026-01-01T00:00Z")
    message = message_of(encode_snapshot(replace(SNAPSHOT, id=windowed)))
    assert message.key == b"words/rows/3@2026-01-01T00:00Z"
    assert SnapshotId.from_headers(message.headers) == windowed


def test_a_reference_leads_to_the_very_bytes() -> None:
    encoded = encode_snapshot(SNAPSHOT)
    message = reference_to(encoded, "s3://b/p", "some/key")
    assert (message.key, dict(message.headers)["sfd-schema"]) == (b"words/rows/3", b"sfd-reference/1")
    assert len(message.value) < 400
    reference = decode_message(message.value)
    assert isinstance(reference, Reference)
    assert same(resolve(reference, encoded), SNAPSHOT)
    for wrong in (encoded[:-1], encoded + b"\0", bytes([encoded[0] ^ 1]) + encoded[1:]):
        with pytest.raises(ChecksumError):
            resolve(reference, wrong)
    with pytest.raises(FormatError, match="is not in these bytes: they refer to s3://b/p/some/key"):
        decode_snapshot(message.value)


# -- damage --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "data", [encode_snapshot(SNAPSHOT), encode_reference(REFERENCE)], ids=["snapshot", "reference"]
)
def test_every_flipped_byte_and_every_other_length_is_seen(data: bytes) -> None:
    for position in range(len(data)):
        for flip in (1, 0x80, 0xFF):
            damaged = bytearray(data)
            damaged[position] ^= flip
            with pytest.raises(FormatError) as caught:
                decode_message(bytes(damaged))
            assert not isinstance(caught.value, NewerFormatError)
    for wrong in (*(data[:length] for length in range(len(data))), data + b"\0", data + data):
        with pytest.raises(FormatError):
            decode_message(wrong)


def test_a_newer_program_s_work_is_told_from_damage(monkeypatch: pytest.MonkeyPatch) -> None:
    for version, error in ((2, NewerFormatError), (0, FormatError)):
        monkeypatch.setattr(snapshots, "VERSION", version)
        other = encode_snapshot(SNAPSHOT)
        monkeypatch.undo()
        with pytest.raises(error, match=f"version {version}"):
            decode_snapshot(other)


def resealed(**changes: Any) -> bytes:
    body = msgpack.unpackb(msgpack.unpackb(encode_snapshot(SNAPSHOT))["body"])
    kept = {name: value for name, value in (body | changes).items() if value is not ...}
    return snapshots._seal("sfd-snapshot", kept)


def pressed(data: bytes) -> bytes:
    return zstandard.ZstdCompressor().compress(data)


@pytest.mark.parametrize(
    "changes",
    [
        {"id": None},
        {"id": ID.as_map() | {"epoch": "7"}},
        {"id": ID.as_map() | {"partition": True}},
        {"rows": -1},
        {"rows": 1.0},
        {"rows": True},
        {"nnz": ...},
        {"delta": float("nan")},
        {"delta": -1.0},
        {"delta": 1},
        {"d": 0},
        {"d": 2**40},
        {"d": 4},
        {"matrix_rows": 3},
        {"dtype": "float16"},
        {"dtype": ...},
        {"columns": "other"},
        {"hash_seed": "5"},
        {"matrix": b"not zstd"},
        {"matrix": "text"},
        {"matrix": None},
        {"matrix": pressed(b"\0" * 8)},
        {"matrix": pressed(np.full(6, np.nan).tobytes())},
        {"column_sums": pressed(b"")},
        {"names": b""},
        {"names": pressed(b"\xc1")},
        {"names": pressed(msgpack.packb([[0], []]))},
        {"names": pressed(msgpack.packb([[3], ["x"]]))},
        {"names": pressed(msgpack.packb([[0], [1]]))},
        {"parts": None},
        {"parts": [1]},
        {"parts": [{"id": ID.as_map()}]},
    ],
    ids=str,
)
def test_a_well_sealed_lie_is_a_format_error(changes: dict[str, Any]) -> None:
    with pytest.raises(FormatError):
        decode_snapshot(resealed(**changes))


def test_a_bomb_is_not_unpacked() -> None:
    bomb = pressed(b"\0" * 2**26)
    assert len(bomb) < 2**14
    with pytest.raises(FormatError, match="67108864 bytes where 48 belong"):
        decode_snapshot(resealed(matrix=bomb))


def test_keys_that_a_later_program_adds_are_passed_over() -> None:
    assert same(decode_snapshot(resealed(colour="blue")), SNAPSHOT)


@pytest.mark.parametrize("data", [b"", b"\x93", b"\x80", b"\xc0", b"[]", msgpack.packb({"i": [1, 2]})])
def test_what_is_no_snapshot_is_said_to_be_none(data: bytes) -> None:
    with pytest.raises(FormatError):
        decode_message(data)


def test_a_schema_of_somebody_else_is_refused() -> None:
    with pytest.raises(FormatError, match="schema 'sfd-other'"):
        decode_message(snapshots._seal("sfd-other", {}))


# -- version 1, for ever, and the page -----------------------------------------------------------------------


@pytest.mark.parametrize("name", GOLDENS)
def test_version_1_is_read(name: str) -> None:
    found = decode_snapshot((GOLDEN / name).read_bytes())
    wanted = decode_snapshot(encode_snapshot(GOLDENS[name]))
    assert same(found, wanted)


def test_version_1_of_a_reference_is_read_and_written() -> None:
    data = (GOLDEN / "reference-1.bin").read_bytes()
    assert decode_message(data) == REFERENCE
    assert encode_reference(REFERENCE) == data


def test_the_reader_of_twenty_lines_reads_what_we_write() -> None:
    (code,) = re.findall(r"^```python\n(# A snapshot.*?)^```$", PAGE, flags=re.DOTALL | re.MULTILINE)
    lines = [line for line in code.splitlines() if line.strip()]
    assert len(lines) <= 21, "twenty lines and a comment"
    assert set(re.findall(r"^import (.*)$", code, flags=re.MULTILINE)) == {"hashlib, msgpack, numpy, zstandard"}
    space: dict[str, Any] = {}
    exec(compile(code, "formats.md", "exec"), space)  # noqa: S102 - our own page
    for name, made in GOLDENS.items():
        fields = space["read_snapshot"]((GOLDEN / name).read_bytes())
        wanted = decode_snapshot(encode_snapshot(made))
        assert np.array_equal(fields["matrix"], wanted.sketch.matrix)
        assert np.array_equal(fields["column_sums"], np.asarray(wanted.sketch.column_sums))
        assert fields["names"] == wanted.names
        assert (fields["delta"], fields["rows"]) == (wanted.sketch.delta, 12)
        assert fields["id"]["number"] == 41


def test_the_page_names_every_field() -> None:
    section = PAGE.split("## Snapshots")[1]
    body = msgpack.unpackb(msgpack.unpackb(encode_snapshot(MERGED))["body"])
    reference = msgpack.unpackb(msgpack.unpackb(encode_reference(REFERENCE))["body"])
    for name in (*body, *reference, *body["id"], *body["parts"][0]):
        assert f"| `{name}` |" in section, name


def test_the_test_vector_of_the_page_is_what_the_page_says() -> None:
    section = PAGE.split("## Snapshots")[1]
    (block,) = re.findall(r"^```snapshot\n(.*?)^```$", section, flags=re.DOTALL | re.MULTILINE)
    data = bytes.fromhex(re.sub(r"#.*", "", block))
    found = decode_snapshot(data)
    assert (found.id.key, found.id.order, found.partitions, found.next_offset) == ("g/t/0", (1, 2), 1, 5)
    assert found.sketch.matrix.tolist() == [[3.0, 4.0]]
    assert found.sketch.delta == 0.5
    sealed = msgpack.unpackb(data)
    assert hashlib.sha256(b"sfd-snapshot 1 " + sealed["body"]).digest()[:16] == sealed["checksum"]
