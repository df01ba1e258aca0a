"""The reasons why a message is not rows: a fixed set, and the error that has one of them."""

from __future__ import annotations

from enum import StrEnum

from sfd_stream.errors import RowDecodeError

MAGNITUDE_MAX = 1e100
"""The maximum of a value. It is far below the library's own (1e150): sums over a stream of such rows can't overflow."""


class Reason(StrEnum):
    """The values of the metric's label and of the dead letter's header."""

    JSON = "json"  # JSON, by its first letter, where msgpack is read
    MALFORMED = "malformed"  # not one whole message of the format
    BAD_KEYS = "bad_keys"  # unknown, repeated or mixed keys, or none of the column indices
    BAD_TYPE = "bad_type"  # a field or an element of the wrong kind
    BAD_LENGTH = "bad_length"  # fewer or more values than indices, or a part of a number
    BAD_POINTERS = "bad_pointers"  # the pointers do not divide the non-zeros into rows
    BAD_INDEX = "bad_index"  # a column outside the matrix
    NOT_FINITE = "not_finite"  # NaN or infinity
    TOO_LARGE = "too_large"  # a value, or a sum of duplicates, above `MAGNITUDE_MAX`
    OVER_LIMIT = "over_limit"  # more bytes, non-zeros, rows, letters or nesting than allowed
    BAD_PATH = "bad_path"  # `input.path` leads to no record
    BAD_FIELD = "bad_field"  # a field to which `input.features` gives no meaning
    UNKNOWN_SCHEMA = "unknown_schema"  # the registry does not have the schema id
    BAD_SCHEMA = "bad_schema"  # the schema is of another format, or cannot be used


def bad(reason: Reason, words: str, excerpt: str = "") -> RowDecodeError:
    """`excerpt`: the part of the message's content that people with the right to it may see."""
    return RowDecodeError(words, reason=reason.value, excerpt=excerpt)
