"""Logins by tokens that a function of the user creates: `kafka_oauth_callback: package:function`.

The function gets the text of `sasl.oauthbearer.config`. It returns a token and its expiry time, in seconds since the
epoch; a principal and a mapping of extensions may follow. The client asks again before a token expires. If the function
fails, the last token is used until it expires: a worker survives an issuer that is unavailable for a minute.
"""

from __future__ import annotations

import importlib
import threading
from collections.abc import Callable
from typing import Any

from sfd_stream.errors import BrokerRefusedError, SettingsError

Token = tuple[Any, ...]
"""(token, expires at, principal?, extensions?), as librdkafka's client takes it."""


class Tokens:
    """One function's tokens, for all clients of a process."""

    def __init__(self, make: Callable[[str], Token], clock: Callable[[], float], log: Any) -> None:
        self._make = make
        self._clock = clock
        self._log = log
        self._last: Token | None = None
        self._lock = threading.Lock()  # clients call from threads of their own

    def try_once(self, config: str) -> None:
        """Calls the function at the start. A failure later would only appear as a client that can't be created."""
        try:
            self(config)
        except Exception as error:
            reason = f"{type(error).__name__}: {error}"
            raise BrokerRefusedError(
                f"kafka_oauth_callback returns no token ({reason}); fix it, then start again"
            ) from error

    def __call__(self, config: str) -> Token:
        with self._lock:
            try:
                self._last = _checked(self._make(config))
            except Exception as error:
                if self._last is None or self._last[1] <= self._clock():
                    raise
                self._log.warning(
                    "no new token from kafka_oauth_callback, the last one is still valid", error=repr(error)
                )
            return self._last


def callback_named(named: str) -> Callable[[str], Token]:
    """The function behind `package.module:function`."""
    place, _, name = named.partition(":")
    try:
        module = importlib.import_module(place)
    except ImportError as error:
        raise SettingsError(
            f"kafka_oauth_callback {named}: {error}; install the package with sfd-stream, or add it to PYTHONPATH"
        ) from error
    found = getattr(module, name, None)
    if not callable(found):
        raise SettingsError(f"kafka_oauth_callback {named}: {place} has no function {name}")
    made: Callable[[str], Token] = found
    return made


def _checked(token: Any) -> Token:
    """Checks the token here: librdkafka's client would only report that it expected a tuple."""
    if not isinstance(token, tuple) or len(token) < 2 or not isinstance(token[0], str):
        raise TypeError("kafka_oauth_callback must return (token, expires_at_in_seconds)")
    return (token[0], float(token[1]), *token[2:])
