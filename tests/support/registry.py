"""A real schema registry for tests: Apicurio from Maven Central, fetched once per machine, on Java 17.

It speaks Confluent's API under `/apis/ccompat/v7` and keeps schemas in memory, so a restart forgets them. Registering
the same schemas in the same order gives them the same ids again.
"""

from __future__ import annotations

import os
import subprocess
import tarfile
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.cache import cache_folder, filled_once
from tests.support.kafka import free_ports
from tests.support.kafka_fixtures import or_without
from tests.support.kafka_home import NoKafkaError, java_version, say

VERSION = "2.6.13.Final"
_COPY = "org.apache.maven.plugins:maven-dependency-plugin:3.8.1:copy"
_START_S = 240.0


def registry_home() -> Path:
    """The folder with the registry's jars."""
    return filled_once(cache_folder() / f"apicurio-{VERSION}", _fetch)


def _fetch(folder: Path) -> None:
    say(f"fetching Apicurio Registry {VERSION} (140 MB, once per machine)")
    artifact = f"io.apicurio:apicurio-registry-app:{VERSION}:tar.gz:all"
    command = ["mvn", "-B", "-q", _COPY, f"-Dartifact={artifact}", f"-DoutputDirectory={folder}"]
    try:
        subprocess.run(command, check=True, capture_output=True, timeout=500)
    except (OSError, subprocess.SubprocessError) as error:
        raise NoKafkaError(f"Maven could not fetch {artifact} ({type(error).__name__})") from error
    (archive,) = folder.glob("*.tar.gz")
    with tarfile.open(archive) as tar:
        tar.extractall(folder, filter="data")
    archive.unlink()


class Registry:
    """A running registry. `kill` and `start` again keep the port."""

    def __init__(self, port: int, log: Path) -> None:
        self.url = f"http://127.0.0.1:{port}/apis/ccompat/v7"
        self._port, self._log = port, log
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        java_version()
        (runner,) = registry_home().rglob("*-runner.jar")
        environment = {**os.environ, "QUARKUS_HTTP_PORT": str(self._port), "QUARKUS_HTTP_HOST": "127.0.0.1"}
        command = ["java", "-Xmx512m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-jar", str(runner)]
        with self._log.open("ab") as log:
            self._process = subprocess.Popen(command, env=environment, stdout=log, stderr=log, cwd=runner.parent)
        deadline = time.monotonic() + _START_S
        while not self._answers():
            if self._process.poll() is not None or time.monotonic() > deadline:
                self.kill()
                raise NoKafkaError(f"the schema registry did not start: {self._log.read_text()[-2000:]}")
            time.sleep(0.2)

    def kill(self) -> None:
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            self._process = None

    def _answers(self) -> bool:
        try:
            with urllib.request.urlopen(f"{self.url}/subjects", timeout=5) as answer:  # noqa: S310 - our own, http
                return bool(answer.status == 200)
        except (urllib.error.URLError, OSError):
            return False


@pytest.fixture(scope="session")
def registry(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Registry]:
    """A real schema registry for the tests of one process."""
    found = Registry(free_ports(1)[0], tmp_path_factory.mktemp("registry") / "registry.log")
    or_without(found.start)
    yield found
    found.kill()


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """One registry, so that they run in one process."""
    for item in items:
        if "registry" in getattr(item, "fixturenames", ()):
            item.add_marker(pytest.mark.xdist_group("registry"))
