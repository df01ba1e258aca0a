"""A store in this process, for tests and trials. It keeps the contract until the process ends, then all is lost."""

from __future__ import annotations

import threading

from sfd_stream.errors import ObjectExistsError, ObjectMissingError
from sfd_stream.storage.contract import check_key, check_prefix

_shared: dict[str, MemoryStore] = {}


class MemoryStore:
    def __init__(self, name: str) -> None:
        self.url = f"memory://{name}"
        self._objects: dict[str, bytes] = {}
        self._lock = threading.Lock()

    def __repr__(self) -> str:
        return f"MemoryStore({self.url!r})"

    def create_if_absent(self, key: str, data: bytes) -> None:
        with self._lock:
            if check_key(key) in self._objects:
                raise ObjectExistsError(f"{key} exists in {self.url}")
            self._objects[key] = bytes(data)

    def put(self, key: str, data: bytes) -> None:
        with self._lock:
            self._objects[check_key(key)] = bytes(data)

    def get(self, key: str, *, max_bytes: int | None = None) -> bytes:
        with self._lock:
            found = self._objects.get(check_key(key))
        if found is None:
            raise ObjectMissingError(f"no {key} in {self.url}")
        return found if max_bytes is None else found[: max_bytes + 1]

    def list(self, prefix: str, *, start_after: str | None = None) -> list[str]:
        folder = check_prefix(prefix)
        start = f"{folder}/" if folder else ""
        with self._lock:
            keys = sorted(key for key in self._objects if key.startswith(start))
        return [key for key in keys if start_after is None or key > start_after]

    def delete(self, key: str) -> None:
        with self._lock:
            self._objects.pop(check_key(key), None)


def shared_memory_store(name: str) -> MemoryStore:
    """The store of that name in this process. There is one."""
    return _shared.setdefault(name, MemoryStore(name))
