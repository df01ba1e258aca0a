"""Writes a merged sketch to files that other programs read: .npz, .csv, .mtx. Without pickle."""

from __future__ import annotations

import csv
from collections.abc import Callable
from pathlib import Path
from types import MappingProxyType

import numpy as np
import scipy.io

from sfd_stream.errors import NoSnapshotError, SettingsError
from sfd_stream.reader.merged import MergedSketch
from sfd_stream.reader.report import numbers_of
from sfd_stream.sketch.sketch import at_most


def export(merged: MergedSketch, file: Path, k: int | None = None) -> None:
    """Writes the format of the file's suffix. `k` limits the directions of a table (.csv) and of .npz."""
    if file.suffix not in FORMS:
        raise SettingsError(f"{file} must end in {', '.join(FORMS)}: the ending selects the format")
    try:
        FORMS[file.suffix](merged, file, k)
    except OSError as error:
        raise SettingsError(f"can't write {file}: {error.strerror}") from None


def _npz(merged: MergedSketch, file: Path, k: int | None) -> None:
    """B, its directions, the exact counters, names and the missing partitions. `numpy.load(file)` reads them by name.

    The directions are over columns; multiplied by `name_signs` they are over names.
    """
    k = at_most(k, merged)
    by_column = {name: getattr(merged, name) for name in ("column_sums", "column_squares")}
    columns = np.array(sorted(merged.names), dtype=np.int64)
    signs = np.ones(len(columns)) if merged.features is None else merged.features.signs()[columns]
    arrays = {
        "matrix": merged.sketch.matrix,
        "components": merged.components(k),
        "singular_values": merged.singular_values(k),
        **{name: sums for name, sums in by_column.items() if sums is not None},
        "name_columns": columns,
        "name_signs": signs,
        "names": np.array([merged.names[column] for column in sorted(merged.names)], dtype=np.str_),
        "partitions": np.array(merged.partitions, dtype=np.str_),
        "missing": np.array(merged.missing, dtype=np.str_),
        **{name: np.array(value) for name, value in numbers_of(merged).items()},
    }
    np.savez_compressed(file, allow_pickle=False, **arrays)


def _csv(merged: MergedSketch, file: Path, k: int | None) -> None:
    """The long table: component, column, name, weight."""
    table = merged.to_table(at_most(k, merged))
    with file.open("w", newline="", encoding="utf-8") as stream:
        writer = csv.writer(stream)
        writer.writerow(table)
        writer.writerows(zip(*(values.tolist() for values in table.values()), strict=True))


def _mtx(merged: MergedSketch, file: Path, _: int | None) -> None:
    """B as MatrixMarket, with its guarantee in the comment."""
    if not merged.sketch.matrix.size:
        raise NoSnapshotError(
            f"{file} is not written: the sketch has no rows yet, and MatrixMarket cannot hold an empty sketch"
        )
    state = "whole" if merged.complete else f"INCOMPLETE, without {', '.join(merged.missing)}"
    comment = f" {merged.rows} rows, delta {merged.delta!r}: 0 <= A'A - B'B <= delta; {state}"
    with file.open("wb") as stream:
        scipy.io.mmwrite(stream, merged.sketch.matrix, comment=comment, precision=17)


Write = Callable[[MergedSketch, Path, int | None], None]
FORMS: MappingProxyType[str, Write] = MappingProxyType({".npz": _npz, ".csv": _csv, ".mtx": _mtx})
