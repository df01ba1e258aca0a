"""A failing seed with as few faults, records and workers as still break the same law."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace

from tests.simulation.run import Result
from tests.simulation.scenario import Scenario

TRIES = 400


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


def _smaller(scenario: Scenario) -> Iterator[Scenario]:  # noqa: PLR0912 - one branch a simplification
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
    if scenario.points:
        yield replace(scenario, points=False)
    if scenario.watched:
        yield replace(scenario, watched=False)
    if scenario.reader:
        yield replace(scenario, reader=False)
    if scenario.merge:
        yield replace(scenario, merge=False)
    if scenario.first_offset:
        yield replace(scenario, first_offset=0)
    if scenario.flaky:
        yield replace(scenario, flaky=0.0)
    if scenario.stall:
        yield replace(scenario, stall=0.0)
    if scenario.columns != "fixed":
        yield replace(scenario, columns="fixed")
    if not scenario.inline:
        yield replace(scenario, inline=True)
    if scenario.delivery != "none":
        yield replace(scenario, delivery="none" if scenario.delivery == "idempotent" else "idempotent")
