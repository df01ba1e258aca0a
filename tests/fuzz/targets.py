"""The decoders, what each may raise, and good inputs to start from.

Sealed formats carry a checksum. Their inputs are the bytes inside the seal, which the target seals again: a changed
message then gets past the checksum, as one of an attacker would.
"""

from __future__ import annotations

import contextlib
import json
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import scipy.sparse as sp

from sfd_stream.config import load
from sfd_stream.errors import FormatError, RowDecodeError, SettingsError
from sfd_stream.state.manifest import decode_manifest
from sfd_stream.state.offset_metadata import state_id_in
from sfd_stream.wire import score_histograms, snapshots
from sfd_stream.wire.columns import Columns, FixedColumns, GrowingColumns, HashedColumns
from sfd_stream.wire.formats.from_json import read_json
from sfd_stream.wire.frames import decode_arrays, decode_frame, encode_frame
from sfd_stream.wire.rows.decode import DecodedBatch, decode
from sfd_stream.wire.rows.encode import encode_row, encode_rows
from sfd_stream.wire.rows.part import RowLimits
from sfd_stream.wire.rows.read_any import read_message
from tests.fuzz.engine import Run

ROOT = Path(__file__).parents[2]
GOLDEN = ROOT / "tests" / "unit" / "wire" / "golden"
LIMITS = RowLimits(message_bytes_max=3_000, nnz_max=200, rows_max=50, string_bytes_max=20)
BYTES_MAX = 2**20
COPIES = 40
"""Batches of at least this many messages take the fast readers."""


@dataclass(frozen=True)
class Target:
    run: Run
    inputs: tuple[bytes, ...]


# Rows


def rows(columns: Columns) -> Run:
    """Alone and in a batch, by the fast readers and the general one, a message is the same rows or the same fault."""
    hashed = isinstance(columns, HashedColumns)

    def run(data: bytes) -> None:
        alone, many = decode([data], columns, LIMITS), decode([data] * COPIES, columns, LIMITS)
        assert [error.reason for _, error in many.bad] == [error.reason for _, error in alone.bad] * COPIES
        assert _same_rows(many, alone)
        try:
            read_message(data, LIMITS, hashed=hashed)
        except RowDecodeError:
            assert alone.bad, "the general reader refuses what a fast one takes"

    return run


def _same_rows(many: DecodedBatch, alone: DecodedBatch) -> bool:
    """`many` has the rows of `alone`, `COPIES` times."""
    one, all_ = alone.block, many.block
    return (
        all_.rows == COPIES * one.rows
        and np.array_equal(all_.indices, np.tile(one.indices, COPIES))
        and np.tile(one.values, COPIES).tobytes() == all_.values.tobytes()
        and np.array_equal(np.diff(all_.indptr), np.tile(np.diff(one.indptr), COPIES))
    )


def row_inputs() -> tuple[bytes, ...]:
    block = sp.csr_array(np.array([[0.0, 1.5, 0.0], [2.0, 0.0, -3.0], [0.0, 0.0, 0.0]]))
    plain = encode_row([3, 17], [1.0, 2.5])
    lists = b"\x82\xa1i\x92\x03\x11\xa1v\x92\xcb\x3f\xf0\x00\x00\x00\x00\x00\x00\x02"
    as_map = b"\x82\x03\xcb\x3f\xf0\x00\x00\x00\x00\x00\x00\x11\x02"
    names = b"\x82\xa1i\x92\xa3sun\xa3sea\xa1v\x92\x01\x02"
    return (plain, lists, as_map, names, b"\x80", *encode_rows(block, rows_per_message=3))


# Sealed formats


def refusing(read: Callable[[bytes], object], *allowed: type[Exception]) -> Run:
    """May raise `allowed` and nothing else."""

    def run(data: bytes) -> None:
        with contextlib.suppress(*allowed):
            read(data)

    return run


def _sealed(schema: str, body: bytes) -> bytes:
    digest = snapshots._sum_of(schema, snapshots.VERSION, body)
    return snapshots._head(schema, snapshots.VERSION, digest, len(body)) + body


def _body(name: str) -> bytes:
    return bytes(snapshots._unpacked((GOLDEN / name).read_bytes(), "golden")["body"])


def _payload(name: str) -> bytes:
    return bytes(decode_frame((GOLDEN / name).read_bytes()))


def _settings(data: bytes) -> None:
    with tempfile.NamedTemporaryFile(suffix=".yaml") as file:
        file.write(data)
        file.flush()
        load(Path(file.name), environ={})


def targets() -> dict[str, Target]:
    formats = FormatError
    snapshot_bodies = (_body("snapshot-1.bin"), _body("merged-1.bin"))
    record = json.dumps({"user": {"id": 7, "tags": ["a", "b"]}, "price": 1.5, "ok": True, "none": None}).encode()
    return {
        "rows-fixed": Target(rows(FixedColumns(50)), row_inputs()),
        "rows-growing": Target(rows(GrowingColumns(10, 1_000)), row_inputs()),
        "rows-hashed": Target(rows(HashedColumns(64, 0)), row_inputs()),
        "json": Target(refusing(read_json, RowDecodeError), (record, b"[1, 2]", b'{"a": 1e400}')),
        "message": Target(
            refusing(lambda data: snapshots.decode_message(data, max_bytes=BYTES_MAX), formats),
            tuple((GOLDEN / f"{name}-1.bin").read_bytes() for name in ("snapshot", "merged", "reference")),
        ),
        "snapshot": Target(
            refusing(
                lambda data: snapshots.decode_snapshot(_sealed(snapshots.SNAPSHOT, data), max_bytes=BYTES_MAX), formats
            ),
            snapshot_bodies,
        ),
        "reference": Target(
            refusing(lambda data: snapshots.decode_message(_sealed(snapshots.REFERENCE, data)), formats),
            (_body("reference-1.bin"),),
        ),
        "manifest": Target(
            refusing(lambda data: decode_manifest(encode_frame("manifest", data)), formats),
            (_payload("manifest-1.bin"),),
        ),
        "frame": Target(
            refusing(decode_frame, formats), tuple(path.read_bytes() for path in sorted(GOLDEN.glob("*-1.bin")))
        ),
        "arrays": Target(
            refusing(lambda data: decode_arrays(encode_frame("sketch", data)), formats), (_payload("arrays-1.bin"),)
        ),
        "scores": Target(
            refusing(lambda data: score_histograms.decode(encode_frame("scores", data)), formats),
            (_payload("scores-1.bin"),),
        ),
        "offset-metadata": Target(
            lambda data: state_id_in(data.decode("utf-8", "replace")) and None,
            (b"sfd-state 3 14", b"sfd-state 3 014", b"unpublished"),
        ),
        "settings": Target(
            refusing(_settings, SettingsError),
            tuple(
                path.read_bytes() for path in sorted((ROOT / "config").glob("*.yaml")) if path.stat().st_size < 4_000
            ),
        ),
    }
