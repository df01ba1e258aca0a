"""`python -m tests.simulation`: many seeds, what they covered, and how to repeat those that failed.

python -m tests.simulation --seeds 500            seeds 0 to 499
python -m tests.simulation --seed 41 --history    one seed, with everything that happened
python -m tests.simulation --seed 41 --shrink     the same failure with as few faults and records as possible
python -m tests.simulation --source DIR           another checkout of the package
python -m tests.simulation --mutations            how many seeds each mutation of the code needs to be caught
"""

from __future__ import annotations

import argparse
import sys
import time
from collections import Counter
from pathlib import Path

from tests.simulation.aims import AIMS
from tests.simulation.mutations import MUTATIONS, until_caught
from tests.simulation.run import ROOT, Result, simulate
from tests.simulation.scenario import Scenario, draw
from tests.simulation.shrink import shrink

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
    if given.mutations:
        return _mutations(given.source, given.seed, given.seeds, given.mutation)
    edits = MUTATIONS[given.mutation].edits if given.mutation else ()
    began, steps, coverage, failures = time.monotonic(), 0, Counter[tuple[str, str]](), list[Result]()
    count = 0
    for seed in range(given.seed, given.seed + given.seeds):
        if given.minutes is not None and time.monotonic() - began > given.minutes * 60:
            break
        scenario = AIMS[given.aim](draw(seed)) if given.aim else draw(seed)
        result = simulate(scenario, given.source, edits)
        count, steps = count + 1, steps + result.steps
        coverage.update({(kind, phase_of(point)): times for (kind, point), times in result.coverage.items()})
        if given.history:
            _print_history(scenario, result)
        if result.violation is not None:
            failures.append(result)
            print(f"seed {seed}: {result.violation}", flush=True)
            extra = f" --mutation {given.mutation!r}" if given.mutation else ""
            extra += f" --aim {given.aim}" if given.aim else ""
            print(f"  repeat: python -m tests.simulation --seed {seed} --shrink{extra}", flush=True)
            if given.shrink:
                shorter, short = shrink(scenario, result, lambda s: simulate(s, given.source, edits))
                _print_history(shorter, short)
                break
    seconds = time.monotonic() - began
    print(f"{count} seeds in {seconds:.1f} s: {count / seconds:.1f} seeds/s, {steps / max(count, 1):.0f} steps a seed")
    _print_coverage(coverage)
    laws = Counter(result.violation.law for result in failures if result.violation is not None)
    print("no violation" if not failures else f"{len(failures)} seeds failed: {dict(laws.most_common())}")
    return 1 if failures else 0


def _print_history(scenario: Scenario, result: Result) -> None:
    print(f"\nseed {scenario.seed}: {scenario.partitions} partitions, {scenario.workers} workers, {scenario.delivery},"
          f" {scenario.protocol}{', until end' if scenario.until_end else ''}")  # fmt: skip
    for fault in scenario.faults:
        print(f"  fault at {fault}")
    for batch in scenario.batches:
        print(f"  records at {batch.at_s} s in partition {batch.partition}: {batch.kinds}")
    for at_s, who, what in result.history:
        print(f"{at_s - 1000:9.3f} s  {who:9} {what}")
    print(f"digest {result.digest}, {result.steps} steps, {result.violation or 'no violation'}\n", flush=True)


def _print_coverage(coverage: Counter[tuple[str, str]]) -> None:
    kinds, phases = sorted({kind for kind, _ in coverage}), [*PHASES, "no worker"]
    print(f"{'fault, worker was at':22}" + "".join(f"{phase:>11}" for phase in phases))
    for kind in kinds:
        print(f"{kind:22}" + "".join(f"{coverage[kind, phase]:11}" for phase in phases))


def _mutations(source: Path, first: int, seeds: int, only: str | None) -> int:
    missed = 0
    for name, mutation in MUTATIONS.items():
        if only is not None and only not in name:
            continue
        found = until_caught(mutation, source, first, max(seeds, mutation.seeds))
        if found is None:
            missed += 1
            print(f"{name:50} not caught within {max(seeds, mutation.seeds)} seeds", flush=True)
        else:
            print(f"{name:50} {found.seed - first + 1:5}  {found.violation}", flush=True)
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(main())
