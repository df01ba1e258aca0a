"""The login hooks: one source of tokens for all clients of the process, tried before a client exists."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from sfd_stream.cli import logins
from sfd_stream.cli.logins import hooks_for
from sfd_stream.errors import BrokerRefusedError

asked: list[str] = []


def issue(config: str) -> tuple[str, float]:
    asked.append(config)
    return f"token {len(asked)}", 2e9


def fail(_: str) -> tuple[str, float]:
    raise ConnectionError("no route")


@pytest.fixture(autouse=True)
def no_tokens_from_before() -> Iterator[None]:
    asked.clear()
    yield
    logins._tokens.cache_clear()


def test_without_a_function_clients_have_no_tokens() -> None:
    assert hooks_for(None, {}).oauth_token is None


def test_all_clients_share_one_source_of_tokens_which_gets_the_configuration() -> None:
    first, second = (hooks_for(f"{__name__}:issue", {"sasl.oauthbearer.config": "scope=rows"}) for _ in range(2))
    assert first.oauth_token is second.oauth_token
    assert asked == ["scope=rows"]


def test_a_function_that_fails_is_reported_before_a_client_exists() -> None:
    with pytest.raises(BrokerRefusedError, match="no route"):
        hooks_for(f"{__name__}:fail", {})
