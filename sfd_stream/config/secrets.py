"""Recognises and masks secrets: one set of rules for settings, logs, errors, summaries and the chart's checks.

A name can mark a secret (`sasl.password`), and a text can contain one (a URL with credentials, a JAAS line, a private
key). `mask` checks both, and hides too much rather than too little. `make chart` copies the patterns into the chart,
where Go reads them, so they have no look-ahead and no look-behind.
"""

from __future__ import annotations

import functools
import json
import re
from collections.abc import Callable, Iterator, Mapping
from typing import Any, Final
from urllib.parse import quote, quote_plus, unquote

MASK: Final = "***"

SECRET_NAME: Final = re.compile(
    r"passw(or)?d|passphrase|secret|token([^s]|$)|credential|jaas|authorization|cookie"
    r"|oauthbearer[._](config|extensions)$|auth[._-]user[._-]info$"
    r"|(api|access|private|account|sas|shared|master|signing|encryption|customer)[._-]?key"
    r"|(^|[._-])ssl[._-]key$|key[._-]pem$",
    re.IGNORECASE,
)
ABOUT_A_SECRET: Final = re.compile(
    r"([._-]|token)(location|file|path|ur[il]|ms|type|mode|method|name|algorithm|provider)$"
    r"|client[._-]id$|application[._-]credentials$",
    re.IGNORECASE,
)
"""The location or type of a secret is not secret: `ssl.key.location`, `sasl.oauthbearer.token.endpoint.url`."""

SECRET_TEXTS: Final = (
    # scheme://user:password@host, scheme://user@host
    (
        re.compile(r"([a-z][a-z0-9+.-]*://)(?:[^\s/@\"']*:[^\s@\"']*|[^\s/@\"']+)@", re.IGNORECASE),
        rf"\1{MASK}@",
    ),
    (
        re.compile(r"-----BEGIN [A-Z ]*PRIVATE KEY-----.*?(?:-----END [A-Z ]*PRIVATE KEY-----|\Z)", re.DOTALL),
        MASK,
    ),
    (re.compile(r"\b(Bearer|Basic)\s+[A-Za-z0-9._~+/=-]{8,}", re.IGNORECASE), rf"\1 {MASK}"),
    # password="...", client_secret=..., X-Amz-Signature=..., 'sasl.password': '...'
    (
        re.compile(
            r"([\w.-]*(?:passw(?:or)?d|passphrase|secret(?:[._-]?(?:access)?[._-]?key)?|token|signature|access[._-]?key"
            r"|account[._-]?key|x-amz-credential)|\bsig)"
            r"(['\"]?\s*[=:]\s*)(\"(?:[^\"\\]|\\.)*\"|'(?:[^'\\]|\\.)*'|[^\s;,&\"'}]+)",
            re.IGNORECASE,
        ),
        rf"\1\2{MASK}",
    ),
)

# Masking shorter values would hide ordinary words of a log line.
_SHORTEST_KNOWN_SECRET: Final = 4


def is_secret(name: str) -> bool:
    """Whether the value with this name (a setting, a librdkafka property, a log field) is secret."""
    return bool(SECRET_NAME.search(name)) and not ABOUT_A_SECRET.search(name)


def mask_text(text: str, known: frozenset[str] = frozenset()) -> str:
    """The text without the secrets that have a known form, and without the `known` ones, escaped or not."""
    text = _without(text, _forms(known)) if known else text
    for pattern, replacement in SECRET_TEXTS:
        text = pattern.sub(replacement, text)
    return text


def mask_url(text: str) -> str:
    """Masks a text that should be a URL, for an error message. It may be malformed: everything before the last @ and
    after a ? may be a secret.
    """
    place, question, _ = mask_text(text).partition("?")
    before, at, after = place.rpartition("@")
    if at and not before.endswith(f"://{MASK}"):
        place = f"{MASK}@{after}"
    return place + (f"?{MASK}" if question else "")


_ESCAPES: Final[tuple[Callable[[str], str], ...]] = (
    lambda text: json.dumps(text)[1:-1],
    lambda text: json.dumps(text, ensure_ascii=False)[1:-1],
    lambda text: repr(text)[1:-1],
    lambda text: repr(text.encode(errors="replace"))[2:-1],
    lambda text: quote(text, errors="replace"),
    lambda text: quote(text, safe="", errors="replace"),
    lambda text: quote_plus(text, errors="replace"),
)


@functools.lru_cache(maxsize=8)
def _forms(known: frozenset[str]) -> frozenset[str]:
    """The known secrets as libraries print them: escaped once, or twice (a quoted response inside a log line)."""
    forms = set(known)
    for _ in range(2):
        forms |= {escape(text) for text in forms for escape in _ESCAPES}
    return frozenset(forms)


def _without(text: str, secrets: frozenset[str]) -> str:
    """Masks the secrets. Overlapping ones are masked as one: one after the other would leave the end of one."""
    parts: list[str] = []
    end = 0
    for start, stop in sorted(span for secret in secrets for span in _spans(text, secret)):
        if start > end or not parts:
            parts += [text[end:start], MASK]
        end = max(end, stop)
    return "".join([*parts, text[end:]])


def _spans(text: str, secret: str) -> Iterator[tuple[int, int]]:
    start = text.find(secret)
    while start >= 0:
        yield start, start + len(secret)
        start = text.find(secret, start + 1)


def mask(name: str, value: Any, known: frozenset[str] = frozenset()) -> Any:
    """The masked value with that name. Containers are masked inside, other objects are unchanged."""
    if value is None or isinstance(value, bool):
        return value
    if is_secret(name):
        return MASK
    if isinstance(value, str):
        return mask_text(value, known)
    if isinstance(value, Mapping):
        return {key: mask(str(key), item, known) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return type(value)([mask(name, item, known) for item in value]) if type(value) in (list, tuple) else value
    return value


def secret_values(name: str, value: Any) -> frozenset[str]:
    """The secrets in a settings tree as texts, for `mask_text`."""
    if isinstance(value, Mapping):
        return frozenset().union(*(secret_values(str(key), item) for key, item in value.items()))
    if value is None or isinstance(value, bool):
        return frozenset()
    found = [str(value)] if is_secret(name) else _url_passwords(str(value))
    return frozenset(text for text in found if len(text) >= _SHORTEST_KNOWN_SECRET)


def _url_passwords(text: str) -> list[str]:
    found = re.findall(r"://[^\s/@:]*:([^\s@]+)@", text)
    return [*found, *map(unquote, found)]
