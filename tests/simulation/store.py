"""A checkpoint store with faults: slow, unavailable, answers lost, writes that happen twice or late.

A write travels by itself: it may happen although its writer crashed or got no answer.
"""

from __future__ import annotations

import random
from bisect import bisect_right
from collections.abc import Callable
from typing import Any

from tests.simulation.network import History
from tests.simulation.scheduler import Process, Scheduler, active

LATE_MAX_S = 20.0


class Faults:
    """Of the store; the director changes them while the simulation runs."""

    def __init__(self) -> None:
        self.unavailable_until = 0.0
        self.cut_until: dict[str, float] = {}
        self.refused_until = 0.0
        """Until then the store is read-only."""
        self.full_until = 0.0
        self.flaky = 0.0
        """The share of requests whose answer is lost."""
        self.slow = 0.01
        self.slow_max_s = 3.0

    def heal(self) -> None:
        self.unavailable_until = self.refused_until = self.full_until = self.flaky = self.slow = 0.0
        self.cut_until.clear()


class Objects:
    """What is stored. All processes see the same."""

    def __init__(self, scheduler: Scheduler, seed: int, history: History) -> None:
        self.faults = Faults()
        self.data: dict[str, bytes] = {}
        self.on_create: Callable[[str, bytes, str], None] = lambda *_: None
        """Called with key, data and who, when a create-if-absent has succeeded."""
        self.on_delete: Callable[[str, str], None] = lambda *_: None
        self.on_begin: Callable[[Process, str, bytes | None], None] = lambda *_: None
        """Called with process, key and data (None to delete) when a process begins a write, in the task that does."""
        self.incarnation = 0
        """Raised when a backup is restored: what was written before and arrives later is lost."""
        self._whole: dict[str, bytes] = {}
        """Damaged objects as they were."""
        self._keys: list[str] = []
        self._scheduler = scheduler
        self._history = history
        self.rng = random.Random(f"store {seed}")
        self._damages = random.Random(f"damages {seed}")

    def create(self, key: str, data: bytes, who: str) -> bool:
        if key in self.data:
            return False
        self._insert(key, data)
        self._history.note(who, f"creates {key}")
        self.on_create(key, data, who)
        return True

    def put(self, key: str, data: bytes, who: str) -> bool:
        self._insert(key, data)
        self._whole.pop(key, None)
        return True

    def delete(self, key: str, who: str) -> bool:
        if self.data.pop(key, None) is not None:
            self._keys.remove(key)
            self._history.note(who, f"deletes {key}")
            self.on_delete(key, who)
        return True

    def copy(self) -> dict[str, bytes]:
        return {**self.data, **self._whole}

    def restore(self, data: dict[str, bytes]) -> None:
        """As it was when `data` was copied."""
        self.incarnation += 1
        self.data, self._keys = dict(data), sorted(data)
        self._whole.clear()
        self._history.note("director", f"restores a backup with {len(data)} objects")

    def damage(self) -> Callable[[], None] | None:
        """Tears an object or changes a byte of it; returns what repairs it. None if nothing is stored."""
        if not self._keys:
            return None
        key = self._damages.choice(self._keys)
        whole, incarnation = self._whole.get(key, self.data[key]), self.incarnation
        at = self._damages.randrange(max(len(whole), 1))
        torn = self._damages.random() < 0.5
        self._whole[key] = whole
        self.data[key] = whole[:at] if torn or not whole else whole[:at] + bytes([whole[at] ^ 0x55]) + whole[at + 1 :]
        self._history.note("director", f"{'tears' if torn else 'changes a byte of'} {key} at {at}")

        def repair() -> None:
            if self.incarnation == incarnation:
                self._repair(key)

        return repair

    def repair_all(self) -> None:
        for key in list(self._whole):
            self._repair(key)

    def _repair(self, key: str) -> None:
        whole = self._whole.pop(key, None)
        if whole is not None and key in self.data:
            self.data[key] = whole
            self._history.note("director", f"repairs {key}")

    def list(self, prefix: str, start_after: str | None) -> list[str]:
        folder = prefix.rstrip("/")
        start = f"{folder}/" if folder else ""
        first = 0 if start_after is None else bisect_right(self._keys, start_after)
        return [key for key in self._keys[first:] if key.startswith(start)]

    def _insert(self, key: str, data: bytes) -> None:
        if key not in self.data:
            self._keys.insert(bisect_right(self._keys, key), key)
        self.data[key] = bytes(data)


class SimulatedStore:
    """One process's access to the objects. `errors` is the universe's own module of errors."""

    url = "memory://simulated"

    def __init__(self, objects: Objects, process: Process, errors: Any) -> None:
        self._objects = objects
        self._process = process
        self._errors = errors

    def create_if_absent(self, key: str, data: bytes) -> None:
        self._objects.on_begin(self._process, key, data)
        if not self._write(lambda: self._objects.create(key, data, self._process.name), repeats=True):
            raise self._errors.ObjectExistsError(f"{key} exists")

    def put(self, key: str, data: bytes) -> None:
        self._objects.on_begin(self._process, key, data)
        self._write(lambda: self._objects.put(key, data, self._process.name))

    def delete(self, key: str) -> None:
        self._objects.on_begin(self._process, key, None)
        self._write(lambda: self._objects.delete(key, self._process.name), needs_room=False)

    def get(self, key: str, *, max_bytes: int | None = None) -> bytes:
        found = self._request(lambda: self._objects.data.get(key))
        if found is None:
            raise self._errors.ObjectMissingError(f"no {key}")
        return found if max_bytes is None else found[: max_bytes + 1]  # type: ignore[no-any-return]

    def list(self, prefix: str, *, start_after: str | None = None) -> list[str]:
        return self._request(lambda: self._objects.list(prefix, start_after))  # type: ignore[no-any-return]

    # One request

    def _write(self, apply: Callable[[], bool], *, repeats: bool = False, needs_room: bool = True) -> bool:
        rng, objects = self._objects.rng, self._objects
        faults, incarnation = objects.faults, objects.incarnation
        if active().now < faults.refused_until:
            self._travel()
            raise self._errors.StoreRefusedError("the store is read-only")
        if needs_room and active().now < faults.full_until:
            self._travel()
            raise self._errors.StoreUnavailableError("the store is full")

        def unless_restored() -> bool:
            return apply() if objects.incarnation == incarnation else True

        if rng.random() < faults.flaky / 2:  # no answer; it may happen later, even after its writer is gone
            active().call_later(rng.uniform(0.0, LATE_MAX_S), unless_restored)  # type: ignore[arg-type]
            self._no_answer()
        if repeats and rng.random() < faults.flaky / 2:  # the client library sends it twice, and reports the second
            self._request(apply)
        return self._request(apply)  # type: ignore[no-any-return]

    def _request(self, apply: Callable[[], Any]) -> Any:
        """Happens on the way; the answer may be lost."""
        self._travel()
        faults = self._objects.faults
        until = max(faults.unavailable_until, faults.cut_until.get(self._process.name, 0.0))
        if active().now < until:
            self._no_answer()
        result = apply()
        self._travel()
        if self._objects.rng.random() < faults.flaky:
            self._no_answer()
        return result

    def _travel(self) -> None:
        rng, faults = self._objects.rng, self._objects.faults
        slow = rng.random() < faults.slow
        active().wait(rng.uniform(0.01, faults.slow_max_s) if slow else rng.uniform(0.0002, 0.005))

    def _no_answer(self) -> None:
        active().wait(self._objects.rng.uniform(0.0, 5.0))
        raise self._errors.StoreUnavailableError("the store does not answer")
