"""Shared by all tests: real parts, found or started (tests/parts/)."""

from __future__ import annotations

import signal

import pytest

pytest_plugins = [
    "tests.parts.kafka_fixtures",
    "tests.parts.registry",
    "tests.parts.seaweed",
    "tests.parts.skips",
    "tests.parts.tools",
    "tests.parts.azurite",  # imports two of those above
]


def pytest_configure() -> None:
    """A shell ignores SIGINT in what it runs in the background (`make test &`), and so would all processes of ours."""
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)


UNMEASURED = (
    "tests/sketch/test_certificate",
    "tests/sketch/test_changes",
    "tests/sketch/test_laws",
    "tests/sketch/test_merge",
    "tests/sketch/test_mutations",
    "tests/sketch/test_queries",
    "tests/sketch/test_resume",
    "tests/sketch/test_score_laws",
    "tests/state/test_schedules",
    "tests/wire/test_rows_laws",
)
"""Laws over hundreds of random cases. Watching each line would double their time, and others reach the same lines."""


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if item.nodeid.startswith(UNMEASURED):
            item.add_marker(pytest.mark.no_cover)
