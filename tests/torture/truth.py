"""What a campaign must leave behind, computed from the input topic by a reader that shares no code with the package.

Messages are unpacked by msgpack and numpy alone. Each check returns a sentence per violation.
"""

from __future__ import annotations

import itertools
import json
import time
import zlib
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import msgpack
import numpy as np
from confluent_kafka import Consumer, TopicPartition

from tests.torture.load import BAD, GOOD, KIND, NNZ, ROWS, TOMBSTONE, Acknowledged, D

STALLED_AFTER_S = 300.0
ENERGY_ERROR = 1e-9
"""Relative, of a score's coordinates and residual: rounding only."""

EARLIER_ROWS_MAX = 100_000
"""p-values compare with at least this number of rows, if there are as many (docs/guides/scoring.md)."""


@dataclass(frozen=True)
class Message:
    partition: int
    offset: int
    key: bytes | None
    value: bytes | None
    headers: dict[str, bytes]


def _consumer(bootstrap: str, isolation: str = "read_committed") -> Consumer:
    return Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": "truth",
            "enable.auto.commit": False,
            "auto.offset.reset": "error",
            "isolation.level": isolation,
            "log_level": 0,
        }
    )


def _ends(consumer: Consumer, topic: str) -> dict[int, int]:
    """Of all partitions. Without an answer in time it raises."""
    found = consumer.list_topics(topic, timeout=30).topics[topic].partitions
    return {p: consumer.get_watermark_offsets(TopicPartition(topic, p), timeout=30)[1] for p in found}


def end_offsets(bootstrap: str, topic: str, isolation: str = "read_committed") -> dict[int, int]:
    """With read_committed: where the first open transaction of a partition begins, or else its end."""
    consumer = _consumer(bootstrap, isolation)
    try:
        return _ends(consumer, topic)
    finally:
        consumer.close()


def unended(bootstrap: str, topic: str) -> list[int]:
    """The partitions in which a transaction is open."""
    readable, ends = end_offsets(bootstrap, topic), end_offsets(bootstrap, topic, "read_uncommitted")
    return [p for p, end in ends.items() if readable.get(p) != end]


def records(bootstrap: str, topic: str) -> Iterator[Message]:
    """Every committed message of the topic, each partition from its first to its last offset."""
    consumer = _consumer(bootstrap)
    try:
        ends = {p: end for p, end in _ends(consumer, topic).items() if end > 0}
        consumer.assign([TopicPartition(topic, p, 0) for p in ends])
        yield from _until(consumer, topic, ends)
    finally:
        consumer.close()


def _until(consumer: Consumer, topic: str, ends: Mapping[int, int]) -> Iterator[Message]:
    """There is no time limit as long as messages arrive: a long campaign has millions of scores."""
    moved_s = time.monotonic()
    while any(_position(consumer, topic, p) < end for p, end in ends.items()):
        assert time.monotonic() < moved_s + STALLED_AFTER_S, f"no message of {topic} for {STALLED_AFTER_S:.0f} s"
        for one in consumer.consume(1_000, 0.2):
            assert one.error() is None, one.error()
            yield Message(
                one.partition(), one.offset(), one.key(), one.value(), {k: v or b"" for k, v in one.headers() or ()}
            )
            moved_s = time.monotonic()


def _position(consumer: Consumer, topic: str, partition: int) -> int:
    """Moves over the markers of transactions too."""
    (found,) = consumer.position([TopicPartition(topic, partition)])
    return int(found.offset)


