"""Does this store keep the contract? Some servers take a conditional create and overwrite all the same."""

from __future__ import annotations

from typing import TYPE_CHECKING

from sfd_stream.errors import ObjectExistsError, ObjectMissingError, StoreRefusedError

if TYPE_CHECKING:
    from sfd_stream.storage.contract import Store


def probe_store(store: Store, nonce: str) -> None:
    """Try each promise once on a key of its own, `probe/{nonce}`, and leave nothing behind.

    Raises StoreRefusedError for a promise not kept, and whatever the store itself raises.
    """
    key = f"probe/{nonce}"
    store.create_if_absent(key, b"first")
    try:
        _second_create_must_fail(store, key)
        _demand(store.get(key) == b"first", store, "does not read back what was written")
        _demand(key in store.list("probe"), store, "does not list what was written")
        _demand(key not in store.list("probe", start_after=key), store, "lists keys before start_after")
    finally:
        store.delete(key)
    try:
        store.get(key)
    except ObjectMissingError:
        return
    raise StoreRefusedError(f"{store.url} still reads what was deleted; checkpoints would not be safe on it")


def _second_create_must_fail(store: Store, key: str) -> None:
    try:
        store.create_if_absent(key, b"second")
    except ObjectExistsError:
        return
    _demand(False, store, "overwrites on a create-if-absent (If-None-Match is ignored)")


def _demand(kept: bool, store: Store, otherwise: str) -> None:
    if not kept:
        raise StoreRefusedError(
            f"{store.url} {otherwise}; checkpoints would not be safe on it: use another store"
        )
