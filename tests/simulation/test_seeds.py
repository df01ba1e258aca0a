"""Whole workers in simulation."""

from __future__ import annotations

import os
import subprocess
import sys
from dataclasses import replace

import pytest

from tests.simulation.aims import mixed
from tests.simulation.run import ROOT, simulate
from tests.simulation.scenario import draw

CODE = "from tests.simulation.run import simulate; from tests.simulation.scenario import draw;"
SEEDS, CHUNK = 780, 30
KNOWN_OPEN = "published once"
"""docs/reliability.md, "Runs": after a loss that the client does not report, a transaction may be repeated. Rare, and
not yet fixed; remove this together with the fault."""


@pytest.mark.slow
@pytest.mark.parametrize("first", range(0, SEEDS, CHUNK))
def test_every_law_holds(first: int) -> None:
    """Half of the seeds have aimed faults."""
    found = {seed: simulate(mixed(draw(seed))).violation for seed in range(first, first + CHUNK)}
    broken = {seed: str(violation) for seed, violation in found.items() if violation}
    assert {seed: law for seed, law in broken.items() if not law.startswith(KNOWN_OPEN)} == {}
    assert len(broken) <= 1, "more often than the known fault"


@pytest.mark.parametrize("seed", range(10))
def test_without_faults_every_law_holds(seed: int) -> None:
    scenario = replace(draw(seed), faults=(), until_end=False, one_in_memory=False)
    assert simulate(scenario).violation is None


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
