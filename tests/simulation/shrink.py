"""A failing seed with as few faults, records and workers as still break the same law."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace

from tests.simulation.run import Result
from tests.simulation.scenario import Scenario

TRIES = 400

PLAIN = {
    "points": False,
    "watched": False,
    "reader": False,
    "merge": False,
    "one_in_memory": False,
    "first_offset": 0,
    "flaky": 0.0,
    "stall": 0.0,
    "silent_losses": 0.0,
    "columns": "fixed",
    "start": "earliest",
    "protocol": "cooperative",
    "inline": True,
}
"""What a scenario is without a peculiarity."""


def shrink(scenario: Scenario, result: Result, run: Callable[[Scenario], Result]) -> tuple[Scenario, Result]:
    """The smallest scenario that was found, and what happens in it."""
    assert result.violation is not None
    law, tries = result.violation.law, 0
    progress = True
    while progress and tries < TRIES:
        progress = False
        for smaller in _smaller(scenario):
            tries += 1
            found = run(smaller)
            if found.violation is not None and found.violation.law == law:
                scenario, result, progress = smaller, found, True
                break
            if tries >= TRIES:
                break
    return scenario, result


def _smaller(scenario: Scenario) -> Iterator[Scenario]:
    """Candidates, the boldest first."""
    if len(scenario.batches) > 1:
        yield replace(scenario, batches=scenario.batches[: len(scenario.batches) // 2])
        yield replace(scenario, batches=scenario.batches[len(scenario.batches) // 2 :])
    if scenario.workers > 1:
        fewer = scenario.workers - 1
        yield replace(scenario, workers=fewer, faults=tuple(f for f in scenario.faults if f.target < fewer))
    if scenario.partitions > 1:
        fewer = scenario.partitions - 1
        yield replace(scenario, partitions=fewer, batches=tuple(b for b in scenario.batches if b.partition < fewer))
    for fault in range(len(scenario.faults)):
        yield scenario.without(fault=fault)
    for batch in range(len(scenario.batches)):
        yield scenario.without(batch=batch)
    for at, batch in enumerate(scenario.batches):
        if len(batch.kinds) > 1:
            shorter = replace(batch, kinds=batch.kinds[: len(batch.kinds) // 2])
            yield replace(scenario, batches=(*scenario.batches[:at], shorter, *scenario.batches[at + 1 :]))
    for name, plain in PLAIN.items():
        if getattr(scenario, name) != plain:
            yield replace(scenario, **{name: plain})  # type: ignore[arg-type]
    if scenario.delivery != "none":
        yield replace(scenario, delivery="none" if scenario.delivery == "idempotent" else "idempotent")
