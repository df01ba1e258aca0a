"""Faults that the simulator found, each as the shortest history that showed it."""

from __future__ import annotations

import pytest

from tests.simulation.run import simulate
from tests.simulation.scenario import Batch, Fault, Scenario


def test_a_changed_state_is_published_although_republications_come_more_often() -> None:
    """With republish_s below every_s each republication put the next snapshot off, for ever (seed 18)."""
    scenario = Scenario(
        seed=18, partitions=1, workers=1, snapshot_every_s=8.0, republish_s=5.0, batches=(Batch(13.6, 0, "r"),)
    )
    assert simulate(scenario).violation is None


@pytest.mark.parametrize("at_s", [0.004, 0.006, 0.008, 0.01, 0.012])
def test_a_broker_that_goes_down_while_a_worker_starts_is_waited_for(at_s: float) -> None:
    """Between its first questions a worker gave up after 15 s, with exit 5, whatever give_up_s said."""
    outage = Fault(at_s, "broker down", 0, 25.0)
    scenario = Scenario(seed=1, partitions=1, workers=1, faults=(outage,), batches=(Batch(-1.0, 0, "rr"),))
    assert simulate(scenario).violation is None


@pytest.mark.parametrize("protocol", ["eager", "cooperative", "kip-848"])
def test_a_truncated_log_is_noticed_after_another_partition_was_assigned(protocol: str) -> None:
    """An eager assignment names all partitions again: it lost the leader epochs (seed 17)."""
    scenario = Scenario(
        seed=17,
        partitions=2,
        workers=1,
        protocol=protocol,  # type: ignore[arg-type]
        batches=(Batch(0.5, 0, "rrr"),),
        faults=(Fault(24.2, "truncated log"),),
        silent_losses=0.0,
    )
    found = simulate(scenario)
    assert found.violation is None
    assert any("exits 3" in words for _, _, words in found.history)


@pytest.mark.parametrize("silent_losses", [0.0, 1.0])
@pytest.mark.parametrize("paused", [0, 1])
def test_a_paused_worker_whose_partition_went_on_does_not_blame_the_log(paused: int, silent_losses: float) -> None:
    """Its new owner had read on, and retention had removed what the paused one still wanted: exit 3 (seed 11076)."""
    scenario = Scenario(
        seed=1,
        partitions=1,
        workers=2,
        every_s=0.5,
        session_s=3.0,
        batches=(Batch(-1.0, 0, "rrr"), Batch(9.0, 0, "rrr")),
        faults=(Fault(4.0, "pause", paused, 9.0), Fault(11.0, "log retention")),
        silent_losses=silent_losses,
    )
    assert simulate(scenario).violation is None
