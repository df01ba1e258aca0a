"""Why a message is not rows: the fixed set of reasons, and the error that carries one."""

from __future__ import annotations

from enum import StrEnum

from sfd_stream.errors import RowDecodeError

MAGNITUDE_MAX = 1e100
"""Of a value. Far below what the library takes (1e150): no stream of such rows can be too large to be summed."""


class Reason(StrEnum):
    """The values of the metric's label and of the dead letter's header."""

    JSON = "json"  # JSON, by its first letter, where msgpack is read
    MALFORMED = "malformed"  # not one whole message of the format
    BAD_KEYS = "bad_keys"  # unknown, repeated or mixed keys, or none of the column indices
    BAD_TYPE = "bad_type"  # a field or an element of the wrong kind
    BAD_LENGTH = "bad_length"  # as many values as indices, whole numbers of bytes: not so
    BAD_POINTERS = "bad_pointers"  # they do not cut the non-zeros into rows
    BAD_INDEX = "bad_index"  # a column outside the matrix
    NOT_FINITE = "not_finite"  # NaN or infinity
    TOO_LARGE = "too_large"  # a value, or a sum of duplicates, above `MAGNITUDE_MAX`
    OVER_LIMIT = "over_limit"  # more bytes, non-zeros, rows, letters or nesting than allowed
    BAD_PATH = "bad_path"  # `input.path` leads to no record
    BAD_FIELD = "bad_field"  # a field that `input.features` gives no meaning to
    UNKNOWN_SCHEMA = "unknown_schema"  # the registry does not have the schema id
    BAD_SCHEMA = "bad_schema"  # the schema is of another format, or cannot be used


def bad(reason: Reason, words: str, excerpt: str = "") -> RowDecodeError:
    """`excerpt` is what of the message's content is worth showing, to those who may see it."""
    return RowDecodeError(words, reason=reason.value, excerpt=excerpt)
