"""`python -m tests.simulation`: many seeds, what they covered, and how to repeat those that failed.

python -m tests.simulation --seeds 500            seeds 0 to 499
python -m tests.simulation --seed 41 --history    one seed, with everything that happened
python -m tests.simulation --seed 41 --shrink     the same failure with as few faults and records as possible
python -m tests.simulation --source DIR           another checkout of the package
python -m tests.simulation --mutations            how many seeds each mutation of the code needs to be caught
"""

from __future__ import annotations

import argparse
import logging
import sys
import time
from collections import Counter
from dataclasses import dataclass, field
from itertools import groupby
from pathlib import Path

from tests.simulation.aims import AIMS
from tests.simulation.mutations import MUTATIONS, until_caught
from tests.simulation.run import ROOT, Result, simulate
from tests.simulation.scenario import Scenario, draw
from tests.simulation.score_mutations import SCORE_MUTATIONS
from tests.simulation.shrink import shrink

PROGRESS_S = 60.0
ALL_MUTATIONS = MUTATIONS | SCORE_MUTATIONS

PHASES = {
    "start": ("starting",),
    "read store": ("List", "Get", "GetMany"),
    "claim": ("after-claim",),
    "blobs": ("before-blobs", "Put", "after-letters"),
    "manifest": ("CreateIfAbsent", "after-manifest"),
    "publish": ("before-publish", "after-publish", "before-transaction", "after-offsets", "before-end"),
    "commit": ("before-commit", "after-commit"),
    "prune": ("Delete",),
}


def phase_of(point: str) -> str:
    bare = point.removeprefix("before-").removeprefix("after-")
    return next((phase for phase, points in PHASES.items() if point in points or bare in points), "no worker")


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.simulation", description=__doc__.splitlines()[0])
    parser.add_argument("--seeds", type=int, default=1, help="number of seeds to run")
    parser.add_argument("--seed", type=int, default=0, help="the first seed")
    parser.add_argument("--minutes", type=float, help="stop after this time, whatever number of seeds is left")
    parser.add_argument("--source", type=Path, default=ROOT, help="a checkout whose sfd_stream is simulated")
    parser.add_argument("--mutation", help="run the code with this mutation")
    parser.add_argument(
        "--mutations", action="store_true", help="run until each mutation is caught, and print the table"
    )
    parser.add_argument("--aim", choices=AIMS, help="aim the faults at what random ones seldom reach (aims.py)")
    parser.add_argument("--history", action="store_true", help="print what happened")
    parser.add_argument("--shrink", action="store_true", help="shorten the first failure, and print its history")
    given = parser.parse_args(arguments)
    logging.getLogger("sfd_stream").setLevel(logging.CRITICAL)  # the history has all log lines
    if given.mutations:
        return _mutations(given.source, given.seed, given.seeds, given.mutation)
    return _seeds(given)


@dataclass
class Tally:
    """What was run so far."""

    began_s: float = field(default_factory=time.monotonic)
    seeds: int = 0
    steps: int = 0
    simulated_s: float = 0.0
    coverage: Counter[tuple[str, str]] = field(default_factory=Counter)
    laws: Counter[str] = field(default_factory=Counter)

    def add(self, result: Result) -> None:
        self.seeds, self.steps = self.seeds + 1, self.steps + result.steps
        self.simulated_s += result.seconds
        self.coverage.update({(kind, phase_of(point)): times for (kind, point), times in result.coverage.items()})
        if result.violation is not None:
            self.laws[result.violation.law] += 1

    @property
    def seconds(self) -> float:
        return max(time.monotonic() - self.began_s, 1e-9)

    def print_line(self) -> None:
        rate, steps = self.seeds / self.seconds, self.steps / max(self.seeds, 1)
        print(
            f"{self.seeds:,} seeds in {self.seconds:.0f} s: {rate:.1f} seeds/s, {steps:,.0f} steps a seed,"
            f" {self.simulated_s / 3600:.1f} simulated hours, {sum(self.laws.values())} violations",
            flush=True,
        )

    def print_all(self) -> None:
        self.print_line()
        _print_coverage(self.coverage)
        failed = f"{sum(self.laws.values())} seeds failed: {dict(self.laws.most_common())}"
        print("no violation" if not self.laws else failed, flush=True)


