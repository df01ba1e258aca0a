"""Logins and rights on a real broker: every way in works, every denial is said in words, with exit code 5."""

from __future__ import annotations

import subprocess
import sys
import uuid
from pathlib import Path

import numpy as np
import pytest
from confluent_kafka.admin import AclOperation, ResourceType  # type: ignore[attr-defined]

from sfd_stream.wire.rows.encode import encode_row
from tests.support.secure import PASSWORD, SecureBroker
from tests.support.slow import smoke_first

pytestmark = [pytest.mark.real_kafka, pytest.mark.xdist_group("secure")]

ROOT = Path(__file__).parents[3]
ROWS, D = 200, 20
TOPIC, GROUP = ResourceType.TOPIC, ResourceType.GROUP
WAYS = ("scram", "tls", "oauth")


@pytest.fixture
def broker(secure: SecureBroker) -> SecureBroker:
    return secure


class Stage:
    """A topic with rows and one of dead letters, and the worker's settings; the rights are the test's."""

    def __init__(self, broker: SecureBroker, folder: Path, way: str) -> None:
        self.broker = broker
        self.rows, self.dead, self.group = broker.create_topic(), broker.create_topic(), f"g-{uuid.uuid4().hex[:8]}"
        self.sketches = broker.create_topic(config={"cleanup.policy": "compact"})
        rng = np.random.default_rng(1)
        broker.produce(self.rows, [encode_row(rng.choice(D, 3, replace=False), [1.0, 2.0, 3.0]) for _ in range(ROWS)])
        broker.produce(self.rows, [b"not a row"])
        self.principal = "User:CN=sketch" if way == "tls" else "User:sketch"
        self.settings = {
            **{f"kafka.{name}": value for name, value in broker.clients[way].items()},
            "kafka.group.id": self.group,
            "input.topic": self.rows,
            "sketch.d": str(D),
            "sketch.ell": "5",
            "dead_letters.topic": self.dead,
            "snapshot.topic": self.sketches,
            "snapshot.every_rows": "100",
            "checkpoint.url": (folder / "checkpoints").as_uri(),
            "checkpoint.give_up_s": "20",
            "http.port": "0",
        }
        if way == "oauth":
            self.settings["kafka_oauth_callback"] = "tests.system.security.issuer:unsigned"

    def allow_all(self, *, but: str = "") -> None:
        """What docs/guides/deploying.md says is needed, without one thing."""
        rights = {
            "read": (TOPIC, self.rows, AclOperation.READ, AclOperation.DESCRIBE),
            "write": (TOPIC, self.dead, AclOperation.WRITE, AclOperation.DESCRIBE),
            "snapshots": (TOPIC, self.sketches, AclOperation.READ, AclOperation.WRITE, AclOperation.DESCRIBE),
            "group": (GROUP, self.group, AclOperation.READ),
        }
        for name, (kind, resource, *operations) in rights.items():
            if name != but:
                self.broker.allow(kind, resource, *operations, principal=self.principal)

    def run(self, **changes: str) -> subprocess.CompletedProcess[str]:
        return self.command("run", "--until-end", "--json", **changes)

    def command(self, *words: str, **changes: str) -> subprocess.CompletedProcess[str]:
        command = [sys.executable, "-m", "sfd_stream.cli", *words]
        for key, value in {**self.settings, **changes}.items():
            command += ["--set", f"{key}={value}"]
        return subprocess.run(command, capture_output=True, text=True, check=False, timeout=120, cwd=ROOT)


@pytest.mark.parametrize("way", smoke_first(WAYS))
def test_every_way_in_reads_and_writes_with_exactly_the_rights_in_the_documents(
    broker: SecureBroker, tmp_path: Path, way: str
) -> None:
    stage = Stage(broker, tmp_path, way)
    stage.allow_all()
    answer = stage.run()
    assert answer.returncode == 0, answer.stderr
    assert f'"rows": {ROWS}' in answer.stdout
    read = stage.command("read", "--json")
    assert read.returncode == 0, read.stderr
    assert f'"rows": {ROWS}' in read.stdout
    assert PASSWORD not in answer.stdout + answer.stderr + read.stdout + read.stderr


