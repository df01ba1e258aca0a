"""Checks that a store keeps the contract. Some servers accept a conditional create and overwrite all the same; others
only if two come at once, which a single attempt does not find: so several writers try at the same moment here.
"""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING

from sfd_stream.errors import ObjectExistsError, ObjectMissingError, StoreRefusedError, StoreUnavailableError

if TYPE_CHECKING:
    from sfd_stream.storage.contract import Store


def probe_store(store: Store, nonce: str, *, writers: int = 8) -> None:
    """Tries each guarantee on a key of its own, `probe/{nonce}`, and removes it.

    Raises StoreRefusedError for a guarantee that does not hold, and the store's own errors.
    """
    key = f"probe/{nonce}"
    try:
        winner = _race(store, key, [f"{nonce}-{at}".encode() for at in range(writers)])
        _demand(store.get(key) == winner, store, "does not read back what was written")
        _demand(key in store.list("probe"), store, "does not list what was written")
        _demand(key not in store.list("probe", start_after=key), store, "lists keys before start_after")
    finally:
        store.delete(key)
    _demand(_is_gone(store, key), store, "still reads what was deleted")
    _demand(key not in store.list("probe"), store, "still lists what was deleted")


def _race(store: Store, key: str, contents: list[bytes]) -> bytes:
    """Several writers create the key at the same moment. Returns the content of the one that succeeded."""
    start = threading.Barrier(len(contents))

    def create(data: bytes) -> bool:
        start.wait()
        try:
            store.create_if_absent(key, data)
        except (ObjectExistsError, StoreUnavailableError):
            # Without a clear success the content decides: the answer to one's own write may have been lost.
            return store.get(key) == data
        return True

    with ThreadPoolExecutor(len(contents)) as pool:
        won = list(pool.map(create, contents))
    _demand(sum(won) == 1, store, f"let {sum(won)} of {len(won)} racing writers create one object")
    return contents[won.index(True)]


def _is_gone(store: Store, key: str) -> bool:
    try:
        store.get(key)
    except ObjectMissingError:
        return True
    return False


def _demand(kept: bool, store: Store, otherwise: str) -> None:
    if not kept:
        raise StoreRefusedError(f"{store.url} {otherwise}; checkpoints are not safe on it: use another store")
