"""The requests of procedures to store and broker, and their answers. No procedure does any I/O itself.

A procedure is a generator: it yields requests, is sent answers, and returns an outcome. So the same code runs on a real
store (`state/perform.py`, `loop/jobs.py`) and in a model that stops, delays, repeats and loses requests at every
yield. `UNKNOWN` means that the request may or may not have taken effect, and may still do so later. The procedure
decides what to send again; its driver decides how long to wait and when to stop.
"""

from __future__ import annotations

from collections.abc import Generator
from dataclasses import dataclass
from enum import Enum
from typing import Any, Literal, TypeAlias, TypeVar

from sfd_stream.errors import RefusedStateError

T = TypeVar("T")


class Answer(Enum):
    DONE = "done"
    EXISTS = "exists"
    MISSING = "missing"
    UNKNOWN = "unknown"


Missing: TypeAlias = Literal[Answer.MISSING]


# -- of the store ----------------------------------------------------------------------------------------


@dataclass(frozen=True)
class List:
    """Keys that begin with `prefix`, in order, after `start_after`. Answered by a list of keys or UNKNOWN."""

    prefix: str
    start_after: str | None = None


@dataclass(frozen=True)
class Get:
    """Answered by bytes, MISSING or UNKNOWN."""

    key: str


@dataclass(frozen=True)
class GetMany:
    """Answered by a list of bytes or MISSING, in the order of the keys, or by UNKNOWN."""

    keys: tuple[str, ...]


@dataclass(frozen=True)
class CreateIfAbsent:
    """Answered by DONE, EXISTS or UNKNOWN."""

    key: str
    data: bytes


@dataclass(frozen=True)
class Put:
    """Answered by DONE or UNKNOWN."""

    key: str
    data: bytes


@dataclass(frozen=True)
class Delete:
    """Answered by DONE (also if the key did not exist) or UNKNOWN."""

    key: str


# -- of the broker ---------------------------------------------------------------------------------------


@dataclass(frozen=True)
class AskLog:
    """The input partition's watermarks, asked each time. `again`: the last answer is not believed, so wait first."""

    again: bool = False


@dataclass(frozen=True)
class LogFacts:
    low: int
    high: int
    leader_epoch: int | None = None

    def __post_init__(self) -> None:
        for offset in (self.low, self.high):
            if offset < 0:
                raise ValueError(f"{offset} is no offset")


@dataclass(frozen=True)
class AskCommitted:
    """The group's committed offset for this partition: an int or None."""


@dataclass(frozen=True)
class AskOutputEpoch:
    """The highest epoch that the output topic has for this partition's key: an int or None.

    `needed`: without an answer no state must be begun. A claim continues without one if the topic can't be read.
    """

    needed: bool = True


StoreRequest: TypeAlias = List | Get | GetMany | CreateIfAbsent | Put | Delete
Question: TypeAlias = AskLog | AskCommitted | AskOutputEpoch
Steps: TypeAlias = Generator[StoreRequest | Question, Any, T]


# -- outcomes that several procedures share --------------------------------------------------------------


@dataclass(frozen=True)
class Fenced:
    """Another worker owns the partition: drop the state, publish nothing, commit nothing, join the group again."""

    number: int


@dataclass(frozen=True)
class Refused:
    """The state found must not be used as it is: `why`, and what a person can do about it."""

    why: str
    remedy: str
    newer: bool = False
    """Written by a newer program: it is not damaged, so this program must not repair it."""

    def error(self) -> RefusedStateError:
        return RefusedStateError(f"{self.why}; {self.remedy}")


# -- requests repeated until their answer is known -------------------------------------------------------


def until_known(request: StoreRequest) -> Steps[Any]:
    """For requests that can be repeated without harm: reads, deletes, puts of the same bytes to the same key."""
    while True:
        answer = yield request
        if answer is not Answer.UNKNOWN:
            return answer


def get(key: str) -> Steps[bytes | Missing]:
    return (yield from until_known(Get(key)))  # type: ignore[no-any-return]


def get_many(keys: tuple[str, ...]) -> Steps[list[bytes | Missing]]:
    if not keys:
        return []
    return (yield from until_known(GetMany(keys)))  # type: ignore[no-any-return]


def list_keys(prefix: str, start_after: str | None = None) -> Steps[list[str]]:
    return (yield from until_known(List(prefix, start_after)))  # type: ignore[no-any-return]
