"""Encodes rows into messages that `decode` reads, in the form of each kind that it reads fastest.

Raises `ValueError` for rows that no decoder would accept, so that a producer's fault is found at the producer.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import accumulate, chain
from operator import index
from typing import Any

import msgpack
import numpy as np
import numpy.typing as npt
import scipy.sparse as sp

from sfd_stream.sketch.rows import RowBlock
from sfd_stream.wire.reasons import MAGNITUDE_MAX

Features = npt.ArrayLike | Sequence[str | int]
_Array = npt.NDArray[Any]


def encode_row(
    indices: Features | Mapping[Any, Any], values: npt.ArrayLike | None = None, *, packed: bool = True
) -> bytes:
    """One row as one message: `packed` as bins (values as f32 if they are float32, else f64), else as arrays.

    Without values every value is 1. String features, for hashed columns, need `packed=False`. A mapping from features
    to values has both.

    >>> from sfd_stream import encode_row
    >>> encode_row([3, 17], [1.0, 2.5], packed=False).hex(" ", -4)
    '82a16992 0311a176 92cb3ff0 00000000 0000cb40 04000000 000000'
    """
    if isinstance(indices, Mapping):
        if values is not None:
            raise ValueError("a mapping has its values with it: give either a mapping, or indices and values")
        values = list(indices.values())
        indices = list(indices)
    features = _columns(np.asarray(indices)) if packed else _features(indices)
    numbers = None if values is None else _numbers(np.asarray(values))
    if numbers is not None and len(numbers) != len(features):
        raise ValueError(f"{len(features)} indices but {len(numbers)} values")
    fields: dict[str, Any] = {"i": features.tobytes() if isinstance(features, np.ndarray) else features}
    if numbers is not None:
        fields["v"] = _packed_values(numbers).tobytes() if packed else numbers.tolist()
    return _pack(fields)


def encode_rows(rows: RowBlock | Any, *, packed: bool = True, rows_per_message: int | None = None) -> Iterator[bytes]:
    """The rows of a block or any scipy sparse matrix, in order: one row a message, or blocks of several.

    Rows may also be a list of mappings from names to values, for hashed columns; names are never packed.

    >>> from sfd_stream import encode_rows, paper_synthetic
    >>> messages = list(encode_rows(paper_synthetic(500, 50, 5, seed=0), rows_per_message=100))
    >>> len(messages)
    5
    """
    if rows_per_message is not None and rows_per_message < 1:
        raise ValueError(f"rows_per_message must be at least 1, not {rows_per_message}")
    if isinstance(rows, list | tuple) and rows and isinstance(rows[0], Mapping):
        return _named_messages(rows, rows_per_message)
    matrix = rows.csr() if isinstance(rows, RowBlock) else sp.csr_array(rows)
    encode = _packed_messages if packed else _friendly_messages
    pointers = matrix.indptr.astype(np.int64)
    return encode(pointers, _columns(matrix.indices), _numbers(matrix.data), rows_per_message)


def _packed_messages(pointers: _Array, indices: _Array, values: _Array, per_message: int | None) -> Iterator[bytes]:
    packed = _packed_values(values)
    index_bytes, value_bytes, width = indices.tobytes(), packed.tobytes(), packed.itemsize
    for cuts, low, high in _cuts(pointers, per_message):
        fields = {"i": index_bytes[4 * low : 4 * high], "v": value_bytes[width * low : width * high]}
        if per_message is not None:
            fields["p"] = cuts.astype("<u4").tobytes()
        yield _pack(fields)


def _friendly_messages(pointers: _Array, indices: _Array, values: _Array, per_message: int | None) -> Iterator[bytes]:
    for cuts, low, high in _cuts(pointers, per_message):
        fields = {"i": indices[low:high].tolist(), "v": values[low:high].tolist()}
        if per_message is not None:
            fields["p"] = cuts.tolist()
        yield _pack(fields)


def _named_messages(rows: Sequence[Mapping[Any, Any]], per_message: int | None) -> Iterator[bytes]:
    if per_message is None:
        yield from (encode_row(row, packed=False) for row in rows)
        return
    for start in range(0, len(rows), per_message):
        some = rows[start : start + per_message]
        names = _features(chain.from_iterable(some))
        values = _numbers(np.array([value for row in some for value in row.values()]))
        yield _pack({"i": names, "v": values.tolist(), "p": [0, *accumulate(map(len, some))]})


def _cuts(pointers: _Array, per_message: int | None) -> Iterator[tuple[_Array, int, int]]:
    """For each message its row pointers, from 0, and its first and last non-zero."""
    step = per_message or 1
    for start in range(0, len(pointers) - 1, step):
        cuts = pointers[start : start + step + 1]
        yield cuts - cuts[0], int(cuts[0]), int(cuts[-1])


def _pack(fields: dict[str, Any]) -> bytes:
    message: bytes = msgpack.packb(fields)
    return message


def _columns(indices: _Array) -> _Array:
    if indices.size and indices.dtype.kind not in "iu":
        raise ValueError(f"packed indices must be integers, not {indices.dtype}; strings need packed=False")
    if indices.ndim != 1 or (indices.size and not (indices.min() >= 0 and indices.max() < 2**32)):
        raise ValueError("packed indices must be one row of integers in [0, 2^32)")
    return indices.astype("<u4")


def _features(indices: Any) -> list[str | int]:
    given = indices.tolist() if isinstance(indices, np.ndarray) else list(indices)
    if any(isinstance(feature, bool | np.bool_) for feature in given):
        raise ValueError("a feature is a boolean, not an integer or a string")
    try:
        features = [feature if isinstance(feature, str) else index(feature) for feature in given]
    except TypeError as error:
        raise ValueError(f"a feature is neither an integer nor a string: {error}") from None
    if any(not isinstance(feature, str) and not -(2**63) <= feature < 2**64 for feature in features):
        raise ValueError("an integer feature does not fit 64 bits")
    return features


def _numbers(values: _Array) -> _Array:
    if values.ndim != 1 or values.dtype.kind not in "biuf":
        raise ValueError(f"values must be one row of real numbers, not {values.dtype} {values.shape}")
    numbers = values.astype(np.uint8) if values.dtype.kind == "b" else values
    if numbers.size and not (float(numbers.max()) <= MAGNITUDE_MAX and float(numbers.min()) >= -MAGNITUDE_MAX):
        raise ValueError(f"a value is NaN, infinite, or above {MAGNITUDE_MAX:g} in magnitude")
    return numbers


def _packed_values(numbers: _Array) -> _Array:
    return numbers.astype("<f4" if numbers.dtype == np.float32 else "<f8")
