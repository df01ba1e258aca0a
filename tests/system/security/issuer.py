"""A fake issuer of tokens: unsigned ones, which a broker takes that is told nothing about signatures."""

from __future__ import annotations

import json
import time
from base64 import urlsafe_b64encode

LIFE_S = 300


def unsigned(config: str) -> tuple[str, float]:
    """For `sub=name`, a token of that name."""
    expires = time.time() + LIFE_S
    claims = {"sub": config.partition("=")[2], "iat": time.time(), "exp": expires}
    return f"{_part({'alg': 'none'})}.{_part(claims)}.", expires


def stale(config: str) -> tuple[str, float]:
    """A token that the broker does not take, though it does not say so itself."""
    claims = {"sub": config.partition("=")[2], "iat": time.time() - 2 * LIFE_S, "exp": time.time() - LIFE_S}
    return f"{_part({'alg': 'none'})}.{_part(claims)}.", time.time() + LIFE_S


def away(_: str) -> tuple[str, float]:
    raise ConnectionError("the issuer does not answer")


def _part(value: object) -> str:
    return urlsafe_b64encode(json.dumps(value).encode()).decode().rstrip("=")
