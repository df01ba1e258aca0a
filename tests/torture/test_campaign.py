"""The short campaign of `make test-all`: a fixed seed, no transactions, pauses that fence no broker.

Transactional delivery is left to `make torture`: a broker that is paused may leave a transaction hanging
(docs/reliability.md), which only its drain of three minutes and Kafka's own tool tell from a fault of ours.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.torture.campaign import Campaign, Shape

pytestmark = [pytest.mark.slow, pytest.mark.real_kafka, pytest.mark.real_s3]

MINUTES, EVERY_S = 1.2, 2.0


def test_a_campaign_on_real_parts_loses_nothing(tmp_path: Path) -> None:
    shape = Shape.of(29, delivery="idempotent", score_delivery="at-least-once", protocol="kip-848", store="s3")
    campaign = Campaign(shape, MINUTES, tmp_path / "campaign", EVERY_S)
    assert campaign.run(), campaign.table()
    assert campaign.done.total() >= 15, campaign.table()
