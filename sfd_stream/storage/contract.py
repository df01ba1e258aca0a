"""The guarantees of every checkpoint store, and the form of keys.

A store has an atomic create-if-absent. Its `get` and `list` include every write that has returned, in this process or
another one. The checkpoint protocol needs exactly these guarantees.
"""

from __future__ import annotations

import re
from typing import Protocol
from urllib.parse import quote, unquote

from sfd_stream.errors import SettingsError, StoreRefusedError

PART_MAX_BYTES = 255
KEY_MAX_BYTES = 1024

# No hidden names: temp files, NFS's own `.nfs...` and the folders . and .. are hidden.
_PART = re.compile(r"[A-Za-z0-9_~%=-][A-Za-z0-9._~%=-]{0,254}")


class Store(Protocol):
    """Blobs under keys. Safe to use from several threads; every call ends within a bounded time.

    Besides the errors named below, any call may raise StoreUnavailableError (temporary, so try again; it is *unknown*
    whether a write took effect) or StoreRefusedError (permanent; nothing was written).

    A key is never also the folder of another key: if `a/b` is an object, `a` is not.
    """

    @property
    def url(self) -> str:
        """Where the store is, without credentials, so that it can be logged."""

    def create_if_absent(self, key: str, data: bytes) -> None:
        """Writes `data` if the key does not exist: of all callers that try, one succeeds. Durable on return.

        Raises ObjectExistsError if the key exists. The object may be the caller's own: from an earlier attempt whose
        answer was lost, or that the client library sent twice. Only the content can decide, so it should have a nonce.
        """

    def put(self, key: str, data: bytes) -> None:
        """Writes or replaces the object as a whole. Durable on return."""

    def get(self, key: str, *, max_bytes: int | None = None) -> bytes:
        """The whole content; at most one byte more than `max_bytes` of a longer one. Raises ObjectMissingError."""

    def list(self, prefix: str, *, start_after: str | None = None) -> list[str]:
        """All keys below the folder `prefix` (empty: all), sorted, only those after `start_after`."""

    def delete(self, key: str) -> None:
        """Removes the object. A key that does not exist is no error. Durable on return."""


def key_part(text: str) -> str:
    """Any name as one part of a key: reversible (`part_text`), different for different names, never . or ..

    Letters, digits, `-` and `_` stand for themselves, `.` does except at the start; all else is %XX of UTF-8.
    """
    if not text:
        raise SettingsError("an empty name can't be part of a checkpoint's key")
    encoded = quote(text, safe="", errors="surrogatepass").replace("~", "%7E")
    if encoded.startswith("."):
        encoded = f"%2E{encoded[1:]}"
    if len(encoded) > PART_MAX_BYTES:
        raise SettingsError(
            f"the name {text[:40]!r}... takes {len(encoded)} bytes in a checkpoint's key, where at most "
            f"{PART_MAX_BYTES} fit (a character outside A-Z a-z 0-9 - _ . takes three or more); shorten it"
        )
    return encoded


def partition_prefix(group: str, topic: str, partition: int) -> str:
    """The folder of a partition's checkpoints."""
    return f"{key_part(group)}/{key_part(topic)}/{partition}"


def part_text(part: str) -> str:
    """The name that `key_part` encoded."""
    return unquote(part, encoding="utf-8", errors="surrogatepass")


def check_key(key: str) -> str:
    """The key itself, if every part is safe on every store. A path that leads outside the store is refused."""
    parts = key.split("/")
    bad = next((part for part in parts if not is_safe_part(part)), None)
    if bad is not None:
        raise StoreRefusedError(f"{key!r} is no key of a checkpoint store: the part {bad!r} is not safe; use key_part")
    if len(key) > KEY_MAX_BYTES:
        raise StoreRefusedError(f"the key {key[:80]!r}... has {len(key)} bytes, more than the {KEY_MAX_BYTES} allowed")
    return key


def is_safe_part(part: str) -> bool:
    return _PART.fullmatch(part) is not None


def check_prefix(prefix: str) -> str:
    """The folder to list, without a slash at its end; empty for everything."""
    trimmed = prefix.removesuffix("/")
    return check_key(trimmed) if trimmed else ""
