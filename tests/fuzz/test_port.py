"""The HTTP port takes what once broke it, and some hundred fresh connections; the fuzzer's laws can fail."""

from __future__ import annotations

import pytest

from tests.fuzz.port import Case, answers_in, exchange, fuzz, port_for_fuzzing

LOCAL = b"Host: localhost"
FOUND = {
    "a request within a request, by bare newlines": b"GET / HTTP/1.1\n" + LOCAL + b"\n\nGET / HTTP/1.1\r\n" + LOCAL,
    "HEAD with a body": b"HEAD / HTTP/1.1\r\nContent-Length: 5\r\n" + LOCAL,
    "a repeated length, by bare newlines": b"GET / HTTP/1.1\nContent-Length: 0\nContent-Length: 0\r\n" + LOCAL,
}


@pytest.mark.parametrize("data", FOUND.values(), ids=list(FOUND))
def test_what_once_broke_a_law_is_refused(data: bytes) -> None:
    with port_for_fuzzing() as (port, raised):
        answers = exchange(("127.0.0.1", port.number), Case(data + b"\r\n\r\n", (), foreign=False, leaves=False))
        assert [answer.code for answer in answers] == [400]
        assert raised == []


def test_hostile_requests_are_answered_in_order_and_leave_nothing_open() -> None:
    codes, broken = fuzz(1, range(300))
    assert broken == []
    assert codes.keys() >= {200, 400, 404, 405, 421, 431}


@pytest.mark.slow
def test_twenty_thousand_hostile_connections_break_no_law() -> None:
    assert fuzz(29, range(20_000))[1] == []


@pytest.mark.parametrize(
    "answer", [b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok", b"nonsense", b"HTTP/1.1 200 OK\r\nX: a\nb\r\n\r\n"]
)
def test_an_answer_that_is_not_well_formed_or_lacks_its_safe_headers_is_found(answer: bytes) -> None:
    with pytest.raises(AssertionError):
        answers_in(answer)
