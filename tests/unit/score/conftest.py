"""Scorers run on the topics of tests/service: `make_run` is theirs."""

from tests.system.conftest import make_run  # noqa: F401 - a fixture
