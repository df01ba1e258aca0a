"""Checkpoint folders as a commit writes them, from rows that anybody can make again.

    python -m tests.system.versions.make_golden    writes tests/system/versions/golden/ by the tree of commit 75b2d4e

This file runs under that commit's packages too (by its path, with that tree first on PYTHONPATH): it imports of
`sfd_stream` only what both have, and the parts that write only inside `_written`. Each case is a group and a topic of
the same name. Each partition has counted `COUNTED` messages, with a bad message and a tombstone among them,
in three checkpoints: the first with a snapshot that was published, the last with one that was not.
"""

from __future__ import annotations

import hashlib
import json
import sys
from pathlib import Path
from typing import Any

import msgpack
import numpy as np

PARTITIONS = (0, 1)
COUNTED, ALL = 310, 900
CUTS = (120, 290, COUNTED)
"""Where each checkpoint was written. The last one adds a segment of rows to a sketch that is in the store already."""

BAD, TOMBSTONE = 50, 60
WRITTEN_AT_S = 1_789_000_000.0

CASES: dict[str, dict[str, Any]] = {
    "plain": {"input": {"columns": "fixed"}, "sketch": {"d": 32}},
    "names": {"input": {"columns": "hashed", "hash_seed": 7}, "sketch": {"d": 64}},
    "fading": {"input": {"columns": "fixed"}, "sketch": {"d": 32, "half_life_rows": 200}},
    "exact": {"input": {"columns": "fixed"}, "sketch": {"d": 20}},
}
"""`exact` has so few columns that no shrink is random: its sketch is the same in every version."""


def settings_of(case: str, url: str, bootstrap: str = "localhost:9092") -> dict[str, Any]:
    given = CASES[case]
    return {
        "kafka": {"bootstrap.servers": bootstrap, "group.id": case},
        "input": {"topic": case, **given["input"]},
        "sketch": {"ell": 6, "buffer_max_bytes": 3000, **given["sketch"]},
        "checkpoint": {"url": url, "keep": 1},
        "snapshot": {"topic": f"sketches-{case}"},
        "dead_letters": {"topic": "bad-rows"},
        "http": {"port": 0},
        "worker": {},
    }


def rows_of(case: str, partition: int) -> list[dict[int, float]]:
    """Column -> value, for all messages. Few bits in each value: sums of values and squares are exact in any order."""
    rng = np.random.default_rng([sorted(CASES).index(case), partition])
    d = CASES[case]["sketch"]["d"]
    weights = rng.permutation(1 / np.arange(1, d + 1))
    columns = rng.choice(d, size=(ALL, 3), p=weights / weights.sum())
    values = rng.integers(1, 64, size=(ALL, 3)) / 8.0
    return [dict(zip(map(int, c), map(float, v), strict=True)) for c, v in zip(columns, values, strict=True)]


def messages_of(case: str, partition: int) -> list[bytes | None]:
    hashed = CASES[case]["input"]["columns"] == "hashed"
    messages: list[bytes | None] = [
        msgpack.packb({"i": [f"word {column}" if hashed else column for column in row], "v": list(row.values())})
        for row in rows_of(case, partition)
    ]
    messages[BAD], messages[TOMBSTONE] = b"not rows", None
    return messages


def digest(array: Any) -> str:
    return hashlib.sha256(np.ascontiguousarray(array).tobytes()).hexdigest()


def described(state: Any) -> dict[str, Any]:
    """A `PartitionState` as plain values: two are equal exactly when all bits are."""
    frozen = state.freeze()
    blocks = frozen.blocks
    pending = {
        name: digest(np.concatenate([getattr(block, name) for block in blocks])) for name in ("indices", "values")
    }
    lengths = np.concatenate([np.diff(block.indptr) for block in blocks])
    return {
        "next_offset": frozen.next_offset,
        "counters": dict(frozen.counters),
        "numbers": dict(frozen.numbers),
        "arrays": {name: digest(array) for name, array in frozen.arrays.items()},
        "pending": {**pending, "lengths": digest(lengths.astype(np.int64))},
        "names": [list(pair) for pair in frozen.names],
    }


def apply(state: Any, messages: list[bytes | None], low: int, high: int) -> None:
    """The messages from offset `low` to below `high`, as a worker takes them in."""
    from sfd_stream import decode

    values = [message for message in messages[low:high] if message is not None]
    state.apply(decode(values, state.columns), high, None, high - low - len(values))


def write(folder: Path) -> None:
    """Each case's folder, and what the states in it were in memory."""
    expected: dict[str, Any] = {}
    for case in CASES:
        for partition in PARTITIONS:
            expected[f"{case}/{partition}"] = described(_written(folder, case, partition))
    (folder / "expected.json").write_text(json.dumps(expected, indent=1) + "\n")


def _written(folder: Path, case: str, partition: int) -> Any:
    """By the parts of a worker of 75b2d4e. Without a broker no id of cluster and topic is known: the next owner's
    broker fills them in.
    """
    from sfd_stream.cli.wiring import publishing_of, shape_of, surroundings_of
    from sfd_stream.config.model import Settings
    from sfd_stream.service.keeper import Keeper
    from sfd_stream.state.manifest import Binding
    from sfd_stream.state.steps import AskCommitted, LogFacts

    settings = Settings.model_validate(settings_of(case, folder.as_uri()))
    keeper = Keeper(case, case, partition, surroundings_of(settings))
    publishing = publishing_of(settings)
    binding = Binding(None, None, case, case, partition)

    def ask(question: Any) -> Any:
        asks_offset = type(question).__name__ in (AskCommitted.__name__, "AskOutputEpoch")
        return None if asks_offset else LogFacts(0, ALL)

    state = keeper.claim(binding, shape_of(settings, partition), "earliest", ask)
    messages = messages_of(case, partition)
    for low, high in zip((0, *CUTS), CUTS, strict=False):
        apply(state, messages, low, high)
        shown = high != CUTS[1]
        encoded = None
        if shown:
            state_id = keeper.manifest.next_state_id
            encoded = publishing.encode(state.sketch(), state.freeze(), state_id, binding, 4, WRITTEN_AT_S)
        manifest = keeper.make_durable(state.freeze(), binding, encoded)
        if high == CUTS[0]:
            keeper.published = manifest.due
        keeper.tidy()
    return state


if __name__ == "__main__":
    write(Path(sys.argv[1]))
