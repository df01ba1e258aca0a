"""Builds the login hooks of all clients from `kafka_oauth_callback`."""

from __future__ import annotations

import time
from collections.abc import Mapping
from functools import cache
from typing import Any

from sfd_stream.kafka.errors import Hooks
from sfd_stream.kafka.oauth import Tokens, callback_named
from sfd_stream.observe.logs import get_logger


def hooks_for(named: str | None, kafka: Mapping[str, Any]) -> Hooks:
    """The hooks. The function is called once now, so that its failure is reported before a client exists."""
    return Hooks(oauth_token=None if named is None else _tokens(named, str(kafka.get("sasl.oauthbearer.config", ""))))


@cache
def _tokens(named: str, config: str) -> Tokens:
    """One token source for all clients of the process."""
    tokens = Tokens(callback_named(named), time.time, get_logger())
    tokens.try_once(config)
    return tokens
