"""A sketch as a file: the bytes of a snapshot, with what the columns mean and a checksum. Loading is bounded."""

from __future__ import annotations

import os
import stat
from dataclasses import replace
from pathlib import Path

import numpy as np

from sfd_stream.errors import FormatError
from sfd_stream.sketch.sketch import Sketch
from sfd_stream.wire.columns import FixedColumns, HashedColumns
from sfd_stream.wire.snapshot_ids import SnapshotId
from sfd_stream.wire.snapshots import MAX_BYTES, Snapshot, decode_snapshot, encode_snapshot, snapshot_of

_SAVED = SnapshotId(cluster=None, group="saved", topic="sketch", partition=0, epoch=1, number=1)


def save(sketch: Sketch, file: str | os.PathLike[str]) -> None:
    columns = sketch.features if isinstance(sketch.features, HashedColumns) else FixedColumns(sketch.d)
    dtype = "float32" if sketch.matrix.dtype == np.float32 else "float64"
    made = snapshot_of(sketch, columns, _SAVED, partitions=1, next_offset=sketch.rows, made_at_s=0.0, dtype=dtype)
    save_snapshot(made, file)


def load(file: str | os.PathLike[str], max_bytes: int | None = None) -> Sketch:
    return sketch_in(load_snapshot(file, max_bytes))


def sketch_in(snapshot: Snapshot) -> Sketch:
    """The snapshot's sketch, with the precision and the names with which it was saved."""
    sketch = snapshot.sketch
    if snapshot.dtype == "float32":  # its numbers are float32 already: no further rounding
        sketch = replace(sketch, matrix=sketch.matrix.astype(np.float32))
    return replace(sketch, features=snapshot.features)


def save_snapshot(snapshot: Snapshot, file: str | os.PathLike[str]) -> None:
    """Replaces the file as a whole: a concurrent reader gets the old one or the new one."""
    encoded, target = encode_snapshot(snapshot), Path(file)
    fresh = target.with_name(f".{target.name}.{os.getpid()}")
    try:
        fresh.write_bytes(encoded)
        fresh.replace(target)
    except OSError as error:
        raise OSError(error.errno, error.strerror, str(target)) from None
    finally:
        fresh.unlink(missing_ok=True)


def load_snapshot(file: str | os.PathLike[str], max_bytes: int | None = None) -> Snapshot:
    """Raises FormatError, with the file's name, if the file has no sketch, a damaged one, or one above `max_bytes`."""
    most = MAX_BYTES if max_bytes is None else max_bytes
    with open(file, "rb", opener=_open_at_once) as stream:
        if not stat.S_ISREG(os.fstat(stream.fileno()).st_mode):
            raise FormatError(f"{file} is not a regular file")
        value = stream.read(most + 1)
    if len(value) > most:
        raise FormatError(f"{file} has more than max_bytes = {most:,} bytes")
    try:
        return decode_snapshot(value, max_bytes=most)
    except FormatError as error:
        raise type(error)(f"{file} can't be loaded as a sketch: {error}") from error


def _open_at_once(path: str, flags: int) -> int:
    return os.open(path, flags | os.O_NONBLOCK)  # a FIFO without a writer would wait for ever
