"""Whole workers in simulation."""

from __future__ import annotations

import os
import subprocess
import sys
from dataclasses import replace

import pytest

from tests.simulation.aims import mixed
from tests.simulation.conformance import a_pause_survives_unassign_and_assign
from tests.simulation.mutations import MUTATIONS
from tests.simulation.run import ROOT, simulate
from tests.simulation.scenario import draw
from tests.simulation.test_conformance import simulated

CODE = "from tests.simulation.run import simulate; from tests.simulation.scenario import draw;"
SEEDS, CHUNK = 600, 30
REPEATED = (0, 1, 2, 4)
"""With and without aimed faults, with and without a point before every statement."""


@pytest.mark.slow
@pytest.mark.parametrize("first", range(0, SEEDS, CHUNK))
def test_every_law_holds(first: int) -> None:
    """Half of the seeds have aimed faults."""
    found = {seed: simulate(mixed(draw(seed))).violation for seed in range(first, first + CHUNK)}
    assert {seed: str(violation) for seed, violation in found.items() if violation} == {}


@pytest.mark.parametrize("seed", range(10))
def test_without_faults_every_law_holds(seed: int) -> None:
    scenario = replace(draw(seed), faults=(), until_end=False, one_in_memory=False)
    assert simulate(scenario).violation is None


@pytest.mark.slow
def test_the_same_seed_is_the_same_history_under_any_hash_seed() -> None:
    """Digests of whole histories: every write, commit, callback, log line and step."""
    script = f"{CODE} print([simulate(draw(seed)).digest for seed in range(6)])"
    found = [
        subprocess.check_output(
            [sys.executable, "-c", script], cwd=ROOT, env={**os.environ, "PYTHONHASHSEED": number}, text=True
        )
        for number in ("1", "77")
    ]
    assert found[0] == found[1]
    assert found[0].strip() == str([simulate(draw(seed)).digest for seed in range(6)])


def _alone(seed: int) -> str:
    """The digest of a seed that is the first simulation of its process."""
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        os.write(writing, simulate(mixed(draw(seed))).digest.encode())
        os._exit(0)
    os.close(writing)
    with os.fdopen(reading) as digest:
        found = digest.read()
    assert os.waitpid(child, 0)[1] == 0
    return found


def print_differences() -> None:
    """Seeds whose history is another one after others, mutations and other simulated clients in the same process."""
    alone = {seed: _alone(seed) for seed in REPEATED}
    simulated(a_pause_survives_unassign_and_assign)
    simulate(draw(1), edits=MUTATIONS["next offset one too far"].edits)
    later = {seed: simulate(mixed(draw(seed))).digest for seed in reversed(REPEATED)}
    again = {seed: simulate(mixed(draw(seed))).digest for seed in REPEATED}
    print([seed for seed in REPEATED if not alone[seed] == later[seed] == again[seed]])


@pytest.mark.slow
def test_a_history_does_not_depend_on_what_ran_before_in_its_process() -> None:
    """In a process of its own, which has no threads that a fork could hurt."""
    script = "from tests.simulation.test_seeds import print_differences; print_differences()"
    assert subprocess.check_output([sys.executable, "-c", script], cwd=ROOT, text=True).strip() == "[]"
