"""Scenarios whose faults are aimed at what random ones seldom reach. Each takes a seed's scenario and changes it."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import replace

from tests.simulation.scenario import AIMED, AIMED_TRANSACTIONAL, Batch, Fault, Scenario


def _in_order(faults: list[Fault]) -> tuple[Fault, ...]:
    return tuple(sorted(faults, key=lambda fault: fault.at_s))


def _busy(scenario: Scenario, rng: random.Random, faults: list[Fault]) -> Scenario:
    """Two workers that write checkpoints all the time, with these faults."""
    kinds = ("rrrm", "rb", "rrrrrrrt")
    return replace(
        scenario,
        partitions=2,
        workers=2,
        until_end=False,
        one_in_memory=False,
        keep=1,
        every_rows=3,
        every_s=0.5,
        snapshot_every_s=0.5,
        session_s=3.0,
        max_poll_s=9.0,
        faults_until_s=32.0,
        batches=tuple(Batch(float(at_s), rng.randrange(2), rng.choice(kinds)) for at_s in range(1, 30)),
        faults=_in_order(faults),
    )


def _points(scenario: Scenario) -> tuple[str, ...]:
    return AIMED + (AIMED_TRANSACTIONAL if scenario.delivery == "transactional" else ())


def zombies(scenario: Scenario) -> Scenario:
    """Workers that are paused at named points for longer than their session, and wake."""
    rng = random.Random(f"zombies {scenario.seed}")
    faults = []
    for at_s in (0.5, 10.0, 20.0):
        begin_s, target = round(at_s + rng.uniform(0.0, 3.0), 1), rng.randrange(2)
        faults.append(Fault(begin_s, "pause", target, rng.choice((5.0, 9.0)), rng.choice(_points(scenario))))
        if at_s > 1 and rng.random() < 0.5:
            faults.append(Fault(begin_s + 1.0, "expel", target))
    return _busy(scenario, rng, faults)


def stalls(scenario: Scenario) -> Scenario:
    """Single threads that are stalled at named points while the rest of the worker goes on and loses its partitions."""
    rng = random.Random(f"stalls {scenario.seed}")
    faults = []
    for at_s in (0.5, 6.0, 12.0, 18.0, 24.0):
        begin_s, target, where = round(at_s + rng.uniform(0.0, 3.0), 1), rng.randrange(2), rng.choice(_points(scenario))
        faults.append(Fault(begin_s, "stall", target, rng.choice((1.0, 4.0, 8.0)), where))
        if rng.random() < 0.8:
            faults.append(Fault(begin_s, rng.choice(("expel", "expel", "rebalance")), target, 0.0, where))
    silent_losses = rng.choice((0.0, 0.5, 1.0))
    return replace(_busy(scenario, rng, faults), silent_losses=silent_losses)


def claims(scenario: Scenario) -> Scenario:
    """Claims that are stalled until another worker has claimed the same partition."""
    rng = random.Random(f"claims {scenario.seed}")
    faults = []
    for at_s in (3.0, 9.0, 15.0, 21.0, 27.0):
        begin_s, first = round(at_s + rng.uniform(0.0, 2.0), 1), rng.randrange(2)
        where = rng.choice(("after-GetMany", "after-GetMany", "before-CreateIfAbsent"))
        faults.append(Fault(begin_s, "expel", first))
        faults.append(Fault(begin_s + 0.1, "stall", 1 - first, rng.choice((2.0, 4.0)), where))
        faults.append(Fault(begin_s + 0.1, "expel", 1 - first, 0.0, where))
    return replace(_busy(scenario, rng, faults), silent_losses=rng.choice((0.5, 1.0)))


def slots(scenario: Scenario) -> Scenario:
    """Workers that are paused before they create a manifest, until the next owner has used that slot and pruned it."""
    rng = random.Random(f"slots {scenario.seed}")
    begins = [round(at_s + rng.uniform(0.0, 3.0), 1) for at_s in (2.0, 12.0, 22.0)]
    faults = [
        Fault(at_s, "pause", rng.randrange(2), rng.choice((7.0, 9.0)), "before-CreateIfAbsent") for at_s in begins
    ]
    made = _busy(scenario, rng, faults)
    batches = tuple(Batch(at_s / 2, at_s % 2, "rrr") for at_s in range(2, 64))
    return replace(made, batches=batches, silent_losses=rng.choice((0.0, 0.5, 1.0)))


def memberships(scenario: Scenario) -> Scenario:
    """A transactional owner that loses its partition without a callback, joins again, and is about to publish while the
    next owner claims.
    """
    rng = random.Random(f"memberships {scenario.seed}")
    faults = []
    for at_s, first in ((3.0, 0), (13.0, 1), (23.0, 0)):
        begin_s = round(at_s + rng.uniform(0.0, 2.0), 1)
        faults.append(Fault(begin_s, "expel", first))
        faults.append(Fault(begin_s + 0.1, "stall", 1 - first, 4.0, "before-CreateIfAbsent"))
        faults.append(Fault(round(begin_s + rng.uniform(2.5, 4.5), 1), "stall", first, 3.0, "before-publish"))
    batches = tuple(Batch(at_s / 2, 0, "rrr") for at_s in range(2, 64))
    made = replace(_busy(scenario, rng, faults), delivery="transactional", partitions=1, batches=batches)
    return replace(made, silent_losses=1.0, protocol=rng.choice(("cooperative", "eager")), flaky=0.0)


def wakes(scenario: Scenario) -> Scenario:
    """A claim that goes on after its worker was removed from the group without notice: it fences the next owner, which
    is the group's member for that partition, and nothing else happens afterwards.
    """
    rng = random.Random(f"wakes {scenario.seed}")
    begin_s, first = round(rng.uniform(4.0, 20.0), 1), rng.randrange(2)
    where = rng.choice(("before-List", "after-List", "after-GetMany", "before-CreateIfAbsent"))
    faults = [
        Fault(begin_s, "expel", first),
        Fault(begin_s + 0.1, "stall", 1 - first, rng.choice((1.0, 2.0, 4.0)), where),
        Fault(begin_s + 0.1, "expel", 1 - first, 0.0, where),
    ]
    batches = tuple(Batch(at_s / 2, 0, "rrr") for at_s in range(2, 64))
    made = replace(_busy(scenario, rng, faults), partitions=1, batches=batches, session_s=45.0, silent_losses=1.0)
    return replace(made, protocol="cooperative", flaky=0.0)


def letters(scenario: Scenario) -> Scenario:
    """Dead letters whose topic has no leader for longer than a message may wait."""
    rng = random.Random(f"letters {scenario.seed}")
    faults = [Fault(round(rng.uniform(1.0, 4.0)) + 0.1, "no leader", 0, rng.uniform(10.0, 18.0))]
    if rng.random() < 0.5:
        faults.append(Fault(round(rng.uniform(2.0, 20.0), 1), "crash", rng.randrange(2), 0.3))
    batches = tuple(Batch(at_s + 0.5, rng.randrange(2), rng.choice(("rb", "b", "rrrb"))) for at_s in range(25))
    return replace(_busy(scenario, rng, faults), batches=batches)


def transactions(scenario: Scenario) -> Scenario:
    """Steps of transactions whose answers are late or lost, and requests that arrive again in a later transaction."""
    rng = random.Random(f"transactions {scenario.seed}")
    faults = []
    for at_s in (1.0, 10.0, 20.0):
        where = rng.choice((*AIMED_TRANSACTIONAL, "before-end", "before-publish", "after-publish"))
        kind, seconds = rng.choice(("no answers", "broker frozen", "broker down")), rng.choice((3.0, 6.0, 12.0, 26.0))
        faults.append(Fault(round(at_s + rng.uniform(0.0, 3.0), 1), kind, rng.randrange(2), seconds, where))
    return replace(_busy(scenario, rng, faults), delivery="transactional", session_s=rng.choice((3.0, 45.0)))


LOADING_S = (0.02, 0.2, 0.5, 1.0, 8.0)
"""For the last one a commit is not repeated by the client to its end: it fails."""


def commits(scenario: Scenario) -> Scenario:
    """A coordinator that is loading whenever offsets are committed, also just before --until-end exits."""
    rng = random.Random(f"commits {scenario.seed}")
    until_end = rng.random() < 0.7
    points = ("before-commit", "before-commit", "after-commit", "before-publish")
    faults = [
        Fault(round(rng.uniform(0.0, 2.0), 2), "coordinator loads", rng.randrange(2), rng.choice(LOADING_S), where)
        for where in rng.choices(points, k=8)
    ]
    batches = tuple(Batch(-1.0 if until_end else float(at), at % 2, "rrrm") for at in range(20))
    made = replace(_busy(scenario, rng, faults), until_end=until_end, batches=batches, reader=False, merge=False)
    return replace(
        made, silent_losses=0.0, delivery=rng.choice(("none", "idempotent")), batch_records=rng.choice((1, 5))
    )


def starts(scenario: Scenario) -> Scenario:
    """A broker that does not answer while workers start, and logs that do not begin at offset 0."""
    rng = random.Random(f"starts {scenario.seed}")
    kinds = ("broker frozen", "no leader", "slow network", "broker down")
    faults = [
        Fault(round(rng.uniform(0.0, 0.12), 3), rng.choice(kinds), 0, rng.choice((0.7, 2.0, 5.0))) for _ in range(2)
    ]
    faults += [Fault(round(rng.uniform(3.0, 20.0), 1), "crash", rng.randrange(2), 0.3) for _ in range(2)]
    batches = tuple(Batch(-1.0, partition, "rrmbt") for partition in (0, 1))
    made = replace(_busy(scenario, rng, faults), first_offset=rng.choice((0, 4, 9)), until_end=rng.random() < 0.5)
    return replace(made, batches=batches)


def backups(scenario: Scenario) -> Scenario:
    """The store is put back to a backup, while readers keep what was published since. In half of the seeds it is empty
    or several owners old, and little is left to read: new ids stay low unless they begin above the published ones.
    """
    rng = random.Random(f"backups {scenario.seed}")
    faults = [
        Fault(round(at_s + rng.uniform(0.0, 4.0), 1), "restored backup", 0, rng.choice((2.0, 6.0, 40.0)))
        for at_s in (5.0, 18.0)
    ]
    if rng.random() < 0.5:
        at_s, older_s = round(rng.uniform(24.0, 28.0), 1), rng.choice((12.0, 40.0))
        faults = [Fault(round(at_s - 2.5 * turn, 1), "expel", turn % 2) for turn in range(1, 5)]
        faults.append(Fault(at_s, "restored backup", 0, older_s))
    delivery = rng.choice(("idempotent", "transactional"))
    return replace(_busy(scenario, rng, faults), delivery=delivery, reader=True)


def mergers(scenario: Scenario) -> Scenario:
    """A merger that crashes and is paused, and whose topic has no leader for longer than a message may wait; or one
    whose last merge is not delivered for that reason, and that nothing else reminds of it.
    """
    rng = random.Random(f"mergers {scenario.seed}")
    begin_s, is_last = rng.choice((6.3, 8.3, 10.3)), rng.random() < 0.5
    faults = [Fault(begin_s, "no leader", 0, 18.0 if is_last else rng.uniform(13.0, 18.0))]
    for at_s in () if is_last else (4.0, 12.0, 20.0):
        kind = rng.choice(("merger crash", "merger crash", "merger pause"))
        faults.append(Fault(round(at_s + rng.uniform(0.0, 6.0), 1), kind, 0, rng.choice((0.3, 4.0))))
    made = replace(_busy(scenario, rng, faults), merge=True, delivery=rng.choice(("idempotent", "transactional")))
    if is_last:
        return replace(made, batches=made.batches[: int(begin_s) + rng.randint(1, 4)], republish_s=600.0)
    return replace(made, batches=made.batches[: rng.choice((8, 12, 29))])


def outages(scenario: Scenario) -> Scenario:
    """An outage that is longer than three attempts of a dead letter, or than one reading of the output topic: the
    broker is down while bad messages come, or the output topic has no leader while a partition is added.
    """
    rng = random.Random(f"outages {scenario.seed}")
    begin_s, seconds = rng.choice((5.0, 7.0, 9.0)), rng.uniform(36.0, 45.0)
    faults = [Fault(begin_s, "broker down", 0, seconds)]
    if rng.random() < 0.5:
        faults = [Fault(begin_s, "no leader", 0, seconds)]  # of the output topic, by its tenths
        faults.append(Fault(round(begin_s + rng.uniform(0.2, 4.0), 1), "add partition"))
    batches = tuple(Batch(at_s + 0.5, rng.randrange(2), rng.choice(("rb", "b", "rrrb"))) for at_s in range(25))
    made = replace(_busy(scenario, rng, faults), batches=batches, faults_until_s=60.0)
    return replace(made, delivery=rng.choice(("idempotent", "transactional")))


def readers(scenario: Scenario) -> Scenario:
    """A merger and a reader whose clients get no records any more, without an error, while more are published."""
    rng = random.Random(f"readers {scenario.seed}")
    faults = [Fault(round(rng.uniform(4.0, 25.0), 1), "lost brokers")]
    delivery = rng.choice(("idempotent", "transactional"))
    return replace(_busy(scenario, rng, faults), reader=True, merge=True, delivery=delivery)


def pauses(scenario: Scenario) -> Scenario:
    """More records than a slow store takes, so that reading is paused, while partitions are lost and come back."""
    rng = random.Random(f"pauses {scenario.seed}")
    faults = []
    for at_s in (2.0, 12.0, 22.0):
        begin_s = round(at_s + rng.uniform(0.0, 2.0), 1)
        faults.append(Fault(begin_s, rng.choice(("store full", "store down", "store slow")), 0, 6.0))
        kind = rng.choice(("expel", "expel", "rebalance", "pause"))
        faults.append(Fault(round(begin_s + rng.uniform(1.0, 5.0), 1), kind, rng.randrange(2), 4.0))
    batches = tuple(Batch(at_s + 0.3, at_s % 2, "r" * 16) for at_s in range(0, 30, 2))
    batches += tuple(Batch(at_s + 1.3, at_s % 2, "r" * 16) for at_s in range(1, 30, 2))
    made = replace(_busy(scenario, rng, faults), batches=tuple(sorted(batches, key=lambda batch: batch.at_s)))
    return replace(made, partitions=3, batch_records=5, silent_losses=rng.choice((0.0, 0.5)))


def logs(scenario: Scenario) -> Scenario:
    """Logs that lose their last records, and a topic that is deleted and created again."""
    rng = random.Random(f"logs {scenario.seed}")
    kinds = ("truncated log", "truncated log", "recreated topic")
    faults = [Fault(round(rng.uniform(3.0, 25.0), 1), rng.choice(kinds), rng.randrange(2)) for _ in range(2)]
    return _busy(scenario, rng, faults)


SCORER_POINTS = (
    "after-claim", "after-scores", "after-letters", "before-publish", "after-publish", "before-transaction",
    "after-offsets", "before-end", "before-commit", "after-commit",
)  # fmt: skip


SCORER_FAULTS = (
    "scorer crash", "scorer crash", "scorer pause", "scorer expel", "scorer no answers", "scorer no leader",
)  # fmt: skip


def scores(scenario: Scenario) -> Scenario:
    """Two scorers beside the workers: they crash, pause and are expelled, also at named points; then there are the
    seed's own faults, except those that remove records before they are scored.
    """
    rng = random.Random(f"scores {scenario.seed}")
    removing = ("log retention", "truncated log", "recreated topic", "restored backup")
    faults = [fault for fault in scenario.faults if fault.kind not in removing]
    for _ in range(rng.choice((0, 2, 4, 6))):
        kind, number = rng.choice(SCORER_FAULTS), rng.randrange(2)
        where = rng.choice(SCORER_POINTS) if rng.random() < 0.6 else ""
        at_s = round(rng.uniform(0.0, scenario.faults_until_s * 0.9), 1)
        faults.append(Fault(at_s, kind, number, rng.choice((2.0, 11.0)), where))
    times, kinds = range(1, int(scenario.faults_until_s)), ("r", "rrrm", "rb", "rrrrrrrt")
    flow = tuple(Batch(float(at_s), rng.randrange(scenario.partitions), rng.choice(kinds)) for at_s in times)
    return replace(
        scenario,
        score="at-least-once" if scenario.seed % 2 else "transactional",
        delivery="idempotent" if scenario.delivery == "none" else scenario.delivery,
        batches=scenario.batches + flow,
        start="earliest",
        until_end=False,
        one_in_memory=False,
        faults=_in_order(faults),
    )


def extremes(scenario: Scenario) -> Scenario:
    """The same, with scorers that write only extreme rows, by a pinned basis."""
    made = scores(scenario)
    faults = tuple(fault for fault in made.faults if fault.kind != "damaged object")
    return replace(made, extreme=True, columns="fixed", faults=faults)


def mixed(scenario: Scenario) -> Scenario:
    """Half of the seeds as they are, the others with one of the aims each."""
    aims = [aim for name, aim in AIMS.items() if name not in ("mixed", "scores", "extremes")]
    return scenario if scenario.seed % 2 == 0 else aims[scenario.seed // 2 % len(aims)](scenario)


AIMS: dict[str, Callable[[Scenario], Scenario]] = {
    "zombies": zombies,
    "stalls": stalls,
    "claims": claims,
    "slots": slots,
    "memberships": memberships,
    "wakes": wakes,
    "letters": letters,
    "transactions": transactions,
    "commits": commits,
    "starts": starts,
    "backups": backups,
    "mergers": mergers,
    "outages": outages,
    "readers": readers,
    "pauses": pauses,
    "logs": logs,
    "scores": scores,
    "extremes": extremes,
    "mixed": mixed,
}
