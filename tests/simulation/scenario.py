"""What a seed means: topics, records, settings and faults, as plain data that can be printed and shortened."""

from __future__ import annotations

import random
from dataclasses import dataclass, field, replace
from typing import Literal

KINDS = "rrrrrrrrmmbt"
"""r: one row, m: several rows, b: a bad message, t: a tombstone, c: a control record, a: an aborted record."""

FAULTS = (
    "crash", "crash", "pause", "pause", "stop", "broker down", "broker frozen", "broker frozen", "cut off broker",
    "cut off store", "store down", "store flaky", "store slow", "coordinator loads", "slow network", "expel",
    "clock jump", "rebalance", "log retention", "log retention", "add partition", "no leader", "no leader",
    "no answers", "merger crash", "merger pause", "store full", "store read-only", "damaged object", "restored backup",
    "truncated log", "recreated topic",
)  # fmt: skip
"""Drawn with these weights."""

AIMED = (
    "before-CreateIfAbsent", "after-CreateIfAbsent", "before-blobs", "after-manifest", "before-publish",
    "after-publish", "before-commit", "after-claim", "before-List", "after-List", "before-Delete", "after-GetMany",
    "after-letters", "after-Get", "before-Put",
)  # fmt: skip
"""Named points of the worker at which a fault can be aimed."""

AIMED_TRANSACTIONAL = ("before-transaction", "after-offsets", "before-end")


@dataclass(frozen=True)
class Fault:
    """Happens `at_s`; with `where`, at the first time after `at_s` that the target reaches that named point."""

    at_s: float
    kind: str
    target: int = 0
    seconds: float = 0.0
    where: str = ""

    def __str__(self) -> str:
        aimed = f" at {self.where}" if self.where else ""
        return f"{self.at_s:.1f} s: {self.kind} (worker {self.target}, {self.seconds:.1f} s){aimed}"


@dataclass(frozen=True)
class Batch:
    """Records that are produced together; `kinds` has a letter for each."""

    at_s: float
    partition: int
    kinds: str


@dataclass(frozen=True)
class Scenario:
    seed: int
    partitions: int = 2
    workers: int = 2
    delivery: Literal["none", "idempotent", "transactional"] = "idempotent"
    until_end: bool = False
    protocol: Literal["cooperative", "eager", "kip-848"] = "cooperative"
    columns: Literal["fixed", "growing"] = "fixed"
    start: Literal["earliest", "latest"] = "earliest"
    first_offset: int = 0
    """Records that were removed from each partition's log before anything began."""
    every_rows: int = 10
    every_s: float = 2.0
    snapshot_every_s: float = 3.0
    republish_s: float = 30.0
    keep: int = 2
    batch_records: int = 20
    revoke_budget_s: float = 4.0
    session_s: float = 6.0
    max_poll_s: float = 12.0
    inline: bool = True
    one_in_memory: bool = False
    watched: bool = False
    """Whether the worker collects its status once a second, as it does for its port."""
    reader: bool = False
    """Whether a SnapshotReader reads along."""
    merge: bool = False
    """Whether `sfd-stream merge` merges what is published."""
    score: Literal["none", "transactional", "at-least-once"] = "none"
    """How `sfd-stream score` delivers scores of what is read, if it runs."""
    extreme: bool = False
    """Whether it writes only extreme rows (`score.when`), by a pinned basis."""
    preempt: float = 0.05
    stall: float = 0.0005
    points: bool = False
    silent_losses: float = 0.2
    flaky: float = 0.0
    """The share of requests to the store whose answer is lost, until calm."""
    faults_until_s: float = 30.0
    batches: tuple[Batch, ...] = ()
    faults: tuple[Fault, ...] = field(default=())

    def without(self, *, fault: int | None = None, batch: int | None = None) -> Scenario:
        faults = tuple(each for at, each in enumerate(self.faults) if at != fault)
        batches = tuple(each for at, each in enumerate(self.batches) if at != batch)
        return replace(self, faults=faults, batches=batches)