@dataclass
class Expected:
    """What is known of one partition of the input topic."""

    end: int = 0
    rows: int = 0
    nnz: int = 0
    squared_norm: float = 0.0
    column_sums: Any = field(default_factory=lambda: np.zeros(D))
    bad: dict[int, bytes] = field(default_factory=dict)
    tombstones: int = 0
    checksums: list[int] = field(default_factory=list)
    energies: dict[int, Any] = field(default_factory=dict)
    """Of each good message, by its offset: the squared norm of each of its rows."""

    def add(self, message: Message) -> None:
        assert message.offset == self.end, "the input topic has no gaps"
        self.end += 1
        self.checksums.append(zlib.crc32(message.value or b""))
        kind = message.headers[KIND]
        if kind == GOOD:
            self._add_rows(message.offset, message.value or b"")
        elif kind == BAD:
            self.bad[message.offset] = message.value or b""
        else:
            assert kind == TOMBSTONE
            self.tombstones += 1

    def _add_rows(self, offset: int, value: bytes) -> None:
        """Columns that occur twice in a row are one non-zero, with the sum of both values."""
        fields = msgpack.unpackb(value)
        dense = np.zeros((ROWS, D))
        rows = np.repeat(np.arange(ROWS), NNZ)
        np.add.at(dense, (rows, np.frombuffer(fields["i"], "<u4")), np.frombuffer(fields["v"], "<f8"))
        self.rows += ROWS
        self.nnz += int(np.count_nonzero(dense))
        self.energies[offset] = np.sum(dense**2, axis=1)
        self.squared_norm += float(np.sum(dense**2))
        self.column_sums += dense.sum(axis=0)


def expected_of(bootstrap: str, topic: str) -> dict[int, Expected]:
    found: dict[int, Expected] = {}
    for message in records(bootstrap, topic):
        found.setdefault(message.partition, Expected()).add(message)
    return found


# Checks: each gives one sentence per violation


def check_acknowledged(acknowledged: Iterable[Acknowledged], expected: Mapping[int, Expected]) -> list[str]:
    """What the broker acknowledged is in the topic. If not, the broker lost data and the other checks mean nothing."""
    wrong = []
    for one in acknowledged:
        known = expected[one.partition].checksums if one.partition in expected else []
        if one.offset >= len(known) or known[one.offset] != one.checksum:
            wrong.append(f"partition {one.partition}: the broker lost acknowledged offset {one.offset}")
    return wrong


def check_counters(partition: int, sketch: Any, expected: Expected, what: str) -> list[str]:
    pairs = {
        "rows": (sketch.rows, expected.rows),
        "non-zeros": (sketch.nnz, expected.nnz),
        "squared norm": (sketch.squared_frobenius, expected.squared_norm),
        "column sums": (list(sketch.column_sums), list(expected.column_sums)),
    }
    return [
        f"partition {partition}: {name} of the {what}: {_short(found)}, not {_short(wanted)}"
        for name, (found, wanted) in pairs.items()
        if found != wanted
    ]


def _short(value: Any) -> str:
    return f"{value!r:.60}"


def check_dead_letters(letters: Iterable[Message], expected: Mapping[int, Expected]) -> list[str]:
    """Every bad message is there with its bytes, and nothing else. After a replay one may be there twice."""
    found: dict[tuple[int, int], set[bytes]] = {}
    for letter in letters:
        where = int(letter.headers["sfd-partition"]), int(letter.headers["sfd-offset"])
        found.setdefault(where, set()).add(letter.value or b"")
    wanted = {(p, offset): {value} for p, one in expected.items() for offset, value in one.bad.items()}
    missing, foreign = wanted.keys() - found.keys(), found.keys() - wanted.keys()
    changed = {where for where in wanted.keys() & found.keys() if wanted[where] != found[where]}
    return [
        *(
            f"partition {p}: the bad message at offset {offset} is not in the dead-letter topic"
            for p, offset in missing
        ),
        *(f"partition {p}: the good message at offset {offset} is in the dead-letter topic" for p, offset in foreign),
        *(f"partition {p}: the dead letter of offset {offset} has other bytes" for p, offset in changed),
    ]


class PartitionScores:
    """The scores of a partition of the input topic, by the offset of the message and the row's place in it."""

    def __init__(self, end: int) -> None:
        self.times = np.zeros((end, ROWS), np.int32)
        self.earlier = np.zeros((end, ROWS), np.int64)
        """The number of rows with which the p-value compares."""
        self.counts = np.zeros((end, ROWS), bool)
        """Whether later p-values compare with this row: its basis had not counted it."""


@dataclass
class Scored:
    """What the topic of scores contains. `foreign`: messages that are no score of a row of the input topic."""

    partitions: dict[int, PartitionScores]
    scores: int = 0
    foreign: list[str] = field(default_factory=list)

    @property
    def repeated(self) -> int:
        return sum(int(np.sum(np.maximum(one.times - 1, 0))) for one in self.partitions.values())


