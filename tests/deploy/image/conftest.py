"""The image under test, built once by a real engine, and the real Kafka that its containers talk to."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.deploy.image.making import make_image
from tests.support.engine import Engine, NoEngineError, start_engine
from tests.support.kafka import LocalBroker, kafka_home

_REASON = "no Docker engine"


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    without = [report for report in terminalreporter.stats.get("skipped", []) if _REASON in str(report.longrepr)]
    if without:
        reason = str(without[0].longrepr).partition(_REASON + ": ")[2].rstrip("')")
        terminalreporter.write_line(f"{len(without)} tests need Docker and were skipped: {reason}", yellow=True)


@pytest.fixture(scope="session")
def engine() -> Iterator[Engine]:
    try:
        with start_engine() as engine:
            yield engine
    except NoEngineError as error:
        pytest.skip(f"{_REASON}: {error}")


@pytest.fixture(scope="session")
def image(engine: Engine) -> str:
    return make_image(engine)


@pytest.fixture(scope="session")
def broker() -> Iterator[LocalBroker]:
    """On the loopback, which a container with the host's network shares."""
    with LocalBroker.start(kafka_home()) as broker:
        yield broker


@pytest.fixture
def folder() -> Iterator[Path]:
    """A folder that uid 10001 of a container may write to; pytest's own ones are closed to others."""
    with tempfile.TemporaryDirectory(prefix="sfd-image-", ignore_cleanup_errors=True) as name:
        path = Path(name)
        path.chmod(0o777)
        yield path