def draw(seed: int) -> Scenario:
    rng = random.Random(f"scenario {seed}")
    partitions, workers = rng.randint(1, 3), rng.choice((1, 2, 2, 2, 3))
    until_end = rng.random() < 0.25
    delivery = rng.choice(("none", "idempotent", "idempotent", "transactional", "transactional"))
    until_s = rng.choice((8.0, 20.0, 30.0, 45.0))
    return Scenario(
        seed=seed,
        partitions=partitions,
        workers=workers,
        delivery=delivery,  # type: ignore[arg-type]
        until_end=until_end,
        protocol=rng.choice(("cooperative", "cooperative", "eager", "kip-848")),  # type: ignore[arg-type]
        columns=rng.choice(("fixed", "growing")),  # type: ignore[arg-type]
        every_rows=rng.choice((3, 10, 40)),
        every_s=rng.choice((0.5, 2.0, 5.0)),
        snapshot_every_s=rng.choice((0.5, 3.0, 8.0)),
        republish_s=rng.choice((5.0, 30.0, 600.0)),
        keep=rng.choice((1, 2, 5)),
        batch_records=rng.choice((1, 5, 50)),
        revoke_budget_s=rng.choice((0.5, 4.0, 8.0)),
        session_s=rng.choice((3.0, 6.0)),
        max_poll_s=rng.choice((9.0, 15.0)),
        inline=rng.random() < 0.7,
        one_in_memory=until_end and rng.random() < 0.3,
        reader=delivery != "none" and rng.random() < 0.3,
        watched=rng.random() < 0.2,
        merge=delivery != "none" and rng.random() < 0.2,
        start=rng.choice(("earliest",) * 7 + ("latest",)),  # type: ignore[arg-type]
        first_offset=rng.choice((0, 0, 0, 4)),
        preempt=rng.choice((0.01, 0.05, 0.2)),
        stall=rng.choice((0.0, 0.0005, 0.003)),
        points=rng.random() < 0.4,
        silent_losses=rng.choice((0.0, 0.2, 0.5)),
        flaky=rng.choice((0.0, 0.0, 0.02, 0.1)),
        faults_until_s=until_s,
        batches=_batches(rng, partitions, until_s, early=until_end and rng.random() < 0.7),
        faults=_faults(rng, workers, until_s, transactional=delivery == "transactional"),
    )


def _batches(rng: random.Random, partitions: int, until_s: float, *, early: bool) -> tuple[Batch, ...]:
    found = []
    for partition in range(partitions):
        for _ in range(rng.choice((0, 1, 3, 6, 6))):
            at_s = -1.0 if early else rng.choice((-1.0, rng.uniform(0.0, until_s)))
            kinds = "".join(rng.choice(KINDS) for _ in range(rng.choice((1, 4, 12))))
            if rng.random() < 0.2:
                kinds += rng.choice(("c", "ac"))
            found.append(Batch(round(at_s, 1), partition, kinds))
    return tuple(sorted(found, key=lambda batch: (batch.at_s, batch.partition)))


def _faults(rng: random.Random, workers: int, until_s: float, *, transactional: bool) -> tuple[Fault, ...]:
    found = []
    points = AIMED + (AIMED_TRANSACTIONAL if transactional else ())
    for _ in range(rng.choice((0, 1, 2, 4, 7))):
        kind, target = rng.choice(FAULTS), rng.randrange(workers)
        at_s, seconds = rng.uniform(0.0, until_s), rng.choice((0.3, 2.0, 5.0, 12.0))
        found.append(Fault(round(at_s, 1), kind, target, seconds))
    for _ in range(rng.choice((0, 1, 1, 2))):
        kind, where = rng.choice(("crash", "pause", "pause", "stall", "stall", "no answers")), rng.choice(points)
        at_s, seconds = rng.uniform(0.0, until_s * 0.8), rng.choice((2.0, 9.0, 20.0))
        found.append(Fault(round(at_s, 1), kind, rng.randrange(workers), seconds, where))
    return tuple(sorted(found, key=lambda fault: fault.at_s))
