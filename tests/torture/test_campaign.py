"""A short campaign on real parts passes every check; docs/reliability.md has the record of long ones."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.kafka_fixtures import or_without
from tests.support.kafka_home import kafka_home
from tests.torture.campaign import Campaign, Shape

pytestmark = [pytest.mark.slow, pytest.mark.real_kafka, pytest.mark.real_s3, pytest.mark.timeout(900)]


def test_a_short_campaign_passes_every_check(tmp_path: Path) -> None:
    """Idempotent delivery: under pauses Kafka 4.3.1 may leave a transaction open for ever (docs/reliability.md)."""
    or_without(kafka_home)
    shape = Shape.of(29, delivery="idempotent", protocol="kip-848", store="s3")
    campaign = Campaign(shape, minutes=1.0, folder=tmp_path / "campaign", every_s=2.0)
    assert campaign.run(), f"logs: {campaign.folder}\n{campaign.table()}"
    assert campaign.done.total() > 10
