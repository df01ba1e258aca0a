"""Shared by all tests: real parts, found or started (tests/parts/)."""

from __future__ import annotations

pytest_plugins = ["tests.parts.kafka_fixtures", "tests.parts.seaweed", "tests.parts.skips", "tests.parts.tools"]
