"""Tokens from a user's function: asked each time; while it fails, the last token is used until it expires."""

from __future__ import annotations

from typing import Any

import pytest

from sfd_stream.errors import BrokerRefusedError, SettingsError
from sfd_stream.kafka.oauth import Tokens, callback_named


class Issuer:
    def __init__(self) -> None:
        self.asked = 0
        self.away = False

    def __call__(self, _: str) -> tuple[str, float]:
        self.asked += 1
        if self.away:
            raise ConnectionError("away")
        return f"token {self.asked}", 100.0


class Log:
    def __init__(self) -> None:
        self.lines: list[str] = []

    def warning(self, event: str, **_: Any) -> None:
        self.lines.append(event)


def test_each_question_is_asked_of_the_function() -> None:
    tokens = Tokens(Issuer(), lambda: 0.0, Log())
    assert [tokens(""), tokens("")] == [("token 1", 100.0), ("token 2", 100.0)]


def test_an_issuer_that_is_away_is_ridden_out_while_the_last_token_holds() -> None:
    issuer, log, now = Issuer(), Log(), [0.0]
    tokens = Tokens(issuer, lambda: now[0], log)
    tokens("")
    issuer.away = True
    now[0] = 99.0
    assert tokens("") == ("token 1", 100.0)
    assert len(log.lines) == 1
    now[0] = 100.0
    with pytest.raises(ConnectionError):
        tokens("")


def test_a_function_that_fails_at_the_start_is_said_at_once() -> None:
    issuer = Issuer()
    issuer.away = True
    with pytest.raises(BrokerRefusedError, match=r"returns no token \(ConnectionError: away\)"):
        Tokens(issuer, lambda: 0.0, Log()).try_once("")


@pytest.mark.parametrize("made", ["token", ("token",), (1, 2.0), None])
def test_what_is_no_token_is_said(made: Any) -> None:
    with pytest.raises(TypeError, match="must return"):
        Tokens(lambda _: made, lambda: 0.0, Log())("")


@pytest.mark.parametrize(
    ("named", "words"),
    [("no.such.package:f", "install the package"), ("json:no_such_function", "json has no function no_such_function")],
)
def test_a_function_that_is_not_there_is_a_wrong_setting(named: str, words: str) -> None:
    with pytest.raises(SettingsError, match=words):
        callback_named(named)