def read_scores(scores: Iterable[Message], topic: str, expected: Mapping[int, Expected]) -> Scored:
    """A row is named by its partition, offset and place in the message. Its score is of this row and of no other one:
    the squares of its coordinates and its residual add up to its energy, where distances are measured from zero.
    """
    found = Scored({p: PartitionScores(one.end) for p, one in expected.items()})
    for message in scores:
        found.scores += 1
        try:
            score = json.loads(message.value or b"")
            partition, offset, row = score["partition"], score["offset"], score["row"]
            energy = sum(one**2 for one in score["coordinates"]) + score["residual"]
            wanted = expected[partition].energies[offset][row]
            earlier, counted = score["earlier_rows"], score["basis"]["counted"]
            is_right = score["topic"] == topic and row >= 0 and abs(energy - wanted) <= ENERGY_ERROR * wanted
        except (ValueError, LookupError, TypeError):
            is_right = False
        if is_right:
            one, place = found.partitions[partition], (offset, row)
            one.times[place] += 1
            one.earlier[place], one.counts[place] = earlier, not counted
        else:
            found.foreign.append(f"no score of a row: {(message.value or b'')!r:.300}")
    return found


def check_scores(scored: Scored, expected: Mapping[int, Expected], *, once: bool) -> list[str]:
    """Every row has its score, with `once` exactly one. Nothing else has one: no bad message, no tombstone."""
    wrong = list(scored.foreign)
    for partition, one in expected.items():
        times = scored.partitions[partition].times
        missing = [offset for offset in one.energies if not times[offset].all()]
        twice = np.flatnonzero((times > 1).any(axis=1)).tolist() if once else []
        wrong += [f"partition {partition}: a row at offset {offset} has no score" for offset in missing]
        wrong += [f"partition {partition}: a row at offset {offset} has several scores" for offset in twice]
    return wrong


def check_earlier_rows(scored: Scored, expected: Mapping[int, Expected]) -> list[str]:
    """Where each row has exactly one score: p-values compare with every earlier row that no basis had counted, once.

    Rows that were scored together have the same earlier rows: those before the first of them.
    """
    wrong = []
    for partition, one in expected.items():
        places, found = sorted(one.energies), scored.partitions[partition]
        earlier, counts = found.earlier[places].ravel(), found.counts[places].ravel()
        before = np.cumsum(counts) - counts
        is_first = np.diff(earlier, prepend=-1) != 0
        for at in np.flatnonzero(is_first & (before < EARLIER_ROWS_MAX) & (earlier != before)).tolist():
            what = f"has {earlier[at]:,} earlier rows, not {before[at]:,}"
            wrong.append(f"partition {partition}: the score of row {at % ROWS} at offset {places[at // ROWS]} {what}")
    return wrong


def check_published_once(snapshots: Iterable[Message]) -> list[str]:
    """Transactional delivery: a reader of committed messages gets each state once, and never an older one."""
    last: dict[bytes, tuple[int, int]] = {}
    wrong = []
    for one in snapshots:
        key, order = one.key or b"", (int(one.headers["sfd-epoch"]), int(one.headers["sfd-number"]))
        if key in last and order <= last[key]:
            wrong.append(f"{key.decode()}: state {order} at offset {one.offset} after {last[key]}")
        last[key] = max(order, last.get(key, order))
    return wrong


def check_never_back(seen: Path) -> list[str]:
    """The ids and the rows that a live reader was given never fall."""
    wrong = []
    lines = [json.loads(line) for line in seen.read_text().splitlines()] if seen.exists() else []
    for before, after in itertools.pairwise(lines):
        if after["rows"] < before["rows"]:
            wrong.append(f"{seen.name}: {after['rows']} rows after {before['rows']}")
        wrong += [
            f"{seen.name}: {key}: {after['parts'].get(key)} after {part}"
            for key, part in before["parts"].items()
            if after["parts"].get(key, [-1]) < part
        ]
    return [*wrong, *([] if lines else [f"{seen.name}: nothing was read"])]
