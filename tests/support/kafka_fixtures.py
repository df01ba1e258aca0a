"""Kafka for tests, as fixtures.

    kafka            the run's one real broker, shared by all processes; topics by `kafka.create_topic()`
    private_broker   a factory of real brokers of one's own, to kill and restart
    built_in         librdkafka's own broker, in this process
    secure           one more real broker, that asks who one is, shared by the tests of one process
    broker           both of `kafka` and `built_in`, one after the other: for contract tests

A test that needs a real broker is marked `real_kafka` by hand or by using one of the fixtures. Where there
is none it is skipped, with one line at the end that says what to install; with CI=true a skip is a failure (skips.py).
"""

from __future__ import annotations

import contextlib
import os
import tempfile
import uuid
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

import pytest

from sfd_stream.kafka.mock_broker import EmbeddedBroker
from tests.support.kafka import (
    QUICK_FLAGS,
    Broker,
    LocalBroker,
    NoKafkaError,
    broker_properties,
    free_ports,
    start_broker,
    write_properties,
)
from tests.support.kafka_home import kafka_home
from tests.support.kafka_keeper import shared_broker
from tests.support.proxy import ResettingProxy
from tests.support.secure import SecureBroker

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

NEEDS_REAL = {"kafka", "private_broker", "secure"}
_FOLDER = pytest.StashKey[Path]()
_REASON = "no real Kafka"
Found = TypeVar("Found")
Proxy = TypeVar("Proxy", bound=ResettingProxy)


class PrivateBrokers(Protocol):
    def __call__(self, properties: Mapping[str, str] | None = None) -> LocalBroker: ...


class BuiltIn(Broker):
    """The built-in broker in the clothes of a real one: topics make themselves, with four partitions."""

    kind = "built-in"

    def create_topic(
        self, *, partitions: int = 4, config: Mapping[str, str] | None = None, name: str | None = None
    ) -> str:
        assert partitions <= 4, "the built-in broker makes topics of four partitions"
        assert not config, "the built-in broker has no topic settings"
        name = name or f"t-{uuid.uuid4().hex[:12]}"
        self._wait_for(lambda: self.leaders_known(name), f"leaders of {name}")
        return name


def pytest_configure(config: pytest.Config) -> None:
    given = getattr(config, "workerinput", {}).get("sfd_folder")
    # The keeper removes it; a run without Kafka leaves an empty folder among the temporary ones.
    config.stash[_FOLDER] = Path(given or tempfile.mkdtemp(prefix="sfd-tests-"))


@pytest.hookimpl(optionalhook=True)
def pytest_configure_node(node: Any) -> None:
    """xdist's: what each worker is told by the controller."""
    node.workerinput["sfd_folder"] = str(node.config.stash[_FOLDER])
    node.workerinput["sfd_controller"] = os.getpid()


def pytest_unconfigure(config: pytest.Config) -> None:
    folder = config.stash.get(_FOLDER, None)
    if folder is not None and not hasattr(config, "workerinput") and not any(folder.iterdir()):
        folder.rmdir()


LONG = (
    "tests/torture/",
    "tests/deploy/test_prometheus",
    "tests/system/versions/",
    "tests/system/test_kills",
    "tests/system/security/",
    "tests/unit/storage/",
    "tests/system/processes/",
    "tests/unit/demo/",
    "tests/unit/doctor/",
    "tests/system/",
)
"""These wait for processes, or belong to one process: begun first, none is left alone at the end."""


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    items.sort(key=lambda item: next((i for i, start in enumerate(LONG) if item.nodeid.startswith(start)), len(LONG)))
    for item in items:
        if NEEDS_REAL & set(getattr(item, "fixturenames", ())):
            item.add_marker(pytest.mark.real_kafka)
        if "secure" in getattr(item, "fixturenames", ()):
            item.add_marker(pytest.mark.xdist_group("secure"))  # one such broker is enough


def pytest_terminal_summary(terminalreporter: Any) -> None:
    without = [report for report in terminalreporter.stats.get("skipped", []) if _REASON in str(report.longrepr)]
    if without:
        reason = str(without[0].longrepr).partition(_REASON + ": ")[2].rstrip("')")
        terminalreporter.write_line(f"{len(without)} tests need a real Kafka and were skipped: {reason}", yellow=True)


def or_without(start: Callable[[], Found]) -> Found:
    """The broker, or a skip."""
    try:
        return start()
    except NoKafkaError as error:
        pytest.skip(f"{_REASON}: {error}")


@pytest.fixture(scope="session")
def kafka(pytestconfig: pytest.Config) -> Iterator[Broker]:
    worker: dict[str, Any] = getattr(pytestconfig, "workerinput", {})
    folder, controller = pytestconfig.stash[_FOLDER], worker.get("sfd_controller", os.getpid())
    with or_without(lambda: shared_broker(folder, controller)) as broker:
        yield broker


@pytest.fixture
def private_broker() -> Iterator[PrivateBrokers]:
    made: list[Broker] = []

    def make(properties: Mapping[str, str] | None = None) -> Any:
        made.append(or_without(lambda: start_broker(properties=properties, private=True)))
        return made[-1]

    yield make
    for broker in made:
        broker.close()


@pytest.fixture(scope="session")
def secure() -> Iterator[SecureBroker]:
    with SecureBroker.open(or_without(kafka_home)) as broker:
        yield broker


@pytest.fixture(scope="session")
def built_in() -> Iterator[BuiltIn]:
    with EmbeddedBroker() as embedded, BuiltIn(embedded.bootstrap) as broker:
        yield broker


@pytest.fixture(params=["built-in", pytest.param("real", marks=pytest.mark.real_kafka)])
def broker(request: pytest.FixtureRequest) -> Broker:
    found: Broker = request.getfixturevalue("kafka" if request.param == "real" else "built_in")
    return found


@contextlib.contextmanager
def behind(proxy_type: type[Proxy]) -> Iterator[tuple[LocalBroker, Proxy]]:
    """A broker that clients reach through the proxy only; it talks to itself directly."""
    home = or_without(kafka_home)
    inner, inside, controller = free_ports(3)
    folder = Path(tempfile.mkdtemp(prefix="sfd-kafka-"))
    settings = broker_properties(port=inner, controller_port=controller, logs=folder / "logs")
    own = f"INSIDE://127.0.0.1:{inside}"
    with proxy_type(inner) as proxy:
        settings["listeners"] = f"PLAINTEXT://127.0.0.1:{inner},{own},CONTROLLER://127.0.0.1:{controller}"
        settings["advertised.listeners"] = f"PLAINTEXT://127.0.0.1:{proxy.port},{own}"
        settings["listener.security.protocol.map"] = "PLAINTEXT:PLAINTEXT,INSIDE:PLAINTEXT,CONTROLLER:PLAINTEXT"
        settings["inter.broker.listener.name"] = "INSIDE"
        write_properties(folder / "server.properties", settings)
        home.copy_formatted(folder / "logs")
        with LocalBroker(home, folder, proxy.port, QUICK_FLAGS) as broker:
            broker.restart()
            yield broker, proxy