def _seeds(given: argparse.Namespace) -> int:
    edits = ALL_MUTATIONS[given.mutation].edits if given.mutation else ()
    tally, told_s = Tally(), 0.0
    for seed in range(given.seed, given.seed + given.seeds):
        if given.minutes is not None and tally.seconds > given.minutes * 60:
            break
        scenario = AIMS[given.aim](draw(seed)) if given.aim else draw(seed)
        result = simulate(scenario, given.source, edits)
        tally.add(result)
        if given.history:
            _print_history(scenario, result)
        if result.violation is not None:
            print(f"seed {seed}: {result.violation}\n  repeat: {_command(seed, given)} --shrink", flush=True)
            if given.shrink:
                shorter, short = shrink(scenario, result, lambda s: simulate(s, given.source, edits))
                print(f"the shortest history that was found; {_command(seed, given)} --history prints the whole one")
                _print_history(shorter, short)
                return 1
        if tally.seconds - told_s >= PROGRESS_S:
            told_s = tally.seconds
            tally.print_line()
    tally.print_all()
    return 1 if tally.laws else 0


def _command(seed: int, given: argparse.Namespace) -> str:
    mutation = f" --mutation {given.mutation!r}" if given.mutation else ""
    aim = f" --aim {given.aim}" if given.aim else ""
    return f"python -m tests.simulation --seed {seed}{aim}{mutation}"


def _print_history(scenario: Scenario, result: Result) -> None:
    print(f"\nseed {scenario.seed}: {scenario.partitions} partitions, {scenario.workers} workers, {scenario.delivery},"
          f" {scenario.protocol}{', until end' if scenario.until_end else ''}")  # fmt: skip
    for fault in scenario.faults:
        print(f"  fault at {fault}")
    for batch in scenario.batches:
        print(f"  records at {batch.at_s} s in partition {batch.partition}: {batch.kinds}")
    for (who, what), group in groupby(result.history, key=lambda line: line[1:]):
        lines = list(group)
        again = f"  ({len(lines)} times, until {lines[-1][0] - 1000:.3f} s)" if len(lines) > 1 else ""
        print(f"{lines[0][0] - 1000:9.3f} s  {who:9} {what}{again}")
    print(f"digest {result.digest}, {result.steps} steps, {result.violation or 'no violation'}\n", flush=True)


def _print_coverage(coverage: Counter[tuple[str, str]]) -> None:
    kinds, phases = sorted({kind for kind, _ in coverage}), [*PHASES, "no worker"]
    print(f"{'fault, worker was at':22}" + "".join(f"{phase:>11}" for phase in phases))
    for kind in kinds:
        print(f"{kind:22}" + "".join(f"{coverage[kind, phase]:11}" for phase in phases))


def _mutations(source: Path, first: int, seeds: int, only: str | None) -> int:
    """The table of docs/reliability.md."""
    missed = 0
    print("| mutation | aim | seeds until caught | law that it broke |\n|---|---|---|---|", flush=True)
    for name, mutation in ALL_MUTATIONS.items():
        if only is not None and only not in name:
            continue
        found = until_caught(mutation, source, first, max(seeds, mutation.seeds))
        if found is None:
            missed += not mutation.harmless
            words = f"not caught within {max(seeds, mutation.seeds)} | {'harmless by itself' * mutation.harmless}"
        else:
            assert found.violation is not None
            words = f"{found.seed - first + 1} | {found.violation.law}"
        print(f"| {name} | {mutation.aim or ''} | {words} |", flush=True)
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(main())
