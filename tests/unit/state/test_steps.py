"""Procedures yield requests and are sent answers. They repeat a request whose answer is unknown."""

from __future__ import annotations

from typing import Any

import pytest

from sfd_stream.state.steps import (
    Answer,
    Delete,
    Get,
    GetMany,
    List,
    LogFacts,
    Refused,
    Steps,
    get,
    get_many,
    list_keys,
    until_known,
)


def answered(steps: Steps[Any], answers: list[Any]) -> tuple[list[Any], Any]:
    """The requests of a procedure that is sent these answers, and its outcome."""
    requests = [next(steps)]
    for answer in answers:
        try:
            requests.append(steps.send(answer))
        except StopIteration as stop:
            return requests, stop.value
    raise AssertionError(f"it still asks {requests[-1]}")


@pytest.mark.parametrize(
    ("steps", "request_", "answer"),
    [
        (get("p/a"), Get("p/a"), b"bytes"),
        (get_many(("p/a", "p/b")), GetMany(("p/a", "p/b")), [b"bytes", Answer.MISSING]),
        (list_keys("p/", "p/a"), List("p/", "p/a"), ["p/b"]),
        (until_known(Delete("p/a")), Delete("p/a"), Answer.DONE),
    ],
)
def test_a_request_is_repeated_until_its_answer_is_known(steps: Steps[Any], request_: Any, answer: Any) -> None:
    assert answered(steps, [Answer.UNKNOWN, Answer.UNKNOWN, answer]) == ([request_] * 3, answer)


def test_that_a_key_is_missing_is_an_answer() -> None:
    assert answered(get("p/a"), [Answer.MISSING]) == ([Get("p/a")], Answer.MISSING)


def test_no_keys_are_read_without_a_request() -> None:
    with pytest.raises(StopIteration) as stopped:
        next(get_many(()))
    assert stopped.value.value == []


def test_a_refusal_is_an_error_that_ends_with_its_remedy() -> None:
    assert (
        str(Refused("checkpoint 4 is damaged", "roll back to 3").error()) == "checkpoint 4 is damaged; roll back to 3"
    )


@pytest.mark.parametrize(("low", "high"), [(-1001, 9), (3, -1001), (-1001, -1001)])
def test_a_negative_end_of_the_log_is_never_judged_by(low: int, high: int) -> None:
    """With a high end of -1001 the remedy would be "reset --to latest", which skips rows."""
    with pytest.raises(ValueError, match="-1001 is no offset"):
        LogFacts(low, high)
