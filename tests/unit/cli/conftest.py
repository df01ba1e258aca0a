"""A broker for the commands: librdkafka's own, held by the tests."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import pytest
from confluent_kafka import Producer

if TYPE_CHECKING:
    from collections.abc import Iterator


@pytest.fixture(scope="session")
def broker() -> Iterator[str]:
    holder = Producer({"test.mock.num.brokers": 1, "log_level": 0})
    node = next(iter(holder.list_topics(timeout=10).brokers.values()))
    yield f"{node.host}:{node.port}"
    del holder


@pytest.fixture(autouse=True)
def logging_untouched_afterwards(logging_restored: None) -> None:
    """For every test of this folder."""


@pytest.fixture(autouse=True)
def no_settings_from_outside(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [name for name in os.environ if name.startswith("SFD_")]:
        monkeypatch.delenv(name)
