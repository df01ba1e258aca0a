"""What must never be shown: one set of rules for settings, logs, errors and summaries.

A name can be secret (`sasl.password`), and a text can hold a secret (a URL with credentials, a JAAS line, a
private key). `mask` judges both; it rather hides too much than too little.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, Final

MASK: Final = "***"

_SECRET_NAME: Final = re.compile(
    r"passw(or)?d|passphrase|secret|token(?!s)|credential|jaas|authorization|cookie"
    r"|oauthbearer\.(config|extensions)$"
    r"|(api|access|private|account|sas|shared|master|signing|encryption)[._-]?key"
    r"|(^|[._-])ssl[._-]key$|key[._-]pem$",
    re.IGNORECASE,
)
# A place or a kind of a secret is not the secret: `ssl.key.location`, `sasl.oauthbearer.token.endpoint.url`.
_ABOUT_A_SECRET: Final = re.compile(
    r"[._-](location|file|path|ur[il]|ms|type|mode|method|name|algorithm)$", re.IGNORECASE
)

_SECRET_TEXTS: Final = (
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

# Shorter values would blot out ordinary words of a log line.
_SHORTEST_KNOWN_SECRET: Final = 4


def is_secret(name: str) -> bool:
    """Whether the value under this name (a setting, a librdkafka property, a log field) must not be shown."""
    return bool(_SECRET_NAME.search(name)) and not _ABOUT_A_SECRET.search(name)


def mask_text(text: str, known: frozenset[str] = frozenset()) -> str:
    """The text without the secrets that its form betrays and without the `known` ones."""
    for value in known:
        text = text.replace(value, MASK)
    for pattern, replacement in _SECRET_TEXTS:
        text = pattern.sub(replacement, text)
    return text


def mask(name: str, value: Any, known: frozenset[str] = frozenset()) -> Any:
    """The value as it may be shown under that name; containers are masked inside, objects left alone."""
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
    """The secrets in a settings tree as texts, for `mask_text` to know them wherever they turn up."""
    if isinstance(value, Mapping):
        return frozenset().union(*(secret_values(str(key), item) for key, item in value.items()))
    if value is None or isinstance(value, bool):
        return frozenset()
    found = [str(value)] if is_secret(name) else _url_passwords(str(value))
    return frozenset(text for text in found if len(text) >= _SHORTEST_KNOWN_SECRET)


def _url_passwords(text: str) -> list[str]:
    return re.findall(r"://[^\s/@:]*:([^\s@]+)@", text)
