"""One process of racing writers: `python -m tests.unit.storage.racer URL KEY NAME THREADS`, options on stdin.

It opens the store, says "ready", waits for a line, lets all threads create the same key at once, each with
its own name as content, and prints who won as JSON.

SeaweedFS lets losers wait for its lock in steps of a second, up to half a minute for 50 of them; a short
timeout and another attempt get the same answer sooner, and show that an unknown answer changes nothing.
"""

from __future__ import annotations

import json
import sys
import threading
from concurrent.futures import ThreadPoolExecutor

from sfd_stream.errors import ObjectExistsError, StoreUnavailableError
from sfd_stream.storage.contract import Store
from sfd_stream.storage.open import open_store

ATTEMPTS = 5


def race(store: Store, key: str, names: list[str]) -> list[str]:
    """All names try to create `key` at the same moment; the winners' names (there should be one at most)."""
    start = threading.Barrier(len(names))

    def one(name: str) -> bool:
        start.wait()
        return creates(store, key, name.encode())

    with ThreadPoolExecutor(len(names)) as pool:
        won = list(pool.map(one, names))
    return [name for name, has_won in zip(names, won, strict=True) if has_won]


def creates(store: Store, key: str, data: bytes) -> bool:
    """Create as the protocol does: the same bytes again when the answer is unknown, the content decides."""
    for _ in range(ATTEMPTS):
        try:
            store.create_if_absent(key, data)
        except StoreUnavailableError:
            continue
        except ObjectExistsError:
            return store.get(key) == data
        return True
    raise AssertionError(f"no answer in {ATTEMPTS} attempts")


def main() -> None:
    url, key, name, threads = sys.argv[1:]
    store = open_store(url, json.loads(sys.stdin.readline()))
    print("ready", flush=True)  # noqa: T201 - the parent waits for it
    sys.stdin.readline()
    print(json.dumps(race(store, key, [f"{name}-{at}" for at in range(int(threads))])))  # noqa: T201 - the result


if __name__ == "__main__":
    main()
