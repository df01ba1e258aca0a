"""Shared by all tests: real parts, found or started (tests/support/)."""

from __future__ import annotations

import logging
import signal
from collections.abc import Iterator

import pytest
import structlog

pytest_plugins = [
    "tests.support.kafka_fixtures",
    "tests.support.registry",
    "tests.support.seaweed",
    "tests.support.skips",
    "tests.support.tools",
    "tests.support.azurite",  # imports two of those above
    "tests.support.fake_gcs",
]


def pytest_configure() -> None:
    """A shell ignores SIGINT in what it runs in the background (`make test &`), and so would all processes of ours."""
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.fixture
def logging_restored() -> Iterator[None]:
    root = logging.getLogger()
    handlers, level = list(root.handlers), root.level
    yield
    root.handlers[:] = handlers
    root.setLevel(level)
    logging.captureWarnings(capture=False)
    structlog.reset_defaults()


UNMEASURED = (
    "tests/simulation/",
    "tests/unit/sketch/scoring/test_score_laws",
    "tests/unit/sketch/test_builder",
    "tests/unit/sketch/test_changes",
    "tests/unit/sketch/test_laws",
    "tests/unit/sketch/test_merge",
    "tests/unit/sketch/test_mutations",
    "tests/unit/sketch/test_sketch",
    "tests/unit/sketch/test_verify",
    "tests/unit/state/test_schedules",
    "tests/unit/wire/rows/test_decode",
)
"""Laws over hundreds of random cases. Watching each line would double their time, and others reach the same lines."""


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if item.nodeid.startswith(UNMEASURED):
            item.add_marker(pytest.mark.no_cover)
