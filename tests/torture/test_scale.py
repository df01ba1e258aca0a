"""Short forms of scale and overload; docs/reliability.md has the recorded runs."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.kafka_fixtures import PrivateBrokers
from tests.torture.overload import overloaded
from tests.torture.scale import POLL_INTERVAL_S, measured

pytestmark = pytest.mark.slow


@pytest.mark.parametrize("protocol", ["cooperative", "kip-848"])
def test_two_hundred_partitions_start_and_move_within_the_poll_interval_and_the_memory_of_size(
    private_broker: PrivateBrokers, tmp_path: Path, protocol: str
) -> None:
    result = measured(private_broker(), 200, tmp_path, protocol)
    assert result.removed == 0
    assert result.idle_s < POLL_INTERVAL_S
    assert result.peak_bytes < result.estimated_bytes


def test_a_producer_faster_than_the_worker_costs_no_memory_and_no_row(
    private_broker: PrivateBrokers, tmp_path: Path
) -> None:
    assert overloaded(private_broker(), tmp_path, 0.4).violations == []
