"""Checks the scorer if score.topic is set: its rights to read, write and commit, and its state topic."""

from __future__ import annotations

from collections.abc import Iterator

from sfd_stream.doctor.check import Check, Finding, Verdict, skipped
from sfd_stream.doctor.context import Patient
from sfd_stream.doctor.permissions import READ, WRITE, lacks, may_create, may_join, may_transact
from sfd_stream.doctor.topics import compacted


def rights(patient: Patient) -> Finding:
    """WRITE on both topics, READ on the state topic, the group, and transactions if they are used."""
    settings = patient.settings
    if settings.score.topic is None:
        return skipped("no score.topic")
    for name, needed in ((settings.score.topic, [WRITE]), (settings.score_state_topic, [WRITE, READ])):
        if patient.topic(name) is None:
            may_create(patient, name)
        elif lacking := lacks(patient, name, *needed):
            return lacking
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
