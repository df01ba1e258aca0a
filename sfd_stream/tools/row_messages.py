"""Matrices and bags of words as messages, each with its counts, in the format that was asked for."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
import scipy.sparse as sp

from sfd_stream.errors import RowDecodeError, SettingsError
from sfd_stream.tools.produce import RowMessage
from sfd_stream.wire.formats.from_json import read_json
from sfd_stream.wire.rows.decode import encode_row, encode_rows

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from sfd_stream.wire.features import FeatureMap

Format = Literal["list", "packed", "blocks"]


def matrix_messages(blocks: Iterable[Any], *, form: Format, rows_per_message: int) -> Iterator[RowMessage]:
    """One message a row (list, packed) or one for each `rows_per_message` rows (blocks)."""
    if form == "blocks":
        for matrix in _regrouped(blocks, rows_per_message):
            values = encode_rows(_narrowed(matrix), packed=True, rows_per_message=rows_per_message)
            yield from _counted(values, matrix, rows_per_message)
    else:
        for matrix in blocks:
            yield from _counted(encode_rows(_narrowed(matrix), packed=form == "packed"), matrix, 1)


def bag_messages(bags: Iterable[Mapping[str, int]]) -> Iterator[RowMessage]:
    """One friendly message a bag, its words as features: for hashed columns."""
    for bag in bags:
        counts = list(bag.values())
        value = encode_row(list(bag), counts, packed=False)
        yield RowMessage(value, 1, len(counts), float(sum(count * count for count in counts)))


def json_messages(lines: Iterable[bytes], mapping: FeatureMap) -> Iterator[RowMessage]:
    """One message a line, as it is; counted as a worker with this mapping counts it. A bad record is an error."""
    for number, line in enumerate(lines, start=1):
        try:
            rows = [mapping.features_of(record) for record in mapping.records_of(read_json(line))]
        except RowDecodeError as error:
            raise SettingsError(f"record {number} is bad ({error.reason}): {error}") from None
        added: list[Counter[str]] = [Counter() for _ in rows]
        for row, total in zip(rows, added, strict=True):
            for name, value in row:
                total[name] += value  # type: ignore[assignment]  # a Counter of floats
        values = [value for total in added for value in total.values() if value]
        yield RowMessage(line, len(rows), len(values), float(sum(value * value for value in values)))


def _counted(values: Iterable[bytes], matrix: Any, step: int) -> Iterator[RowMessage]:
    """Each message with the counts of the `step` rows that are in it."""
    squares = _row_squares(matrix)
    for value, start in zip(values, range(0, matrix.shape[0], step), strict=True):
        stop = min(start + step, matrix.shape[0])
        nnz = int(matrix.indptr[stop] - matrix.indptr[start])
        yield RowMessage(value, stop - start, nnz, float(squares[start:stop].sum()))


def _regrouped(blocks: Iterable[Any], rows_per_message: int) -> Iterator[Any]:
    """Blocks whose rows are a multiple of `rows_per_message`, but for the last one."""
    rest = None
    for block in blocks:
        whole = block if rest is None else _stacked(rest, block)
        cut = whole.shape[0] - whole.shape[0] % rows_per_message
        if cut:
            yield whole[:cut]
        rest = whole[cut:] if cut < whole.shape[0] else None
    if rest is not None:
        yield rest


def _stacked(above: Any, below: Any) -> Any:
    """Files without a width give blocks that are as wide as their largest index."""
    width = max(above.shape[1], below.shape[1])
    above.resize(above.shape[0], width)
    below.resize(below.shape[0], width)
    return sp.vstack([above, below], format="csr")


def _narrowed(matrix: Any) -> Any:
    """As float32 where that loses nothing: half the bytes of counts and signs."""
    narrow = matrix.astype(np.float32)
    return narrow if np.array_equal(narrow.data, matrix.data) else matrix


def _row_squares(matrix: Any) -> Any:
    """The squared norm of each row."""
    return matrix.power(2).sum(axis=1)
