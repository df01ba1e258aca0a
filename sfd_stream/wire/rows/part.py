"""The common parts of the row readers: limits, and the rows of some messages as they were read.

A `Part` has passed every check of form (msgpack, keys, types, lengths, pointers, limits) and none of content
(columns, finite values). Two readers of the same message return the same part of it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

if TYPE_CHECKING:
    from sfd_stream.sketch.rows import Float, Int

Mask = npt.NDArray[np.bool_]
Bytes = npt.NDArray[np.uint8]


@dataclass(frozen=True, slots=True)
class RowLimits:
    """The maximum sizes of one message: the defaults, or the settings `input.max_*`.

    Nesting needs no limit: a field never contains another container.
    """

    message_bytes_max: int = 16 * 2**20
    nnz_max: int = 1_000_000
    rows_max: int = 100_000
    string_bytes_max: int = 256


@dataclass(frozen=True, slots=True)
class Part:
    """The rows of some messages, messages ascending, rows and non-zeros in the order of the bytes."""

    messages: Int  # which messages
    rows: Int  # rows of each message
    nnz: Int  # non-zeros of each message
    lengths: Int  # non-zeros of each row
    features: Any  # of each non-zero: uint32 or int64 array, or a list of str and int
    values: Float  # of each non-zero

    @classmethod
    def of_single_rows(cls, messages: Int, nnz: Int, features: Any, values: Float) -> Part:
        return cls(messages, np.ones_like(messages), nnz, nnz, features, values)

    def with_entries(self, features: Any, values: Float) -> Part:
        return Part(self.messages, self.rows, self.nnz, self.lengths, features, values)

    def only(self, keep: Mask) -> Part:
        """The messages marked `keep`."""
        of_rows, of_entries = np.repeat(keep, self.rows), np.repeat(keep, self.nnz)
        features = self.features
        kept = (
            [f for f, k in zip(features, of_entries, strict=True) if k]
            if isinstance(features, list)
            else features[of_entries]
        )
        return Part(
            self.messages[keep],
            self.rows[keep],
            self.nnz[keep],
            self.lengths[of_rows],
            kept,
            self.values[of_entries],
        )