@pytest.mark.slow
@pytest.mark.parametrize("way", smoke_first(["scram", "oauth"]))
def test_produce_logs_in_as_the_worker_does(broker: SecureBroker, tmp_path: Path, way: str) -> None:
    stage = Stage(broker, tmp_path, way)
    topic = broker.create_topic()
    broker.allow(TOPIC, topic, AclOperation.WRITE, AclOperation.DESCRIBE, principal=stage.principal)
    answer = stage.command("produce", "--synthetic", "50,20,3", "--topic", topic, "--json")
    assert answer.returncode == 0, answer.stderr
    assert '"rows": 50' in answer.stdout
    assert PASSWORD not in answer.stdout + answer.stderr


@pytest.mark.slow
@pytest.mark.parametrize(
    ("without", "words"),
    smoke_first(
        [
            ("read", "no right to the topic: grant DESCRIBE, and READ or WRITE"),
            ("group", "no right to the consumer group: grant READ on it"),
            ("write", "no right to the topic: grant DESCRIBE, and READ or WRITE"),
        ]
    ),
)
def test_a_missing_right_is_named(broker: SecureBroker, tmp_path: Path, without: str, words: str) -> None:
    stage = Stage(broker, tmp_path, "scram")
    stage.allow_all(but=without)
    answer = stage.run()
    assert answer.returncode == 5, answer.stderr
    assert words in answer.stderr


@pytest.mark.slow
@pytest.mark.parametrize("delivery", smoke_first(["transactional", "at-least-once"]))
def test_a_scorer_that_may_not_write_scores_ends_and_names_the_right(
    broker: SecureBroker, tmp_path: Path, delivery: str
) -> None:
    stage = Stage(broker, tmp_path, "scram")
    stage.allow_all()
    assert stage.run().returncode == 0
    scores, states = broker.create_topic(), broker.create_topic(config={"cleanup.policy": "compact"})
    group = f"{stage.group}-score"
    broker.allow(TOPIC, scores, AclOperation.READ, AclOperation.DESCRIBE, principal=stage.principal)
    broker.allow(TOPIC, states, AclOperation.READ, AclOperation.WRITE, AclOperation.DESCRIBE, principal=stage.principal)
    broker.allow(GROUP, group, AclOperation.READ, principal=stage.principal)
    ids = ResourceType.TRANSACTIONAL_ID
    broker.allow(ids, group, AclOperation.WRITE, AclOperation.DESCRIBE, principal=stage.principal, prefixed=True)
    given = {"score.topic": scores, "score.state_topic": states, "score.delivery": delivery}
    answer = stage.command("score", "--until-end", **given)
    assert answer.returncode == 5, answer.stderr
    assert "no right to the topic: grant DESCRIBE, and READ or WRITE" in answer.stderr


@pytest.mark.slow
@pytest.mark.parametrize(
    ("way", "changes", "words"),
    smoke_first(
        [
            ("scram", {"kafka.sasl.password": "wrong"}, "unknown credentials: check the sasl.* or ssl.* properties"),
            ("oauth", {"kafka_oauth_callback": "tests.system.security.issuer:stale"}, "unknown credentials"),
            ("oauth", {"kafka_oauth_callback": "tests.system.security.issuer:away"}, "the issuer does not answer"),
        ]
    ),
)
def test_unknown_credentials_are_said(
    broker: SecureBroker, tmp_path: Path, way: str, changes: dict[str, str], words: str
) -> None:
    stage = Stage(broker, tmp_path, way)
    stage.allow_all()
    answer = stage.run(**changes, **{"checkpoint.give_up_s": "5"})
    assert answer.returncode == 5, answer.stderr
    assert words in answer.stderr
    assert "wrong" not in answer.stderr.replace("something went wrong", "")


@pytest.mark.slow
def test_a_callback_that_is_not_there_is_a_wrong_setting(broker: SecureBroker, tmp_path: Path) -> None:
    answer = Stage(broker, tmp_path, "oauth").run(kafka_oauth_callback="tests.system.security.issuer:nobody")
    assert answer.returncode == 2, answer.stderr
    assert "tests.system.security.issuer has no function nobody" in answer.stderr
