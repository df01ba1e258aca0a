"""Shared by all tests: real parts, found or started (tests/parts/)."""

from __future__ import annotations

import signal

pytest_plugins = ["tests.parts.kafka_fixtures", "tests.parts.seaweed", "tests.parts.skips", "tests.parts.tools"]


def pytest_configure() -> None:
    """A shell ignores SIGINT in what it runs in the background (`make test &`), and so would all processes of ours."""
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)
