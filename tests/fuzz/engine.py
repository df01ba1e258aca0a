"""Changes inputs, keeps those that reach new lines of the package, and shortens those that fail."""

from __future__ import annotations

import random
import sys
from collections.abc import Callable
from dataclasses import dataclass, field
from types import FrameType
from typing import Any

import msgpack

Run = Callable[[bytes], None]
"""Decodes an input. What the decoder may not raise, and what a differential check finds, is raised."""

PACKAGE = "/sfd_stream/"
BYTES_MAX = 4_000
WATCHED = 0.25
"""Share of the inputs whose lines are watched, which takes some ten times as long."""

ODD = (
    0,
    1,
    -1,
    2**31,
    2**32,
    2**63 - 1,
    -(2**63),
    1e100,
    -1e101,
    float("nan"),
    float("inf"),
    "",
    b"",
    None,
    True,
    [],
    {},
)


def changed(rng: random.Random, data: bytes, other: bytes) -> bytes:
    """Half of the time as msgpack, where it is some: then the result is well-formed and reaches deeper."""
    if rng.random() < 0.5:
        try:
            found = msgpack.unpackb(data, strict_map_key=False, raw=False)
            return bytes(msgpack.packb(_changed_value(rng, found)))
        except (ValueError, TypeError, OverflowError, msgpack.UnpackException):
            pass
    return _changed_bytes(rng, data, other)


def _changed_value(rng: random.Random, value: Any) -> Any:
    """One part of the value becomes another one."""
    if rng.random() < 0.2:
        return rng.choice(ODD)
    match value:
        case dict() if value:
            return _changed_map(rng, value)
        case list() if value:
            return _changed_list(rng, value)
        case bytes():
            return _changed_bytes(rng, value, value)
        case int():
            return max(-(2**63), min(2**64 - 1, value + rng.choice((-1, 1, 8, 2**31, -(2**31)))))
    return rng.choice(ODD)


def _changed_map(rng: random.Random, value: dict[Any, Any]) -> dict[Any, Any]:
    key = rng.choice(list(value))
    match rng.randrange(4):
        case 0:
            return {k: v for k, v in value.items() if k != key}
        case 1:
            return {**value, rng.choice(("x", 3, key)): rng.choice(ODD)}
    return {**value, key: _changed_value(rng, value[key])}


def _changed_list(rng: random.Random, value: list[Any]) -> list[Any]:
    at = rng.randrange(len(value))
    match rng.randrange(4):
        case 0:
            return value[:at] + value[at + 1 :]
        case 1:
            return [*value, *value]
    return [*value[:at], _changed_value(rng, value[at]), *value[at + 1 :]]


def _changed_bytes(rng: random.Random, data: bytes, other: bytes) -> bytes:
    found = bytearray(data)
    for _ in range(rng.randrange(1, 4)):
        at = rng.randrange(len(found) + 1)
        match rng.randrange(6):
            case 0:
                del found[at : at + rng.randrange(1, 9)]
            case 1:
                found[at:at] = rng.randbytes(rng.randrange(1, 9))
            case 2 if at < len(found):
                found[at] ^= 1 << rng.randrange(8)
            case 3 if at < len(found):
                found[at] = rng.choice((0, 1, 0x7F, 0x80, 0xC1, 0xFF))
            case 4 if other:
                start = rng.randrange(len(other))
                found[at:at] = other[start : start + rng.randrange(1, 40)]
            case _:
                found[at:at] = found[max(at - 8, 0) : at]
    return bytes(found[:BYTES_MAX])


def lines_reached(run: Run, data: bytes) -> set[tuple[str, int]]:
    """The lines of the package that the input reaches."""
    reached: set[tuple[str, int]] = set()

    def watch(frame: FrameType, event: str, _: Any) -> Any:
        if PACKAGE not in frame.f_code.co_filename:
            return None
        if event == "line":
            reached.add((frame.f_code.co_filename, frame.f_lineno))
        return watch

    before = sys.gettrace()
    sys.settrace(watch)
    try:
        run(data)
    finally:
        sys.settrace(before)
    return reached


@dataclass
class Fuzzer:
    """One target: `step` tries one input, and returns it, shortened, if it fails."""

    run: Run
    inputs: list[bytes]
    rng: random.Random
    reached: set[tuple[str, int]] = field(default_factory=set)
    tried: int = 0

    def __post_init__(self) -> None:
        for data in self.inputs:
            self.reached |= lines_reached(self.run, data)

    def step(self) -> bytes | None:
        data = changed(self.rng, self.rng.choice(self.inputs), self.rng.choice(self.inputs))
        self.tried += 1
        try:
            if self.rng.random() > WATCHED:
                self.run(data)
                return None
            reached = lines_reached(self.run, data)
        except Exception as error:  # noqa: BLE001 - whatever it is, it is what we look for
            return shortened(self.run, data, type(error))
        if not reached <= self.reached:
            self.reached |= reached
            self.inputs.append(data)
        return None


def shortened(run: Run, data: bytes, kind: type[Exception]) -> bytes:
    """Leaves out parts, large ones first, as long as the input fails in the same way."""
    size = max(len(data) // 2, 1)
    while size:
        at = 0
        while at < len(data):
            shorter = data[:at] + data[at + size :]
            if _fails(run, shorter, kind):
                data = shorter
            else:
                at += size
        size //= 2
    return data


def _fails(run: Run, data: bytes, kind: type[Exception]) -> bool:
    try:
        run(data)
    except Exception as error:  # noqa: BLE001 - compared with the one that was found
        return type(error) is kind
    return False
