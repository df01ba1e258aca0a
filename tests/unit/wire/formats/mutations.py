"""Messages with a few bytes removed, added or changed."""

from __future__ import annotations

import random


def mutated(rng: random.Random, message: bytes) -> bytes:
    data = bytearray(message)
    for _ in range(rng.randrange(1, 4)):
        at = rng.randrange(len(data) + 1)
        match rng.randrange(5):
            case 0:
                del data[at : at + rng.randrange(1, 9)]
            case 1:
                data[at:at] = rng.randbytes(rng.randrange(1, 9))
            case 2 if at < len(data):
                data[at] ^= 1 << rng.randrange(8)
            case 3 if at < len(data):
                data[at] = rng.choice((0, 1, 0x7F, 0x80, 0xFF))
            case _:
                data[at:at] = data[max(at - 8, 0) : at]
    return bytes(data)
