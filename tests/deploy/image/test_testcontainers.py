"""The ladder's Docker rung on a real engine: a user with Docker gets the same suite as one with Java.

On an engine of our own, which can't pull, Apache Kafka's image is made here from the same jars, under the same name.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.deploy.image.containers import ROOT
from tests.support.engine import Engine
from tests.support.kafka import IMAGE, kafka_home

pytestmark = pytest.mark.image


@pytest.fixture(scope="session")
def kafka_image(engine: Engine, tmp_path_factory: pytest.TempPathFactory) -> str:
    if engine.ours and not engine.has(IMAGE):
        engine.make_base("debian:trixie-java", ("openjdk-21-jre-headless",))
        home, context = kafka_home(), tmp_path_factory.mktemp("kafka")
        shutil.copytree(Path(__file__).parent / "kafka", context, dirs_exist_ok=True)
        shutil.copytree(home.libs, context / "libs")
        shutil.copy(home.folder / "log4j2.properties", context)
        engine.run("build", "--tag", IMAGE, str(context))
    return IMAGE


def test_the_contracts_of_source_and_sink_hold_on_it(engine: Engine, kafka_image: str) -> None:
    """The very tests that run on the other rungs, transactions among them. CI=true: no skips."""
    environment = {**engine.environment, "CI": "true", "TESTCONTAINERS_RYUK_DISABLED": "true"}
    environment.pop("SFD_TEST_BOOTSTRAP", None)
    command = [sys.executable, "-m", "pytest", "-q", "-n", "2", "-p", "no:cacheprovider", "tests/deploy/image/rung.py"]
    command += [
        f"tests/unit/kafka/test_{part}.py" for part in ("producer", "dead_letters", "source", "transactional_producer")
    ]
    answer = subprocess.run(command, capture_output=True, text=True, check=False, env=environment, cwd=ROOT)
    assert answer.returncode == 0, answer.stdout[-4_000:] + answer.stderr[-2_000:]
    assert "does not start" not in answer.stderr, "it fell back to the local Java"
    assert os.environ.get("SFD_TEST_BOOTSTRAP") is None
