"""The scorer, where score.topic is set: may it read, write and commit, and is its state kept?"""

from __future__ import annotations

from collections.abc import Iterator

from confluent_kafka.admin import AclOperation  # type: ignore[attr-defined]

from sfd_stream.doctor.check import Check, Finding, Verdict, failed, skipped
from sfd_stream.doctor.context import Patient
from sfd_stream.doctor.permissions import may_create, may_join, may_transact
from sfd_stream.doctor.topics import compacted


def rights(patient: Patient) -> Finding:
    """WRITE on both topics, READ on that of states; the group; transactions, where they are used."""
    settings = patient.settings
    if settings.score.topic is None:
        return skipped("no score.topic")
    write, read = AclOperation.WRITE, AclOperation.READ
    for name, needed in ((settings.score.topic, {write}), (settings.score_state_topic, {write, read})):
        found = patient.topic(name)
        if found is None:
            may_create(patient, name)
            continue
        missing = " and ".join(sorted(operation.name for operation in needed - found.allowed))
        if missing:
            return failed(f"no {missing} on topic {name}", f"grant {missing} on topic {name} to this user")
    joined = may_join(patient, settings.score_group)
    if joined.verdict is Verdict.FAILED or settings.score.delivery != "transactional":
        return joined
    return may_transact(patient, settings.score_group)


def state(patient: Patient) -> Finding:
    settings = patient.settings
    if settings.score.topic is None:
        return skipped("no score.topic")
    return compacted(patient, settings.score_state_topic, made_by="score", holds="state")


def checks() -> Iterator[Check]:
    yield Check(
        "right to score", rights, "grant the scorer's rights, as docs/guides/deploying.md lists them", after=("broker",)
    )
    yield Check("score states", state, "", after=("right to score",))
