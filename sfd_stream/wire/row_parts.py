"""What the readers of rows share: limits, reasons, and the rows of some messages as they came.

A `Part` has passed every check of form (msgpack, keys, types, lengths, pointers, limits) and none of content
(columns, finite values). Readers that see the same message make the same part of it.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from sfd_stream.errors import RowDecodeError

if TYPE_CHECKING:
    from sfd_stream.sketch.rows import Float, Int

Mask = npt.NDArray[np.bool_]
Bytes = npt.NDArray[np.uint8]

MAGNITUDE_MAX = 1e100
"""Of a value. Far below what the library takes (1e150): no stream of such rows can be too large to be summed."""


class Reason(StrEnum):
    """Why a message is not rows: the fixed set behind the metric's label and the dead letter's header."""

    JSON = "json"  # JSON, by its first letter
    MALFORMED = "malformed"  # not one whole msgpack map of flat fields
    BAD_KEYS = "bad_keys"  # unknown, repeated or mixed keys, or none of the column indices
    BAD_TYPE = "bad_type"  # a field or an element of the wrong kind
    BAD_LENGTH = "bad_length"  # as many values as indices, whole numbers of bytes: not so
    BAD_POINTERS = "bad_pointers"  # they do not cut the non-zeros into rows
    BAD_INDEX = "bad_index"  # a column outside the matrix
    NOT_FINITE = "not_finite"  # NaN or infinity
    TOO_LARGE = "too_large"  # a value, or a sum of duplicates, above `MAGNITUDE_MAX`
    OVER_LIMIT = "over_limit"  # more bytes, non-zeros, rows or letters than the settings allow


@dataclass(frozen=True, slots=True)
class RowLimits:
    """The most that one message may hold, by default as the settings `input.max_*` have it.

    Nesting needs no number: what stands in a field is no container.
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


def bad(reason: Reason, words: str, excerpt: str = "") -> RowDecodeError:
    """`excerpt` is what of the message's content is worth showing, to those who may see it."""
    return RowDecodeError(words, reason=reason.value, excerpt=excerpt)
