"""JSON messages, by msgspec: one object, or a list of objects.

What the standard leaves open: of repeated keys the last one holds; NaN and Infinity are no JSON; an integer of any
length becomes the nearest 64-bit float; a number beyond a float's range, a lone surrogate and invalid UTF-8 are bad.
"""

from __future__ import annotations

from typing import Any

import msgspec

from sfd_stream.wire.compiled import Format, MessageReader
from sfd_stream.wire.reasons import Reason, bad

_DECODE = msgspec.json.Decoder().decode


def _read(message: bytes) -> Any:
    try:
        return _DECODE(message)
    except RecursionError:
        raise bad(Reason.OVER_LIMIT, "nested too deeply") from None
    except msgspec.ValidationError as error:  # a number that fits no float
        raise bad(Reason.TOO_LARGE, "a number is too large:", str(error)[:160]) from None
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise bad(Reason.MALFORMED, "not JSON that can be read:", str(error)[:160]) from None


read_json = MessageReader(_read, Format("json"))
