"""Shared by all tests: real brokers, found or started (tests/parts/kafka_fixtures.py)."""

from __future__ import annotations

pytest_plugins = ["tests.parts.kafka_fixtures", "tests.parts.tools"]
