"""JSON messages, by msgspec: one object, or a list of objects.

Cases that the standard leaves open: of repeated keys the last one counts; NaN and Infinity are no JSON; an integer of
any length becomes the nearest 64-bit float; a number outside a float's range, a lone surrogate, invalid UTF-8 are bad.
"""

from __future__ import annotations

import re
from typing import Any

import msgspec

from sfd_stream.wire.compiled import Format, MessageReader
from sfd_stream.wire.reasons import Reason, bad

_PLACE = re.compile(r"\(byte (\d+)\)")
_DECODE = msgspec.json.Decoder().decode


def _read(message: bytes) -> Any:
    try:
        return _DECODE(message)
    except RecursionError:
        raise bad(Reason.OVER_LIMIT, "nested too deeply") from None
    except msgspec.ValidationError as error:  # a number outside the range of a float
        raise bad(Reason.TOO_LARGE, "a number does not fit a 64-bit float:", str(error)[:160]) from None
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        text = str(error)[:160]
        raise bad(Reason.MALFORMED, f"not JSON that can be read{_cause(message, text)}:", text) from None


def _cause(message: bytes, text: str) -> str:
    """The most likely cause, if the message has signs of one."""
    place = _PLACE.search(text)
    if place and message.startswith((b"NaN", b"Infinity"), int(place[1])):
        return " (JSON has no NaN and no Infinity; write null)"
    if message.startswith(b"\xef\xbb\xbf"):
        return " (it begins with a byte order mark)"
    return ""


read_json = MessageReader(_read, Format("json"))
