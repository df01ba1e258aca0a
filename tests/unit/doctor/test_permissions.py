"""Who may not, is told what to be granted; on a broker with an authorizer, TLS and logins."""

from __future__ import annotations

from pathlib import Path

import pytest
from confluent_kafka.admin import AclOperation, ResourceType  # type: ignore[attr-defined]

from sfd_stream.doctor.check import Verdict
from sfd_stream.doctor.permissions import transactions, write
from tests.support.secure import PASSWORD, SecureBroker
from tests.unit.doctor.clinic import Clinic
from tests.unit.doctor.patients import patient, topic

pytestmark = pytest.mark.xdist_group("secure")

READ, WRITE, DESCRIBE = AclOperation.READ, AclOperation.WRITE, AclOperation.DESCRIBE


@pytest.fixture
def clinic(secure: SecureBroker, tmp_path: Path) -> Clinic:
    return Clinic(secure, tmp_path, dict(secure.clients["scram"]))


def allow_all(clinic: Clinic, *, but: str = "") -> None:
    """What docs/guides/deploying.md says is needed, with DESCRIBE alone where one thing is to be missing."""
    secure = clinic.broker
    assert isinstance(secure, SecureBroker)
    rights = {
        "right to read": (ResourceType.TOPIC, clinic.rows, {READ}),
        "right to write": (ResourceType.TOPIC, clinic.dead, {WRITE}),
        "snapshots": (ResourceType.TOPIC, clinic.sketches, {READ, WRITE}),
        "right to the group": (ResourceType.GROUP, clinic.group, {READ}),
        "right to transactions": (ResourceType.TRANSACTIONAL_ID, clinic.group, {WRITE}),
    }
    for name, (kind, resource, operations) in rights.items():
        prefixed = kind == ResourceType.TRANSACTIONAL_ID
        secure.allow(kind, resource, DESCRIBE, *(operations if name != but else ()), prefixed=prefixed)


def test_a_topic_of_snapshots_is_written_and_read() -> None:
    """A new state looks there for the last epoch; dead letters are only written."""
    given = ("snapshot.topic=sketches", "dead_letters.topic=dead")
    only_write = frozenset({WRITE})
    assert write(patient(topic("sketches"), topic("dead", allowed=only_write), overrides=given)).verdict is Verdict.GOOD
    found = write(patient(topic("sketches", allowed=only_write), topic("dead"), overrides=given))
    assert (found.verdict, found.reason) == (Verdict.FAILED, "no READ on topic sketches")


def test_transactions_are_tried_only_where_they_are_used() -> None:
    assert transactions(patient(overrides=("snapshot.topic=sketches",))).verdict is Verdict.SKIPPED


def test_with_the_rights_in_the_documents_nothing_is_wrong(clinic: Clinic) -> None:
    allow_all(clinic)
    found = clinic.examine(**{"snapshot.delivery": "transactional"})
    assert (found.exit_code, found.bad()) == (0, [])
    assert "DESCRIBE_CONFIGS" in found.words("compaction"), "what can't be seen is said"
    assert found.verdict("TLS") == found.verdict("login") == "good"


@pytest.mark.parametrize("right", ["right to read", "right to write", "right to the group", "right to transactions"])
def test_a_missing_right_is_found_by_its_own_check(clinic: Clinic, right: str) -> None:
    allow_all(clinic, but=right)
    found = clinic.examine(**{"snapshot.delivery": "transactional"})
    assert (found.exit_code, found.bad()) == (5, [right])
    assert "grant" in found.checks[right]["reason"] + found.checks[right]["remedy"]


def test_a_topic_that_is_not_there_and_may_not_be_made(clinic: Clinic) -> None:
    allow_all(clinic)
    secure = clinic.broker
    assert isinstance(secure, SecureBroker)
    secure.allow(ResourceType.TOPIC, "t-not-yet", READ, WRITE, DESCRIBE)
    found = clinic.examine(**{"snapshot.topic": "t-not-yet"})
    assert (found.exit_code, found.bad()) == (5, ["right to write"])
    assert "grant CREATE" in found.checks["right to write"]["remedy"]


def test_a_wrong_password(clinic: Clinic) -> None:
    found = clinic.examine(**{"kafka.sasl.password": "wrong-horse"})
    assert (found.exit_code, found.bad()) == (5, ["login"])
    assert "wrong-horse" not in found.printed
    assert PASSWORD not in found.printed


def test_a_certificate_of_another_authority(clinic: Clinic, secure: SecureBroker) -> None:
    other = secure.clients["tls"]["ssl.certificate.location"]
    found = clinic.examine(**{"kafka.ssl.ca.location": other})
    assert (found.exit_code, found.bad()) == (5, ["TLS"])


def test_an_authority_that_is_no_file_is_a_wrong_setting(clinic: Clinic) -> None:
    found = clinic.examine(**{"kafka.ssl.ca.location": "/nowhere/ca.pem"})
    assert (found.exit_code, found.bad()) == (2, ["TLS"])


def test_a_port_that_wants_tls_and_is_asked_without(clinic: Clinic, secure: SecureBroker) -> None:
    clinic.client = {"bootstrap.servers": secure.clients["scram"]["bootstrap.servers"]}
    found = clinic.examine()
    assert (found.exit_code, found.bad()) == (5, ["broker"])
    assert "security.protocol" in found.checks["broker"]["remedy"]


def test_a_broker_that_gives_an_address_for_itself_that_is_not_reached(clinic: Clinic, secure: SecureBroker) -> None:
    clinic.client = secure.clients["misled"]
    found = clinic.examine()
    assert (found.exit_code, found.bad()) == (5, ["broker"])
    assert "advertised.listeners" in found.checks["broker"]["remedy"]
    assert "nobody.invalid:9092" in found.words("broker")


def test_a_callback_that_gives_no_token(clinic: Clinic, secure: SecureBroker) -> None:
    clinic.client = dict(secure.clients["oauth"])
    found = clinic.examine(kafka_oauth_callback="tests.system.security.issuer:away")
    assert (found.exit_code, found.bad()) == (5, ["settings"])
